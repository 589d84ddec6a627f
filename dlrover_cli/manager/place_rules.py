"""What the manager itself has to say in the sessions that place its agents."""

from collections.abc import Iterable, Mapping, Sequence

from dlrover_cli.scheduling.model import NodeView, TaskView
from dlrover_cli.scheduling.plugin import Indifferent, Refusal


class OnePerNode(Indifferent):
    """A node has one agent of the job."""

    def __init__(self, taken: Iterable[str | None]) -> None:
        self._taken = set(taken)

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        if node.name not in self._taken:
            return None
        return Refusal(f"{node.name} has an agent of the job", lacks_room=True)

    def allocated(self, task: TaskView) -> Refusal | None:
        self._taken.add(task.node)
        return None

    def deallocated(self, task: TaskView) -> None:
        self._taken.discard(task.node)


class Last(Indifferent):
    """Nodes that are used only if there is no other."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        return {node.name: -1e9 for node in nodes if node.name in self._names}


class Stay(Indifferent):
    """Nodes where agents wait for their place: they stay, if nobody refuses."""

    def __init__(self, names: Iterable[str | None]) -> None:
        self._names = frozenset(names)

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        return {node.name: 1e12 for node in nodes if node.name in self._names}
