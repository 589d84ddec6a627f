"""What follows from the findings: who leaves, and whether the job can go on without them. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from dlrover_cli.preflight.judging import Finding, Standing


@dataclass(frozen=True, slots=True)
class Ground:
    """What the nodes stand on."""

    min_nodes: int
    hosts_of_store: Collection[int] = ()
    """The nodes with which the store goes where all of them meet."""
    may_shrink: bool = True
    """Whether the rendezvous can go on without a node."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The same for every node."""

    findings: tuple[Finding, ...]
    leaving: tuple[int, ...] = ()
    kept: dict[int, str] = field(default_factory=dict)
    """The slow nodes that were to be left out and are not, and why."""
    ends: str = ""
    """Why the job cannot go on at all."""

    def to_json(self) -> dict[str, Any]:
        """For the other nodes, who do not ask why a slow one was kept."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "leaving": list(self.leaving),
            "ends": self.ends,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        findings = tuple(Finding.from_json(each) for each in data["findings"])
        return cls(findings, tuple(data["leaving"]), ends=data["ends"])


def settle(findings: Sequence[Finding], ground: Ground, *, excludes: bool) -> Verdict:
    """Whoever is unfit leaves; with ``excludes`` the slow ones too, as far as the job allows."""
    unfit = [finding.node for finding in findings if not finding.is_fit]
    ends = _why_it_ends(unfit, len(findings), ground)
    leaving, kept = list(unfit), {}
    slow = [finding for finding in findings if finding.standing is Standing.SLOW]
    for finding in sorted(slow, key=lambda each: -each.ratio) if excludes and not ends else ():
        reason = _why_kept(finding.node, len(findings) - len(leaving), ground)
        if reason:
            kept[finding.node] = reason
        else:
            leaving.append(finding.node)
    return Verdict(tuple(findings), tuple(sorted(leaving)), kept, ends)


def _why_it_ends(unfit: Sequence[int], nodes: int, ground: Ground) -> str:
    if not unfit or len(unfit) == nodes:
        return ""  # each of them says so for itself
    names = " and ".join(f"node {node}" for node in unfit)
    if not ground.may_shrink:
        return f"this rendezvous cannot go on without {names}"
    if set(unfit) & set(ground.hosts_of_store):
        return f"the store where the nodes meet goes with {names}"
    return ""


def _why_kept(node: int, nodes: int, ground: Ground) -> str:
    if not ground.may_shrink:
        return "this rendezvous cannot go on without it"
    if node in ground.hosts_of_store:
        return "the store where the nodes meet would go with it"
    if nodes <= ground.min_nodes:
        return f"the job needs at least {ground.min_nodes}"
    return ""
