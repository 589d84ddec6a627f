"""Who is sound, slow or faulty: from what the nodes have measured to a finding about each. Pure.

A node that fails on its own is faulty. One that fails together with others is faulty if it fails
with a node that gets on with somebody else; where no such node is there, nobody can tell which of
them it is. A node is slow if it takes more than `SLOW_RATIO` times what the others take, each at
its best. Since *what the others take* is the lower median, at least half of the nodes are not slow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

SLOW_RATIO = 2.0
"""How many times what the others take is slow; DLRover has the same."""

Group = tuple[int, ...]


class Kind(Enum):
    """What the nodes of a stage do."""

    ALONE = "alone"
    """Every node by itself: a matmul, and an all-reduce among its own workers."""
    TOGETHER = "together"
    """A matmul, and an all-reduce among the workers of a few nodes."""
    BANDWIDTH = "bandwidth"
    """All-reduces of several sizes among the workers of all nodes, to be told and not judged."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the check: which nodes do it, and with whom. Others wait."""

    kind: Kind
    groups: tuple[Group, ...]

    def group_of(self, node: int) -> Group | None:
        return next((group for group in self.groups if node in group), None)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "groups": [list(group) for group in self.groups]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(Kind(data["kind"]), tuple(tuple(group) for group in data["groups"]))


@dataclass(frozen=True, slots=True)
class Reading:
    """What one node measured in one stage: seconds, of the slowest of its workers at its best."""

    matmul: float | None = None
    all_reduce: float | None = None
    trouble: str = ""
    """Why there is nothing to read, in words."""
    sizes: tuple[tuple[int, float], ...] = ()
    """In a stage for the bandwidth: bytes and seconds."""

    def to_json(self) -> dict[str, Any]:
        return {
            "matmul": self.matmul,
            "all_reduce": self.all_reduce,
            "trouble": self.trouble,
            "sizes": [list(each) for each in self.sizes],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        sizes = tuple((int(size), float(seconds)) for size, seconds in data["sizes"])
        return cls(data["matmul"], data["all_reduce"], data["trouble"], sizes)


@dataclass(frozen=True, slots=True)
class Done:
    """A stage that is over, with the readings of the nodes that took part."""

    stage: Stage
    readings: Mapping[int, Reading]


class Standing(Enum):
    """What is thought of a node."""

    SOUND = "sound"
    SLOW = "slow"
    FAULTY = "faulty"
    UNCLEAR = "unclear"
    """It failed together with others, and so did they; which of them is at fault is not known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is thought of one node, and why."""

    node: int
    standing: Standing
    why: str = ""
    ratio: float = 1.0
    """How many times what the others take, where it is slow."""

    @property
    def is_fit(self) -> bool:
        return self.standing in (Standing.SOUND, Standing.SLOW)

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "standing": self.standing.value,
            "why": self.why,
            "ratio": round(self.ratio, 2),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(data["node"], Standing(data["standing"]), data["why"], data["ratio"])


def judge(nodes: int, history: Sequence[Done]) -> tuple[Finding, ...]:
    """A finding about each node, as far as the stages that are over allow one."""
    failed = faults(nodes, history)
    left = [node for node in range(nodes) if node not in failed]
    slow = slowness(left, history)
    findings = []
    for node in range(nodes):
        if node in failed:
            findings.append(failed[node])
        elif node in slow:
            findings.append(slow[node])
        else:
            findings.append(Finding(node, Standing.SOUND))
    return tuple(findings)


def faults(nodes: int, history: Sequence[Done]) -> dict[int, Finding]:
    """The nodes that are faulty, or of which it is unclear."""
    found = {
        node: Finding(node, Standing.FAULTY, trouble)
        for node in range(nodes)
        if (trouble := _own_trouble(node, history))
    }
    gets_on = {node for node in range(nodes) if _gets_on(node, history)}
    for node in range(nodes):
        failures = list(_failures_together(node, history))
        if node in found or node in gets_on or not failures:
            continue
        finding = _of_one_that_never_got_on(node, failures, gets_on, found)
        if finding is not None:
            found[node] = finding
    return found


def _of_one_that_never_got_on(
    node: int,
    failures: Sequence[tuple[Group, str]],
    gets_on: set[int],
    faulty: Mapping[int, Finding],
) -> Finding | None:
    for group, trouble in failures:
        others = [other for other in group if other != node]
        if all(other in gets_on for other in others):
            why = f"{trouble}, in an all-reduce with {_names(others)}, sound with others"
            return Finding(node, Standing.FAULTY, why)
    if all(any(_is_at_fault(other, faulty) for other in group) for group, _ in failures):
        return None  # each time somebody else is known to be at fault
    group, trouble = failures[-1]
    others = [other for other in group if other != node]
    why = f"{trouble}, in an all-reduce with {_names(others)}; which of them it is cannot be told"
    return Finding(node, Standing.UNCLEAR, why)


def _is_at_fault(node: int, faulty: Mapping[int, Finding]) -> bool:
    return node in faulty and faulty[node].standing is Standing.FAULTY


def slowness(nodes: Iterable[int], history: Sequence[Done]) -> dict[int, Finding]:
    """The nodes that take too long at something, each at its best, by the worst of its ratios."""
    nodes = list(nodes)
    found: dict[int, Finding] = {}
    for what, times in best_times(nodes, history).items():
        usual = lower_median(times.values())
        for node, seconds in times.items():
            ratio = seconds / usual if usual > 0 else 1.0
            if ratio > SLOW_RATIO and (node not in found or ratio > found[node].ratio):
                why = f"{what} takes {milliseconds(seconds)}, {milliseconds(usual)} is usual"
                found[node] = Finding(node, Standing.SLOW, why, ratio)
    return found


def lower_median(values: Iterable[float]) -> float:
    """The middle one; of two in the middle, the lower. At least half are not below it."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


MATMUL = "a matmul"
INSIDE = "an all-reduce within the node"
BETWEEN = "an all-reduce with another node"


def best_times(nodes: Sequence[int], history: Sequence[Done]) -> dict[str, dict[int, float]]:
    """What each node took at its best, by what it did."""
    times: dict[str, dict[int, float]] = {MATMUL: {}, INSIDE: {}, BETWEEN: {}}
    for done in history:
        if done.stage.kind is Kind.BANDWIDTH:
            continue
        comparable = INSIDE if done.stage.kind is Kind.ALONE else BETWEEN
        for node, reading in done.readings.items():
            if node not in nodes or reading.trouble:
                continue
            for what, seconds in ((MATMUL, reading.matmul), (comparable, reading.all_reduce)):
                if seconds is not None:
                    times[what][node] = min(seconds, times[what].get(node, seconds))
    return times


def _own_trouble(node: int, history: Sequence[Done]) -> str:
    """Why the node failed with nobody else involved."""
    for done in history:
        reading = done.readings.get(node)
        group = done.stage.group_of(node)
        if group is None:
            continue
        if reading is None:
            return "it did not report in time"
        if reading.trouble and len(group) == 1:
            return reading.trouble
    return ""


def _gets_on(node: int, history: Sequence[Done]) -> bool:
    return any(
        node in done.readings and not done.readings[node].trouble
        for done in history
        if len(done.stage.group_of(node) or ()) > 1
    )


def _failures_together(node: int, history: Sequence[Done]) -> Iterable[tuple[Group, str]]:
    for done in history:
        group = done.stage.group_of(node)
        if group is not None and len(group) > 1 and node in done.readings:
            trouble = done.readings[node].trouble
            if trouble:
                yield group, trouble


def _names(nodes: Sequence[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {' and '.join(map(str, nodes))}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
