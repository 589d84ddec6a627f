"""The nodes of a Ray cluster that this job can use: alive, large enough, and with all it needs.

Looking at them waits for the cluster; whoever calls is a thread that may.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from dlrover_cli.errors import LaunchError
from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.placing import fits
from dlrover_cli.platforms.ray.remotes import Remotes

_FIRST_LOOK_SECONDS = 60.0
_LONG_ENOUGH_SECONDS = 5.0
"""After this, nodes that have not answered are not waited for if there are enough without them."""
_SETTLE_SECONDS = 5.0
_MISTRUST_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


@dataclass(slots=True)
class _Inspection:
    """A question to a node, and its answer."""

    name: str
    """What people know the node by."""
    question: Any
    problem: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_fine(self) -> bool:
        return self.problem == ""


class NodeBook:
    """What is known about each node. Every method may be called from any thread."""

    def __init__(
        self,
        ray: ModuleType,
        remotes: Remotes,
        demand: Mapping[str, float],
        wanted: Mapping[str, Any],
        say: Callable[[str], None],
    ) -> None:
        """``demand`` is what an agent needs, ``wanted`` what has to be there on a node."""
        self._ray = ray
        self._remotes = remotes
        self._demand = demand
        self._wanted = dict(wanted)
        self._say = say
        self._inspections: dict[str, _Inspection] = {}
        self._mistrusted: dict[str, float] = {}
        self._lock = threading.Lock()

    def first_look(self, least: int) -> tuple[Node, ...]:
        """Wait until all nodes that are there have answered. Raises LaunchError.

        Nodes without what the job needs are left out, as long as enough are left.
        """
        started = time.monotonic()
        while True:
            nodes = self.healthy()
            with self._lock:
                waiting = [each for each in self._inspections.values() if each.problem is None]
            patience = _LONG_ENOUGH_SECONDS if len(nodes) >= least else _FIRST_LOOK_SECONDS
            if not waiting or time.monotonic() - started >= patience:
                break
            time.sleep(_PAUSE_SECONDS)
        problems = self._problems()
        if problems and len(nodes) < least:
            raise LaunchError(
                f"the job cannot run on enough nodes: {'; '.join(problems)}",
                hint="the interpreter, the current directory and the script must be at the same "
                "paths on every node",
            )
        return nodes

    def healthy(self) -> tuple[Node, ...]:
        """The nodes as of now; new ones are asked, and are there once they have answered."""
        alive = [_node_of(row) for row in self._ray.nodes() if row["Alive"]]
        large = [node for node in alive if fits(node, self._demand)]
        with self._lock:
            self._take_answers()
            self._ask({node.id: node for node in large})
            now = time.monotonic()
            trusted = [node for node in large if now >= self._mistrusted.get(node.id, 0.0)]
            return tuple(
                Node(node.id, node.hostname, node.address, node.resources, each.envs)
                for node in trusted
                if (each := self._inspections[node.id]).is_fine
            )

    def settle(self, node: Node, is_over: Callable[[], bool]) -> bool:
        """Whether a node on which something died lives: it answers, or Ray says that it is dead.

        One that does neither for some seconds is not used for a while, whatever Ray says.
        """
        deadline = time.monotonic() + _SETTLE_SECONDS
        question = self._remotes.answer(node.id)
        while not is_over():
            ready, _ = self._ray.wait([question], timeout=_PAUSE_SECONDS)
            if ready and self._answers(question):
                return True
            if node.id not in {row["NodeID"] for row in self._ray.nodes() if row["Alive"]}:
                return False
            if time.monotonic() >= deadline:
                break
            if ready:
                time.sleep(_PAUSE_SECONDS)
                question = self._remotes.answer(node.id)
        with self._lock:
            self._mistrusted[node.id] = time.monotonic() + _MISTRUST_SECONDS
        return False

    def _answers(self, question: Any) -> bool:
        try:
            return bool(self._ray.get(question))
        except self._ray.exceptions.RayError:
            return False

    def _ask(self, nodes: Mapping[str, Node]) -> None:
        for gone in self._inspections.keys() - nodes.keys():
            del self._inspections[gone]
        for new in nodes.keys() - self._inspections.keys():
            name = f"{nodes[new].hostname} ({new[:12]})"
            question = self._remotes.look_around(new, self._wanted)
            self._inspections[new] = _Inspection(name, question)

    def _take_answers(self) -> None:
        for node, inspection in list(self._inspections.items()):
            if inspection.problem is not None:
                continue
            ready, _ = self._ray.wait([inspection.question], timeout=0)
            if not ready:
                continue
            try:
                found = self._ray.get(inspection.question)
            except self._ray.exceptions.RayError:
                del self._inspections[node]  # it is asked again if it is still there
                continue
            inspection.problem, inspection.envs = found["problem"], found["envs"]
            if inspection.problem:
                self._say(f"the Ray node {inspection.name} is not used: {inspection.problem}")

    def _problems(self) -> list[str]:
        with self._lock:
            return [
                f"node {each.name} did not answer"
                if each.problem is None
                else f"on node {each.name} {each.problem}"
                for each in self._inspections.values()
                if not each.is_fine
            ]


def _node_of(row: Mapping[str, Any]) -> Node:
    return Node(
        row["NodeID"],
        row["NodeManagerHostname"],
        row["NodeManagerAddress"],
        {name: float(amount) for name, amount in row.get("Resources", {}).items()},
    )
