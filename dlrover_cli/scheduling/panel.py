"""All deciders of a session as one: their answers are put together, and a failure is a no.

Built-in deciders answer at once and are asked first; extenders are elsewhere and are asked only
about what is left, about several nodes at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from dlrover_cli.scheduling.model import JobView, NodeView, QueueView, SessionView, TaskView
from dlrover_cli.scheduling.plugin import (
    HookFailed,
    Refusal,
    SessionPlugin,
    Victims,
    Vote,
)

_Subject = TypeVar("_Subject")
_AT_ONCE = 16
"""Volcano asks about so many nodes at the same time, too."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Who may be ended for the sake of another."""

    uids: frozenset[str] = frozenset()
    objection: str = ""
    """Why nobody may."""


class Panel:
    """Belongs to one session and one thread; `close` ends the threads that it asks with."""

    def __init__(
        self,
        built_ins: Sequence[SessionPlugin],
        extenders: Sequence[SessionPlugin] = (),
        on_problem: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._built_ins = tuple(built_ins)
        self._extenders = tuple(extenders)
        self._all = (*self._built_ins, *self._extenders)
        self._on_problem = on_problem
        self._pool: ThreadPoolExecutor | None = None
        self._told: dict[str, list[SessionPlugin]] = {}
        """By the uid of a task, who was told in this session that it has a node."""
        self.unheard: list[TaskView] = []
        """Allocations of this session that were taken back, and not everybody has heard that."""
        self.refused: dict[str, Refusal] = {}
        """By the names of nodes, why a task may not run there: what was said last."""

    def open(self, view: SessionView) -> Refusal | None:
        for plugin in self._all:
            try:
                plugin.session_open(view)
            except HookFailed as error:
                return Refusal(error.message)
        return None

    def close(self, view: SessionView) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for plugin in self._all:
            self._tell(plugin.session_close, view)

    def enqueueable(self, job: JobView) -> Refusal | None:
        for plugin in self._all:
            try:
                if plugin.job_enqueueable(job) is Vote.REJECT:
                    return Refusal(f"{plugin.name} does not let it into queue {job.queue}")
            except HookFailed as error:
                return Refusal(error.message)
        return None

    def enqueued(self, job: JobView) -> None:
        for plugin in self._all:
            self._tell(plugin.job_enqueued, job)

    def overused(self, queue: QueueView) -> Refusal | None:
        for plugin in self._all:
            try:
                if plugin.queue_overused(queue):
                    return Refusal(f"{plugin.name} says that queue {queue.name} is overused")
            except HookFailed as error:
                return Refusal(error.message)
        return None

    def refusals(
        self, task: TaskView, nodes: Sequence[NodeView], *, of_extenders_only: bool = False
    ) -> dict[str, Refusal]:
        """By the names of nodes, why the task may not run there; the others are left."""
        found: dict[str, Refusal] = {}
        if not of_extenders_only:
            for node in nodes:
                refusal = _first_refusal(self._built_ins, task, node)
                if refusal is not None:
                    found[node.name] = refusal
        left = [node for node in nodes if node.name not in found]
        for node, refusal in zip(left, self._asked(task, left), strict=True):
            if refusal is not None:
                found[node.name] = refusal
        self.refused.update(found)
        return found

    def scores(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float] | Refusal:
        """The sum of what each says, or why nobody can choose."""
        total = {node.name: 0.0 for node in nodes}
        for plugin in self._all:
            try:
                given = plugin.prioritize(task, nodes)
            except HookFailed as error:
                return Refusal(error.message)
            for name in total:
                total[name] += given.get(name, 0.0)
        return total

    def preemptable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Permission:
        """Those that all agree may be ended."""
        return self._victims(evictees, lambda plugin, offered: plugin.preemptable(evictor, offered))

    def reclaimable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Permission:
        return self._victims(evictees, lambda plugin, offered: plugin.reclaimable(evictor, offered))

    def ready(self, job: JobView) -> Refusal | None:
        for plugin in self._all:
            try:
                if not plugin.job_ready(job):
                    return Refusal(f"{plugin.name} says that the job is not ready")
            except HookFailed as error:
                return Refusal(error.message)
        return None

    def allocate(self, task: TaskView) -> Refusal | None:
        """Tell all that the task has a node. Whoever was told before a refusal is told of that."""
        told = self._told.setdefault(task.uid, [])
        for plugin in self._all:
            told.append(plugin)
            try:
                refusal = plugin.allocated(task)
            except HookFailed as error:
                refusal = Refusal(error.message)
            if refusal is not None:
                self.deallocate(task)
                return refusal
        return None

    def deallocate(self, task: TaskView) -> None:
        """Take back an allocation of this session: tell those that were told, in reverse."""
        told = reversed(self._told.pop(task.uid, []))
        heard = [self._tell(plugin.deallocated, task) for plugin in told]
        if not all(heard):
            self.unheard.append(task)

    def release(self, task: TaskView) -> bool:
        """Tell all that a task of an earlier session has ended; whether all have heard it."""
        heard = [self._tell(plugin.deallocated, task) for plugin in reversed(self._all)]
        return all(heard)

    def _asked(self, task: TaskView, nodes: Sequence[NodeView]) -> list[Refusal | None]:
        if not self._extenders or not nodes:
            return [None] * len(nodes)
        if len(nodes) == 1:
            return [_first_refusal(self._extenders, task, nodes[0])]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="predicate")
        return list(self._pool.map(lambda node: _first_refusal(self._extenders, task, node), nodes))

    def _victims(
        self,
        evictees: Sequence[TaskView],
        ask: Callable[[SessionPlugin, Sequence[TaskView]], Victims | None],
    ) -> Permission:
        left = frozenset(task.uid for task in evictees)
        for plugin in self._all:
            offered = [task for task in evictees if task.uid in left]
            try:
                answer = ask(plugin, offered)
            except HookFailed as error:
                self._on_problem(error.message)
                return Permission(objection=error.message)
            if answer is not None:
                left &= answer.uids
            if not left:
                return Permission(objection=f"{plugin.name} allows no victim")
        return Permission(left)

    def _tell(self, hook: Callable[[_Subject], object], subject: _Subject) -> bool:
        try:
            hook(subject)
        except HookFailed as error:
            self._on_problem(error.message)
            return False
        return True


def _first_refusal(
    plugins: Sequence[SessionPlugin], task: TaskView, node: NodeView
) -> Refusal | None:
    for plugin in plugins:
        try:
            refusal = plugin.predicate(task, node)
        except HookFailed as error:
            return Refusal(error.message)
        if refusal is not None:
            return refusal
    return None
