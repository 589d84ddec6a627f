"""Which nodes check what with whom, stage by stage. Pure.

First every node by itself; then in pairs; then those that did badly in a pair with nodes that did
well, so that the one at fault is found. Nobody is called slow for one reading: whoever seems to be
is measured once more. A job whose nodes are all well passes in two stages, a single node in one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dlrover_cli.preflight.judging import (
    BETWEEN,
    Done,
    Finding,
    Group,
    Kind,
    Stage,
    Standing,
    faults,
    judge,
    slowness,
)

MOST_PAIRINGS = 3
"""How often the nodes that did badly are paired anew."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user has asked for."""

    level: int = 0
    """0 for no check, 1 for a short one, 2 for a longer one."""
    repeats: bool = False
    """Before every start of workers, and not only where a node or the whole job is new."""
    measures: bool = False
    """Tell the bandwidth of an all-reduce of the whole job too."""
    excludes: bool = False
    """Go on without nodes that are slow."""
    seconds: float = 120.0
    """What a stage may take."""


def next_stage(nodes: int, history: Sequence[Done], *, measures: bool) -> Stage | None:
    """What comes next; None if everything that can be known is known."""
    if not history:
        return Stage(Kind.ALONE, tuple((node,) for node in range(nodes)))
    left = [node for node in range(nodes) if node not in faults(nodes, history)]
    alone = [done for done in history if done.stage.kind is Kind.ALONE]
    together = [done for done in history if done.stage.kind is Kind.TOGETHER]
    if len(alone) == 1 and not together:
        slow = sorted(slowness(left, alone))
        if slow:
            return Stage(Kind.ALONE, tuple((node,) for node in slow))
    if not together and len(left) > 1:
        return Stage(Kind.TOGETHER, pairs(left))
    if together and len(together) <= MOST_PAIRINGS:
        groups = pairs_of_suspects(nodes, history)
        if groups:
            return Stage(Kind.TOGETHER, groups)
    if not measures or any(done.stage.kind is Kind.BANDWIDTH for done in history):
        return None
    findings = judge(nodes, history)
    if all(finding.is_fit for finding in findings):
        return Stage(Kind.BANDWIDTH, (tuple(range(nodes)),))
    return None


def pairs(nodes: Sequence[int]) -> tuple[Group, ...]:
    """Neighbours; of an odd number, the last three make one group."""
    groups = [tuple(nodes[start : start + 2]) for start in range(0, len(nodes), 2)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups[-2:] = [groups[-2] + groups[-1]]
    return tuple(groups)


def pairs_of_suspects(nodes: int, history: Sequence[Done]) -> tuple[Group, ...]:
    """Groups in which it can show who of those that did badly together is at fault."""
    failed = faults(nodes, history)
    slow = slowness([node for node in range(nodes) if node not in failed], history)
    suspects = [
        node
        for node in range(nodes)
        if _is_open(failed.get(node)) or _may_be_anothers_fault(slow.get(node), history)
    ]
    sound = [node for node in range(nodes) if node not in failed and node not in slow]
    tried = {frozenset(group) for done in history for group in done.stage.groups}
    if not sound and len(suspects) < 3:
        return ()  # two that failed would fail again
    groups: list[Group] = []
    free = [*sound, *(suspects if not sound else ())]
    for suspect in suspects:
        if not sound and suspect not in free:
            continue
        partner = next(
            (n for n in free if n != suspect and frozenset((suspect, n)) not in tried), None
        )
        if partner is not None:
            free = [node for node in free if node not in (suspect, partner)]
            groups.append((min(suspect, partner), max(suspect, partner)))
    return tuple(groups)


def _is_open(finding: Finding | None) -> bool:
    return finding is not None and finding.standing is Standing.UNCLEAR


def _may_be_anothers_fault(finding: Finding | None, history: Sequence[Done]) -> bool:
    """Whether a node seems slow because of whom it was paired with, the only time that it was."""
    if finding is None or not finding.why.startswith(BETWEEN):
        return False
    together = [done.stage for done in history if done.stage.kind is Kind.TOGETHER]
    return sum(stage.group_of(finding.node) is not None for stage in together) == 1
