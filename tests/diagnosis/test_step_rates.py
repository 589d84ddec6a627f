"""Step rates of an attempt, from the samples that its nodes have left."""

import json
from pathlib import Path

import pytest

from dlrover_cli.diagnosis.papers import Papers, Sample, read_papers
from dlrover_cli.diagnosis.run_story import Pace
from dlrover_cli.diagnosis.step_rates import MOST_SPANS, pace_of


def samples(*points: tuple[float, int], attempt: int = 0, rank: int = 0) -> tuple[Sample, ...]:
    """Of two ranks that take their steps together."""
    return tuple(Sample(at, attempt, {rank: steps, rank + 1: steps}) for at, steps in points)


def pace(*nodes: tuple[Sample, ...], attempt: int = 0, is_good: bool = True) -> Pace:
    papers = Papers(samples={str(number): node for number, node in enumerate(nodes)})
    return pace_of(papers, attempt, 0.0, None, is_good=is_good)


def rates(told: Pace) -> list[float]:
    return [round(span.rate, 6) for span in told.spans]


def test_nothing_is_told_where_nobody_counted():
    assert pace() == Pace()
    assert pace(samples((1, 0), (2, 0))) == Pace()


def test_a_steady_rate_is_one_from_sample_to_sample():
    told = pace(samples((1, 0), (2, 3), (3, 8), (4, 13)))
    assert rates(told) == [5, 5]
    assert (told.steps, told.steps_per_second) == (13, 5)


def test_the_last_moment_of_an_attempt_is_no_span_of_its_own():
    assert rates(pace(samples((1, 1), (2, 5), (3, 9), (3.3, 10)))) == [4, 3.846154]


def test_slow_steps_have_a_low_rate_and_not_one_that_jumps():
    told = pace(samples(*((second, second // 4) for second in range(4, 21))))
    assert rates(told) == [0.25] * 4


def test_a_standstill_before_a_failure_is_seen():
    points = [*((second, second * 2) for second in range(1, 6)), (30.0, 10)]
    assert rates(pace(samples(*points), is_good=False)) == [2, 2, 2, 2, 0]
    assert pace(samples(*points), is_good=False).steps_per_second == 2


def test_workers_that_are_done_do_not_stand_still():
    points = [*((second, second * 2) for second in range(1, 6)), (30.0, 10)]
    assert rates(pace(samples(*points))) == [2, 2, 2, 2]


def test_attempts_are_told_apart():
    both = samples((1, 1), (2, 3)) + samples((3, 1), (4, 8), attempt=1)
    assert rates(pace(both, attempt=1)) == [7]


def test_of_many_nodes_the_one_with_the_lowest_rank_is_told():
    told = pace(samples((1, 1), (2, 9), rank=8), samples((1, 1), (2, 5)))
    assert rates(told) == [4]
    assert told.steps == 9


def test_a_typical_worker_is_told_and_not_the_slowest():
    points = [Sample(at, 0, {0: 1, 1: int(at) * 3, 2: int(at) * 3}) for at in (1.0, 2.0, 3.0)]
    assert rates(pace(tuple(points))) == [3, 3]


def test_a_long_attempt_has_as_many_spans_as_a_plot_can_show():
    told = pace(samples(*((second, second * 2) for second in range(1, 10_000))))
    assert len(told.spans) <= MOST_SPANS
    assert set(rates(told)) == {2}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"time": "x", "attempt": 0, "steps": {}}',
        '{"time": 1, "attempt": 0, "steps": []}',
        '{"time": 1e300, "attempt": 0, "steps": {}}',
    ],
)
def test_lines_that_are_no_samples_are_passed_over(tmp_path: Path, line: str) -> None:
    good = json.dumps({"time": 5.0, "attempt": 0, "steps": {"0": 3, "x": 1, "1": "many"}})
    file = tmp_path / "nodes" / "vm.1" / "samples.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(f"{line}\n{good}\n")
    papers = read_papers(tmp_path)
    assert papers.samples["vm.1"] == (Sample(5.0, 0, {0: 3, 1: 0}),)
    assert papers.unreadable == ()
