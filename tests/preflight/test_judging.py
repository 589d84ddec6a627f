"""What is made of the readings of the nodes, without a node."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_cli.preflight.judging import (
    SLOW_RATIO,
    Done,
    Finding,
    Group,
    Kind,
    Reading,
    Stage,
    Standing,
    judge,
    lower_median,
)


def alone(*matmuls: float | str) -> Done:
    """Every node by itself; a text is its trouble."""
    readings = {
        node: Reading(trouble=each) if isinstance(each, str) else Reading(matmul=each)
        for node, each in enumerate(matmuls)
    }
    return Done(Stage(Kind.ALONE, tuple((node,) for node in readings)), readings)


def together(groups: Mapping[Group, float | str]) -> Done:
    """Groups and what their all-reduces took; a text is the trouble of each of their nodes."""
    readings = {
        node: Reading(trouble=each) if isinstance(each, str) else Reading(1.0, each)
        for group, each in groups.items()
        for node in group
    }
    return Done(Stage(Kind.TOGETHER, tuple(groups)), readings)


def standings(*history: Done, nodes: int) -> list[str]:
    return [finding.standing.value for finding in judge(nodes, history)]


class TestFaulty:
    def test_a_node_that_fails_alone_is_faulty_with_its_own_words(self) -> None:
        findings = judge(2, [alone(1.0, "no such device")])
        assert findings[1] == Finding(1, Standing.FAULTY, "no such device")
        assert findings[0].standing is Standing.SOUND

    def test_a_node_that_does_not_report_is_faulty(self) -> None:
        done = Done(Stage(Kind.ALONE, ((0,), (1,))), {0: Reading(matmul=1.0)})
        assert standings(done, nodes=2) == ["sound", "faulty"]

    def test_of_two_that_fail_together_nobody_can_tell_which(self) -> None:
        findings = judge(2, [alone(1.0, 1.0), together({(0, 1): "time is up"})])
        assert [each.standing for each in findings] == [Standing.UNCLEAR] * 2
        assert "cannot be told" in findings[0].why
        assert "node 1" in findings[0].why

    def test_who_fails_with_a_node_that_gets_on_with_another_is_faulty(self) -> None:
        history = [
            alone(1.0, 1.0, 1.0, 1.0),
            together({(0, 1): "time is up", (2, 3): 1.0}),
            together({(0, 2): 1.0, (1, 3): "time is up"}),
        ]
        assert standings(*history, nodes=4) == ["sound", "faulty", "sound", "sound"]

    def test_who_failed_only_with_a_node_that_is_gone_since_is_sound(self) -> None:
        stage = Stage(Kind.TOGETHER, ((0, 1),))
        history = [alone(1.0, 1.0), Done(stage, {0: Reading(trouble="closed by peer")})]
        assert standings(*history, nodes=2) == ["sound", "faulty"]

    def test_a_sound_partner_is_named(self) -> None:
        history = [
            alone(1.0, 1.0, 1.0),
            together({(0, 1, 2): "time is up"}),
            together({(0, 1): 1.0}),
        ]
        finding = judge(3, history)[2]
        assert finding.standing is Standing.FAULTY
        assert "with nodes 0 and 1" in finding.why


class TestSlow:
    def test_a_node_that_computes_slowly_is_named_with_its_ratio(self) -> None:
        finding = judge(3, [alone(0.010, 0.011, 0.055)])[2]
        assert finding.standing is Standing.SLOW
        assert finding.ratio == pytest.approx(5.0)
        assert finding.why == "a matmul takes 55 ms, 11 ms is usual"

    def test_of_two_nodes_the_slower_one_is_slow(self) -> None:
        assert standings(alone(1.0, 5.0), nodes=2) == ["sound", "slow"]

    def test_the_best_of_several_readings_counts(self) -> None:
        assert standings(alone(1.0, 5.0), alone(1.0, 1.2), nodes=2) == ["sound", "sound"]

    def test_exactly_the_threshold_is_not_slow(self) -> None:
        assert standings(alone(1.0, SLOW_RATIO), nodes=2) == ["sound", "sound"]

    def test_a_slow_link_shows_in_the_second_pairing(self) -> None:
        first = together({(0, 1): 9.0, (2, 3): 1.0})
        assert standings(first, nodes=4) == ["slow", "slow", "sound", "sound"]
        second = together({(0, 2): 1.0, (1, 3): 9.0})
        assert standings(first, second, nodes=4) == ["sound", "slow", "sound", "sound"]

    def test_two_nodes_with_a_slow_link_have_nothing_to_be_compared_with(self) -> None:
        assert standings(alone(1.0, 1.0), together({(0, 1): 99.0}), nodes=2) == ["sound", "sound"]

    def test_the_bandwidth_of_all_is_not_judged(self) -> None:
        readings = {0: Reading(sizes=((1, 1.0),)), 1: Reading(sizes=((1, 9.0),))}
        done = Done(Stage(Kind.BANDWIDTH, ((0, 1),)), readings)
        assert standings(alone(1.0, 1.0), done, nodes=2) == ["sound", "sound"]

    @given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40))
    def test_at_least_half_of_the_nodes_are_never_slow(self, times: list[float]) -> None:
        found = standings(alone(*times), nodes=len(times))
        assert found.count("slow") <= len(times) // 2


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_the_lower_median_is_one_of_the_values_and_half_are_not_above(values: list[float]) -> None:
    middle = lower_median(values)
    assert middle in values
    assert sum(value <= middle for value in values) * 2 >= len(values)


def test_readings_stages_and_findings_survive_their_json() -> None:
    reading = Reading(1.0, None, "why", ((1, 2.0),))
    assert Reading.from_json(reading.to_json()) == reading
    stage = Stage(Kind.TOGETHER, ((0, 1), (2, 3, 4)))
    assert Stage.from_json(stage.to_json()) == stage
    finding = Finding(3, Standing.SLOW, "because", 2.5)
    assert Finding.from_json(finding.to_json()) == finding
