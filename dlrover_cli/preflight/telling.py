"""A check in words: a line for every node, what follows, and the bandwidth. Pure."""

from collections.abc import Iterator, Sequence

from dlrover_cli.preflight.judging import (
    BETWEEN,
    INSIDE,
    MATMUL,
    Done,
    Finding,
    Kind,
    Standing,
    best_times,
    milliseconds,
)
from dlrover_cli.preflight.leaving import Verdict
from dlrover_cli.preflight.probe import MIB
from dlrover_cli.words import counted, node_name, one_line

_MOST_LINES = 16
"""Of a larger job only those nodes are told of that are not sound."""

_SHORT = {MATMUL: "matmul", INSIDE: "all-reduce inside", BETWEEN: "with another node"}


def lines_on(
    verdict: Verdict, history: Sequence[Done], hosts: Sequence[str], seconds: float
) -> list[str]:
    """What the first node tells."""
    nodes = len(verdict.findings)
    lines = [
        line
        for finding in verdict.findings
        if (line := _line(finding, verdict, history, hosts))
        and (nodes <= _MOST_LINES or finding.standing is not Standing.SOUND)
    ]
    bad = [finding for finding in verdict.findings if finding.standing is not Standing.SOUND]
    outcome = "all sound" if not bad else f"{counted(len(bad), 'node')} not sound"
    if nodes == 1 and not bad:
        outcome = "sound"
    return [f"checked {counted(nodes, 'node')} in {seconds:.1f} s: {outcome}", *lines]


def warnings_on(verdict: Verdict, history: Sequence[Done], hosts: Sequence[str]) -> list[str]:
    """What every other node tells."""
    return [
        _line(finding, verdict, history, hosts)
        for finding in verdict.findings
        if finding.standing is not Standing.SOUND
    ]


def bandwidths(history: Sequence[Done], workers: int) -> Iterator[str]:
    """The all-reduces of the whole job, as NCCL's tests count: what arrives, what the wires see."""
    for done in history:
        if done.stage.kind is not Kind.BANDWIDTH:
            continue
        for index, (size, _) in enumerate(next(iter(done.readings.values())).sizes):
            seconds = max(reading.sizes[index][1] for reading in done.readings.values())
            algorithm = size / seconds / 1e9
            bus = algorithm * 2 * (workers - 1) / workers
            yield (
                f"all-reduce of {size // MIB} MiB among {counted(workers, 'worker')}: "
                f"{milliseconds(seconds)}, algorithm bandwidth {algorithm:.2f} GB/s, "
                f"bus bandwidth {bus:.2f} GB/s"
            )


def _line(finding: Finding, verdict: Verdict, history: Sequence[Done], hosts: Sequence[str]) -> str:
    name = node_name(finding.node, hosts[finding.node])
    match finding.standing:
        case Standing.SOUND:
            return f"{name} is sound: {_figures(finding.node, len(verdict.findings), history)}"
        case Standing.SLOW:
            line = f"{name} is slow, {finding.ratio:.1f} times the usual: {finding.why}"
        case Standing.FAULTY:
            line = f"{name} is faulty: {one_line(finding.why)}"
        case Standing.UNCLEAR:
            line = f"{name} may be faulty: {one_line(finding.why)}"
    if finding.node in verdict.kept:
        return f"{line}; it stays: {verdict.kept[finding.node]}"
    return f"{line}; it leaves the job" if finding.node in verdict.leaving else line


def _figures(node: int, nodes: int, history: Sequence[Done]) -> str:
    times = best_times(range(nodes), history)
    return ", ".join(
        f"{_SHORT[what]} {milliseconds(found[node])}"
        for what, found in times.items()
        if node in found
    )
