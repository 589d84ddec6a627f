"""When a round is complete, and with whom: the rules, without a store and without a clock."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.rendezvous.forming import (
    Ask,
    Complete,
    Forming,
    Rules,
    Sighting,
    Standing,
    Wait,
    assign_ranks,
    choose,
    decide,
)

FIXED = Rules(2, 2)
ELASTIC = Rules(2, 4, last_call_timeout=5.0, keep_alive_interval=2.0, keep_alive_max_attempt=3)
NOW = 100.0


def forming(
    arrived: str, previous: str = "", left: str = "", *, enough_since: float | None = None
) -> Forming:
    """Nodes are letters; all have just been heard of."""
    sightings = dict.fromkeys(arrived + previous, Sighting(NOW))
    return Forming(tuple(arrived), tuple(previous), frozenset(left), sightings, enough_since)


def with_sightings(round_: Forming, **sightings: Sighting) -> Forming:
    return replace(round_, sightings={**round_.sightings, **sightings})


class TestFirstRound:
    def test_too_few_nodes_wait(self) -> None:
        assert decide(forming("a"), FIXED, NOW) == Wait()

    def test_as_many_as_there_can_be_start_at_once(self) -> None:
        assert decide(forming("ab"), FIXED, NOW) == Complete(("a", "b"))

    def test_enough_nodes_wait_for_more_until_the_last_call_is_over(self) -> None:
        early = forming("ab", enough_since=NOW - 4.0)
        assert decide(early, ELASTIC, NOW) == Wait(until=NOW + 1.0)
        late = forming("ab", enough_since=NOW - 5.0)
        assert decide(late, ELASTIC, NOW) == Complete(("a", "b"))

    def test_more_nodes_than_there_can_be_are_left_over(self) -> None:
        assert decide(forming("abc"), FIXED, NOW) == Complete(("a", "b"))


class TestNextRound:
    def test_nodes_that_all_came_back_start_at_once(self) -> None:
        assert decide(forming("ba", "ab"), ELASTIC, NOW) == Complete(("a", "b"))

    def test_nodes_that_run_are_waited_for(self) -> None:
        assert decide(forming("a", "ab"), FIXED, NOW) == Wait()
        assert isinstance(decide(forming("ac", "ab"), FIXED, NOW), Wait)

    def test_a_node_that_left_is_not_waited_for(self) -> None:
        assert decide(forming("ab", "abc", "c"), ELASTIC, NOW) == Complete(("a", "b"))

    def test_a_spare_takes_the_rank_of_a_node_that_left(self) -> None:
        assert decide(forming("cb", "ab", "a"), FIXED, NOW) == Complete(("c", "b"))

    def test_nodes_of_the_round_before_go_before_those_that_waited_longer(self) -> None:
        assert decide(forming("cba", "ab"), FIXED, NOW) == Complete(("a", "b"))

    def test_when_nobody_of_the_round_before_is_left_it_is_like_a_first_round(self) -> None:
        gone = Sighting(NOW - 20, asked=NOW - 10)
        round_ = with_sightings(forming("cd", "ab", enough_since=NOW), a=gone, b=gone)
        assert decide(round_, ELASTIC, NOW) == Wait(until=NOW + 5.0)
        assert decide(round_, Rules(2, 2), NOW) == Complete(("c", "d"))


class TestNewcomers:
    def test_a_job_that_could_have_more_nodes_is_told_of_those_that_wait(self) -> None:
        assert decide(forming("c", "ab"), ELASTIC, NOW) == Wait(wanted=1)
        assert decide(forming("cdefg", "ab"), ELASTIC, NOW) == Wait(wanted=2)

    def test_a_full_job_is_not_told_of_spares(self) -> None:
        assert decide(forming("c", "ab"), FIXED, NOW) == Wait(wanted=0)

    def test_a_full_job_with_a_dead_node_is_told_of_its_spare(self) -> None:
        dead = Sighting(NOW - 20, asked=NOW - 6)
        round_ = with_sightings(forming("c", "ab"), a=dead)
        assert decide(round_, FIXED, NOW) == Wait(wanted=1)

    def test_nodes_that_have_come_back_already_are_not_newcomers(self) -> None:
        assert decide(forming("ac", "ab"), Rules(2, 3), NOW) == Wait(wanted=1)
        assert decide(forming("a", "ab"), Rules(2, 3), NOW) == Wait(wanted=0)


class TestTheSilent:
    def test_nodes_that_have_waited_long_are_asked_before_they_are_relied_on(self) -> None:
        stale = with_sightings(forming("ab"), a=Sighting(NOW - 2))
        assert decide(stale, FIXED, NOW) == Ask(("a",))

    def test_who_was_asked_has_a_moment_to_answer(self) -> None:
        asked = with_sightings(forming("ab"), a=Sighting(NOW - 60, asked=NOW - 0.5))
        assert decide(asked, FIXED, NOW) == Wait(until=NOW + 1.5)

    def test_who_does_not_answer_is_done_without(self) -> None:
        silent = with_sightings(forming("abc"), a=Sighting(NOW - 60, asked=NOW - 2))
        assert decide(silent, FIXED, NOW) == Complete(("b", "c"))

    def test_a_node_that_runs_is_asked_and_given_up_only_when_its_lease_is_over(self) -> None:
        def with_b(sighting: Sighting) -> Forming:
            return with_sightings(forming("ac", "ab"), b=sighting)

        rules = Rules(2, 2, keep_alive_interval=2.0, keep_alive_max_attempt=3)
        assert decide(with_b(Sighting(NOW - 2)), rules, NOW) == Ask(("b",))
        assert isinstance(decide(with_b(Sighting(NOW - 9, asked=NOW - 5.9)), rules, NOW), Wait)
        gone = with_b(Sighting(NOW - 9, asked=NOW - 6))
        assert decide(gone, rules, NOW) == Complete(("a", "c"))

    def test_a_node_that_runs_well_is_not_asked_all_the_time(self) -> None:
        answered = Sighting(NOW - 9, has_answered=True)
        spare = with_sightings(forming("c", "ab"), a=answered, b=answered)
        assert isinstance(decide(spare, FIXED, NOW), Wait)
        assert decide(spare, FIXED, NOW + 2) == Ask(("a", "b"))

    @pytest.mark.parametrize(
        "seconds, standing",
        [
            (0.0, Standing.ASKED),
            (1.9, Standing.ASKED),
            (2.0, Standing.SILENT),
            (5.9, Standing.SILENT),
            (6.0, Standing.GONE),
        ],
    )
    def test_an_unanswered_question_ages(self, seconds: float, standing: Standing) -> None:
        sighting = Sighting(NOW - 60, asked=NOW - seconds)
        assert sighting.standing(NOW, ELASTIC, patrol=False) is standing


class TestRanks:
    def test_a_node_whose_rank_does_not_exist_any_more_fills_a_gap(self) -> None:
        assert assign_ranks("bd", "abcd") == ("d", "b")

    @given(st.permutations("abcdefgh"), st.permutations("abcdefgh"), st.integers(0, 8))
    def test_every_rank_is_given_once_and_kept_where_it_can_be(
        self, arrived: list[str], previous: list[str], known: int
    ) -> None:
        previous = previous[:known]
        chosen = choose(arrived[:5], previous, 4)
        ranked = assign_ranks(chosen, previous)
        assert sorted(ranked) == sorted(chosen)
        for rank, node in enumerate(previous[: len(ranked)]):
            if node in chosen:
                assert ranked[rank] == node

    @given(st.permutations("abcdefgh"), st.integers(0, 8))
    def test_those_of_the_round_before_are_chosen_first(
        self, arrived: list[str], known: int
    ) -> None:
        previous = "abcdefgh"[:known]
        chosen = choose(arrived, previous, 3)
        assert sum(node in previous for node in chosen) == min(3, known)


class TestUnits:
    RULES = Rules(2, 6, last_call_timeout=5.0, node_unit=2)

    def test_nodes_are_taken_in_multiples_and_the_last_to_come_waits(self) -> None:
        late = forming("abcde", enough_since=NOW - 5.0)
        assert decide(late, self.RULES, NOW) == Complete(("a", "b", "c", "d"))

    def test_a_node_that_left_takes_another_one_out_with_it(self) -> None:
        assert decide(forming("abd", "abcd", "c"), self.RULES, NOW) == Complete(("a", "b"))

    def test_a_newcomer_is_wanted_only_with_the_rest_of_its_unit(self) -> None:
        assert decide(forming("c", "ab"), self.RULES, NOW) == Wait(wanted=0)
        assert decide(forming("cd", "ab"), self.RULES, NOW) == Wait(wanted=2)
        assert decide(forming("cde", "ab"), self.RULES, NOW) == Wait(wanted=2)

    @given(st.integers(1, 5), st.integers(0, 30))
    def test_a_round_is_a_multiple_of_the_unit(self, unit: int, nodes: int) -> None:
        rules = Rules(unit, 4 * unit, node_unit=unit)
        arrived = [f"n{number}" for number in range(nodes)]
        sightings = dict.fromkeys(arrived, Sighting(NOW))
        round_ = Forming(tuple(arrived), sightings=sightings, enough_since=NOW - 100)
        match decide(round_, rules, NOW):
            case Complete(members):
                assert len(members) == min(nodes // unit, 4) * unit
            case _:
                assert nodes < unit
