"""Places the agents of one job by scheduling sessions, in a thread of its own.

One agent per node. The loss of a node is a small session: its place is given back and another one
is looked for; all others stay where they are. When the whole job starts afresh, all places are
given back and looked for again, as if the job came now; an agent stays where it may.
"""

import queue
import secrets
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlrover_cli.manager.cluster import Node, Post
from dlrover_cli.manager.place_rules import Last, OnePerNode, Stay
from dlrover_cli.manager.placer import Placed, Question
from dlrover_cli.manager.placing import Demand
from dlrover_cli.scheduling.builtins import built_ins
from dlrover_cli.scheduling.extenders import opened_extenders
from dlrover_cli.scheduling.kept_places import KeptPlaces, PlaceKeeper
from dlrover_cli.scheduling.model import (
    JobPhase,
    JobView,
    NodeView,
    QueueView,
    Resources,
    SessionView,
    TaskStatus,
    TaskView,
    charges,
)
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.session import Decisions, hold_session
from dlrover_cli.scheduling.settings import QueueSettings, SchedulingConfig

NAMESPACE = "default"
QUEUE = "default"


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """The job whose agents are placed."""

    run_id: str
    name: str
    demand: Demand
    resource_names: Mapping[str, str] = field(default_factory=dict)
    """What services call the engine's resources, where that is something else."""


class SessionPlacer:
    """`ask`, `ended` and `close` belong to the manager's thread; sessions are held in another."""

    def __init__(
        self,
        config: SchedulingConfig,
        job: PlacedJob,
        say: Callable[[str], None],
        state: Path,
    ) -> None:
        """In the ``state`` directory others find its places, if the manager is killed.

        Raises UsageError if a service's settings cannot be used.
        """
        self._kept = KeptPlaces(state, config.extenders, say)
        self._config = config
        self._job = job
        self._say = say
        self._work: queue.SimpleQueue[tuple[Question, Post] | str | None] = queue.SimpleQueue()
        self._held: dict[str, TaskView] = {}
        self._owed: list[TaskView] = []
        """Tasks of whose end not everybody has heard."""
        self._names: dict[str, str] = {}
        self._number = 0
        self._is_enqueued = False
        self._opened = ExitStack()
        self._extenders = self._opened.enter_context(opened_extenders(config.extenders, say))
        self._thread = threading.Thread(target=self._serve, name="placement", daemon=True)
        self._thread.start()

    def ask(self, question: Question, post: Post) -> None:
        self._work.put((question, post))

    def ended(self, task: str) -> None:
        self._work.put(task)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()
        self._opened.close()

    # ---- in the thread -------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            asked, ended, is_over = self._next()
            released = [*self._owed, *self._taken_back(list(self._held) if is_over else ended)]
            if asked is not None and not is_over:
                question, post = asked
                again = self._taken_back(sorted(question.again))
                post(self._answer(question, [*released, *again], again))
            elif released:
                self._answer(Question(()), released)
            if is_over:
                return

    def _next(self) -> tuple[tuple[Question, Post] | None, list[str], bool]:
        """All that there is to do by now; the manager has one question at a time."""
        asked: tuple[Question, Post] | None = None
        ended: list[str] = []
        item = self._work.get()
        while item is not None:
            if isinstance(item, str):
                ended.append(item)
            else:
                asked = item
            if self._work.empty():
                return asked, ended, False
            item = self._work.get()
        return asked, ended, True

    def _taken_back(self, tasks: Sequence[str]) -> list[TaskView]:
        return [self._held.pop(name) for name in tasks if name in self._held]

    def _answer(
        self, question: Question, released: Sequence[TaskView], again: Sequence[TaskView] = ()
    ) -> Placed:
        try:
            if again and not self._held:
                self._is_enqueued = False  # a full session: the job comes anew
            placed = self._hold(question, released, again)
            return replace(placed, again=question.again)
        except Exception as error:  # noqa: BLE001 - the thread's boundary: an answer has to come
            traceback.print_exc()
            reason = f"the scheduling session failed: {error!r}"
            return Placed(reason=reason, again=question.again)

    def _hold(
        self, question: Question, released: Sequence[TaskView], again: Sequence[TaskView]
    ) -> Placed:
        """With a question about no nodes, places are only given back."""
        self._names = names_of(question.nodes, self._names)
        excluded, doubtful = (
            frozenset(self._names[each] for each in ids if each in self._names)
            for ids in (question.excluded, question.doubtful)
        )
        mine = [
            PlaceKeeper(self._kept),
            OnePerNode(task.node for task in self._held.values()),
            Last(doubtful),
            Stay(task.node for task in again),
        ]
        panel = Panel([*mine, *built_ins(excluded)], self._extenders, self._say)
        view = self._view(question.nodes)
        released = [*self._kept.lost(), *released]
        decisions = hold_session(view, panel, self._config.actions, released=released)
        self._kept.note_session(released, decisions.unheard)
        self._owed = [task for task in decisions.unheard if task.job == self._job.run_id]
        ids = {name: node for node, name in self._names.items()}
        refused = {ids[name]: str(refusal) for name, refusal in panel.refused.items()}
        return replace(self._keep(decisions, ids), refused=refused)

    def _keep(self, decisions: Decisions, ids: Mapping[str, str]) -> Placed:
        self._is_enqueued |= bool(decisions.enqueued)
        if not decisions.started:
            return Placed(reason=decisions.why(self._job.run_id))
        placed = [task for task in decisions.started[0].placed if task.uid not in self._held]
        for task in placed:
            self._held[task.uid] = replace(task, status=TaskStatus.RUNNING)
        return Placed({task.uid: ids[task.node] for task in placed if task.node is not None})

    def _view(self, nodes: Sequence[Node]) -> SessionView:
        held = list(self._held.values())
        return SessionView(
            secrets.token_hex(4),
            (self._view_of_job(held),) if nodes else (),
            tuple(self._view_of_node(node, self._names[node.id], held) for node in nodes),
            (self._view_of_queue(held),),
        )

    def _view_of_job(self, held: Sequence[TaskView]) -> JobView:
        """Once it runs, it takes each node that it can have."""
        demand = self._job.demand
        least = len(held) + 1 if held else demand.min_nodes
        waiting = [self._new_task() for _ in range(max(0, demand.max_nodes - len(held)))]
        phase = JobPhase.ENQUEUED if self._is_enqueued else JobPhase.PENDING
        return JobView(
            self._job.run_id,
            self._job.name,
            NAMESPACE,
            QUEUE,
            min_available=min(least, demand.max_nodes),
            tasks=(*held, *waiting),
            phase=JobPhase.RUNNING if held else phase,
        )

    def _new_task(self) -> TaskView:
        name = f"{self._job.name}-{self._number}"
        uid = f"{self._job.run_id}-{self._number}"
        self._number += 1
        return TaskView(
            NAMESPACE, name, uid, self._job.run_id, self._named(self._job.demand.resources)
        )

    def _view_of_node(self, node: Node, name: str, held: Iterable[TaskView]) -> NodeView:
        used = charges(task for task in held if task.node == name)
        used.pop("agents", None)
        return NodeView(name, self._named(node.resources), used, dict(node.envs))

    def _view_of_queue(self, held: Iterable[TaskView]) -> QueueView:
        queue = self._config.queues.get(QUEUE, QueueSettings())
        return QueueView(QUEUE, queue.weight, queue.capacity, queue.reclaimable, charges(held))

    def _named(self, resources: Resources) -> Resources:
        names = self._job.resource_names
        return {names.get(name, name): amount for name, amount in resources.items()}


def names_of(nodes: Sequence[Node], before: Mapping[str, str]) -> dict[str, str]:
    """What services call each node, by its id: its host's name, if only one has that.

    A node keeps the name that it had ``before``.
    """
    hosts = Counter(node.hostname for node in nodes)
    names = dict(before)
    for node in nodes:
        is_one = hosts[node.hostname] == 1 and node.hostname not in names.values()
        names.setdefault(node.id, node.hostname if node.hostname and is_one else node.id)
    return names
