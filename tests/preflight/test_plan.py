"""Which nodes check what with whom: simulated jobs with nodes that are known to be bad."""

from collections.abc import Set
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.preflight.judging import Done, Kind, Reading, Stage, Standing, judge
from dlrover_cli.preflight.plan import next_stage, pairs


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes of which some are bad, each in its own way."""

    nodes: int
    broken: Set[int] = frozenset()
    """Fail alone."""
    unreachable: Set[int] = frozenset()
    """Fail with whomever they are paired with."""
    slow: Set[int] = frozenset()
    slow_links: Set[int] = frozenset()
    history: list[Done] = field(default_factory=list)

    def check(self, *, measures: bool = False) -> dict[int, Standing]:
        while True:
            stage = next_stage(self.nodes, self.history, measures=measures)
            if stage is None:
                return {each.node: each.standing for each in judge(self.nodes, self.history)}
            assert len(self.history) < 10
            members = [node for group in stage.groups for node in group]
            assert len(members) == len(set(members)), "a node is in one group at a time"
            self.history.append(self.perform(stage))

    def perform(self, stage: Stage) -> Done:
        readings = {}
        for group in stage.groups:
            fails = bool(self.broken & set(group))
            fails |= len(group) > 1 and bool(self.unreachable & set(group))
            link = 9.0 if len(group) > 1 and self.slow_links & set(group) else 1.0
            for node in group:
                own = 9.0 if node in self.slow else 1.0
                readings[node] = Reading(trouble="failed") if fails else Reading(own, link)
        return Done(stage, readings)

    @property
    def kinds(self) -> list[Kind]:
        return [done.stage.kind for done in self.history]


class TestPairs:
    def test_neighbours_are_paired(self) -> None:
        assert pairs([0, 1, 2, 3]) == ((0, 1), (2, 3))

    def test_of_an_odd_number_the_last_three_are_together(self) -> None:
        assert pairs([0, 1, 2, 3, 4]) == ((0, 1), (2, 3, 4))
        assert pairs([4, 7, 9]) == ((4, 7, 9),)

    @given(st.integers(2, 200))
    def test_every_node_is_in_exactly_one_group_of_two_or_three(self, nodes: int) -> None:
        groups = pairs(range(nodes))
        assert sorted(node for group in groups for node in group) == list(range(nodes))
        assert all(len(group) in (2, 3) for group in groups)


class TestSoundJobs:
    def test_a_single_node_is_checked_in_one_stage(self) -> None:
        cluster = Cluster(1)
        assert cluster.check() == {0: Standing.SOUND}
        assert cluster.kinds == [Kind.ALONE]

    @given(st.integers(2, 64))
    def test_nodes_that_are_all_well_pass_in_two_stages(self, nodes: int) -> None:
        cluster = Cluster(nodes)
        assert set(cluster.check().values()) == {Standing.SOUND}
        assert cluster.kinds == [Kind.ALONE, Kind.TOGETHER]

    def test_the_bandwidth_is_measured_last_and_among_all(self) -> None:
        cluster = Cluster(3)
        cluster.check(measures=True)
        assert cluster.kinds == [Kind.ALONE, Kind.TOGETHER, Kind.BANDWIDTH]
        assert cluster.history[-1].stage.groups == ((0, 1, 2),)

    def test_no_bandwidth_is_measured_with_a_node_that_is_to_go(self) -> None:
        cluster = Cluster(3, broken={1})
        cluster.check(measures=True)
        assert Kind.BANDWIDTH not in cluster.kinds


class TestBadNodes:
    def test_a_broken_node_is_not_paired_with_anybody(self) -> None:
        cluster = Cluster(4, broken={1})
        assert cluster.check()[1] is Standing.FAULTY
        assert cluster.history[1].stage.groups == ((0, 2, 3),)

    def test_a_slow_node_is_measured_twice(self) -> None:
        cluster = Cluster(4, slow={2})
        assert cluster.check()[2] is Standing.SLOW
        assert cluster.history[1].stage == Stage(Kind.ALONE, ((2,),))

    def test_of_two_unreachable_to_each_other_it_stays_unclear(self) -> None:
        cluster = Cluster(2, unreachable={0})
        assert set(cluster.check().values()) == {Standing.UNCLEAR}
        assert cluster.kinds == [Kind.ALONE, Kind.TOGETHER]

    def test_one_of_three_is_found(self) -> None:
        for bad in range(3):
            found = Cluster(3, unreachable={bad}).check()
            assert found == {n: Standing.FAULTY if n == bad else Standing.SOUND for n in range(3)}

    def test_a_slow_link_is_found_and_its_partner_is_cleared(self) -> None:
        for bad in range(4):
            found = Cluster(4, slow_links={bad}).check()
            assert [node for node in found if found[node] is Standing.SLOW] == [bad]

    def test_a_slow_node_is_not_the_partner_that_clears_another(self) -> None:
        found = Cluster(4, slow={1}, slow_links={1}).check()
        assert [node for node in found if found[node] is Standing.SLOW] == [1]

    @given(st.integers(4, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1))))
    def test_one_unreachable_node_among_many_is_found(self, case: tuple[int, int]) -> None:
        nodes, bad = case
        found = Cluster(nodes, unreachable={bad}).check()
        assert [node for node in found if found[node] is not Standing.SOUND] == [bad]
        assert found[bad] is Standing.FAULTY

    @given(st.data(), st.integers(1, 12))
    def test_a_node_that_is_well_is_never_called_faulty(self, data: st.DataObject, n: int) -> None:
        some = st.sets(st.integers(0, n - 1))
        cluster = Cluster(n, broken=data.draw(some), unreachable=data.draw(some))
        found = cluster.check()
        bad = cluster.broken | cluster.unreachable
        for node, standing in found.items():
            assert standing is not Standing.FAULTY or node in bad
            if node in cluster.broken:
                assert standing is Standing.FAULTY
