"""The deciders that every session has: room, exclusion, gangs and two ways to choose among nodes.

They answer the same questions as a remote extender, and are asked before it.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Literal

from dlrover_cli.scheduling.model import JobView, NodeView, TaskView
from dlrover_cli.scheduling.plugin import Indifferent, Refusal, SessionPlugin
from dlrover_cli.scheduling.queueing import fits

_MOST = 100.0
"""The score of the best node; extenders of Volcano use the same scale."""

Preference = Literal["packing", "spread"]


def built_ins(
    excluded: Set[str] = frozenset(), preference: Preference = "packing"
) -> tuple[SessionPlugin, ...]:
    """In the order in which they are asked."""
    score: SessionPlugin = Packing() if preference == "packing" else Spread()
    return Excluded(excluded), Fit(), Gang(), score


class Excluded(Indifferent):
    """Nodes that were given up are not used again."""

    def __init__(self, names: Set[str]) -> None:
        self._names = names

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        if node.name not in self._names:
            return None
        return Refusal(f"{node.name} is excluded", is_final=True)


class Fit(Indifferent):
    """A node has to have what the task asks for, and have it free."""

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        if fits(task, node.idle):
            return None
        # What is never there says more than what is not there now.
        for wanted, amount in task.resources.items():
            if not fits(_only(task, wanted), node.allocatable):
                has = node.allocatable.get(wanted, 0.0)
                reason = f"{node.name} has {has:g} {wanted}, and {amount:g} is needed"
                return Refusal(reason, is_final=True)
        wanted = next(name for name in task.resources if not fits(_only(task, name), node.idle))
        amount, has = task.resources[wanted], node.allocatable[wanted]
        reason = f"{node.name} has {node.idle[wanted]:g} of {has:g} {wanted} free"
        return Refusal(f"{reason}, and {amount:g} is needed", lacks_room=True)


class Gang(Indifferent):
    """A job starts when its minimum has nodes."""

    def job_ready(self, job: JobView) -> bool:
        return len(job.placed) >= job.min_available


class Packing(Indifferent):
    """The fuller node is the better one: whole nodes stay free for what needs them."""

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        return {node.name: _MOST * _used_part(node, task) for node in nodes}


class Spread(Indifferent):
    """The emptier node is the better one: what is lost with a node is less."""

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        return {node.name: _MOST * (1 - _used_part(node, task)) for node in nodes}


def _used_part(node: NodeView, task: TaskView) -> float:
    """Of what the task asks for, or of everything if it asks for nothing."""
    names = [name for name in task.resources or node.allocatable if node.allocatable.get(name)]
    parts = [node.used.get(name, 0.0) / node.allocatable[name] for name in names]
    return sum(parts) / len(parts) if parts else 0.0


def _only(task: TaskView, name: str) -> TaskView:
    return TaskView(task.namespace, task.name, task.uid, task.job, {name: task.resources[name]})
