"""A check in words."""

from dlrover_cli.preflight.judging import Done, Kind, Reading, Stage, judge
from dlrover_cli.preflight.leaving import Ground, settle
from dlrover_cli.preflight.telling import bandwidths, lines_on, warnings_on

HOSTS = ["a", "b", "c"]


def checked(*matmuls: float | str) -> list[Done]:
    readings = {
        node: Reading(trouble=each) if isinstance(each, str) else Reading(matmul=each)
        for node, each in enumerate(matmuls)
    }
    return [Done(Stage(Kind.ALONE, tuple((node,) for node in readings)), readings)]


def test_every_node_gets_a_line() -> None:
    history = checked(0.01, 0.05, "no\nGPU")
    verdict = settle(judge(3, history), Ground(1), excludes=True)
    assert lines_on(verdict, history, HOSTS, 1.23) == [
        "checked 3 nodes in 1.2 s: 2 nodes not sound",
        "node 0 (a) is sound: matmul 10 ms",
        (
            "node 1 (b) is slow, 5.0 times the usual: a matmul takes 50 ms, 10 ms is usual; "
            "it leaves the job"
        ),
        "node 2 (c) is faulty: no GPU; it leaves the job",
    ]


def test_the_other_nodes_tell_only_of_what_is_wrong() -> None:
    history = checked(0.01, "no GPU", 0.01)
    verdict = settle(judge(3, history), Ground(1), excludes=False)
    assert warnings_on(verdict, history, HOSTS) == [
        "node 1 (b) is faulty: no GPU; it leaves the job"
    ]


def test_a_large_job_tells_only_of_what_is_wrong() -> None:
    history = checked(*[0.01] * 99, "no GPU")
    verdict = settle(judge(100, history), Ground(1), excludes=False)
    assert lines_on(verdict, history, [""] * 100, 1.0) == [
        "checked 100 nodes in 1.0 s: 1 node not sound",
        "node 99 is faulty: no GPU; it leaves the job",
    ]


def test_a_slow_node_that_stays_has_a_reason() -> None:
    history = checked(0.01, 0.05)
    verdict = settle(judge(2, history), Ground(2), excludes=True)
    assert warnings_on(verdict, history, HOSTS)[0].endswith("; it stays: the job needs at least 2")


def test_bandwidths_are_those_of_the_slowest_node() -> None:
    readings = {0: Reading(sizes=((1 << 20, 0.001),)), 1: Reading(sizes=((1 << 20, 0.002),))}
    history = [Done(Stage(Kind.BANDWIDTH, ((0, 1),)), readings)]
    assert list(bandwidths(history, 4)) == [
        (
            "all-reduce of 1 MiB among 4 workers: 2 ms, algorithm bandwidth 0.52 GB/s, "
            "bus bandwidth 0.79 GB/s"
        )
    ]
