"""One scheduling session: who may start, on which nodes, and who has to make room for whom.

    open ─► enqueue ─► the configured actions, in their order ─► close

A job starts as a gang: its minimum gets nodes, everybody is told of each, everybody agrees that it
is ready, or all is taken back in reverse. `close` is told on every way out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from dlrover_cli.scheduling.board import Board
from dlrover_cli.scheduling.evicting import Eviction, Evictions
from dlrover_cli.scheduling.gangs import Gangs
from dlrover_cli.scheduling.model import (
    JobPhase,
    JobView,
    SessionView,
    TaskView,
    charges,
)
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.queueing import (
    by_importance,
    crowds,
    in_turn,
    lacking,
    minimum,
    never_fits,
    next_queue,
    total_of,
)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a session has come to."""

    started: tuple[JobView, ...] = ()
    """Jobs that got nodes, with all of their tasks."""
    enqueued: tuple[str, ...] = ()
    """The uids of the jobs that were let into their queues."""
    waiting: Mapping[str, str] | None = None
    """By the uid of a job, why it waits."""
    evictions: tuple[Eviction, ...] = ()
    unheard: tuple[TaskView, ...] = ()
    """Those whose nodes are free and not everybody has heard it: to be told again."""

    def why(self, uid: str) -> str:
        return (self.waiting or {}).get(uid, "")


def hold_session(
    view: SessionView,
    panel: Panel,
    actions: Sequence[str],
    *,
    released: Sequence[TaskView] = (),
) -> Decisions:
    """Hold a session. ``released`` are tasks that have ended since the last one.

    They are not in the view any more, and everybody is told of them first.
    """
    session = _Session(view, panel)
    try:
        refusal = panel.open(view)
        unheard = tuple([task for task in released if not panel.release(task)])
        if refusal is not None:
            waiting = {job.uid: str(refusal) for job in view.jobs if job.waiting}
            return Decisions(waiting=waiting, unheard=unheard)
        decisions = session.run(actions)
        return replace(decisions, unheard=(*unheard, *panel.unheard))
    finally:
        panel.close(session.board.view(view.uid))


class _Verdict(Enum):
    """What became of a job that was tried."""

    STARTED = auto()
    REFUSED = auto()
    """Not for want of room: it keeps nobody from starting."""
    SHORT_OF_QUEUE = auto()
    SHORT_OF_NODES = auto()


class _Session:
    def __init__(self, view: SessionView, panel: Panel) -> None:
        self.board = Board(view.jobs, view.nodes, view.queues)
        self._panel = panel
        self._gangs = Gangs(self.board, panel)
        self._total = total_of(view.nodes)
        self._why: dict[str, str] = {}
        self._enqueued: list[str] = []
        self._started: list[str] = []
        self._refused: set[str] = set()
        """Those that no room would help."""
        self._ahead: list[JobView] = []
        """Those that wait for room and keep their turn."""
        self._evictions: list[Eviction] = []

    def run(self, actions: Sequence[str]) -> Decisions:
        self._enqueue()
        perform: Mapping[str, Callable[[], None]] = {
            "allocate": self._allocate,
            "backfill": self._backfill,
            "preempt": self._preempt,
            "reclaim": self._reclaim,
        }
        for action in actions:
            perform[action]()
        started = set(self._started)
        return Decisions(
            tuple(self.board.jobs[uid] for uid in self._started),
            tuple(self._enqueued),
            {
                job.uid: self._why.get(job.uid, "it was not its turn yet")
                for job in self.board.jobs.values()
                if minimum(job) and job.uid not in started
            },
            tuple(self._evictions),
        )

    # ---- actions -------------------------------------------------------------------------------

    def _enqueue(self) -> None:
        for job in in_turn(self.board.jobs.values()):
            if job.phase is not JobPhase.PENDING:
                continue
            why = self._why_not_enqueued(job)
            if why is not None:
                self._refuse(job, why)
                continue
            self._panel.enqueued(self.board.set_phase(job, JobPhase.ENQUEUED))
            self._enqueued.append(job.uid)

    def _why_not_enqueued(self, job: JobView) -> str | None:
        queue = self.board.queues.get(job.queue)
        if queue is None:
            known = ", ".join(sorted(self.board.queues)) or "none"
            return f"there is no queue {job.queue!r}; the configuration has: {known}"
        never = never_fits(queue, charges(minimum(job)))
        if never is not None:
            return never
        refusal = self._panel.enqueueable(job)
        return None if refusal is None else str(refusal)

    def _allocate(self) -> None:
        """Each queue in its turn, until a gang waits for nodes: nobody behind it takes them."""
        self._ahead.clear()
        for job in self._turns():
            if self._try(job) is _Verdict.SHORT_OF_NODES:
                self._ahead.append(self.board.jobs[job.uid])
                behind = [each for name in self.board.queues for each in self._line(name)]
                self._let_wait(behind, f"{job.name} is before it and waits for nodes")
                break

    def _turns(self) -> Iterator[JobView]:
        """One job after the other; a queue whose first job is short of capacity is passed by."""
        lines = {name: self._line(name) for name in self.board.queues}
        while lines := {name: line for name, line in lines.items() if line}:
            first = {name: line[0] for name, line in lines.items()}
            queue = next_queue((self.board.queues[name] for name in lines), self._total, first)
            line = lines[queue.name]
            if self._is_overused(queue.name, line):
                del lines[queue.name]
                continue
            job = line.pop(0)
            yield job
            after = self.board.jobs[job.uid]
            if minimum(after) and self._is_short_of_queue(after) and job.uid not in self._refused:
                self._ahead.append(after)
                self._let_wait_behind(after, line)
                del lines[queue.name]

    def _backfill(self) -> None:
        """Those behind, where they keep nobody ahead of them from anything."""
        ahead = {job.uid for job in self._ahead}
        for name in sorted(self.board.queues):
            line = [job for job in self._line(name) if job.uid not in ahead]
            if not line or self._is_overused(name, line):
                continue
            for job in line:
                if self._try(job, is_small=True) is not _Verdict.STARTED:
                    self._ahead.append(job)

    def _preempt(self) -> None:
        phase = Evictions(self.board, self._panel)
        waiting = [job for name in sorted(self.board.queues) for job in self._line(name)]
        self._make_room(phase, phase.preempt, by_importance(waiting))

    def _reclaim(self) -> None:
        phase = Evictions(self.board, self._panel)
        self._make_room(phase, phase.reclaim, self._turns_in(phase))

    def _turns_in(self, phase: Evictions) -> Iterator[JobView]:
        """Each queue in its turn, as if all had what is promised to them: none by more than one."""
        lines = {name: self._line(name) for name in self.board.queues}
        while lines := {name: line for name, line in lines.items() if line}:
            first = {name: line[0] for name, line in lines.items()}
            queue = next_queue((phase.queues[name] for name in lines), self._total, first)
            yield lines[queue.name].pop(0)

    def _make_room(
        self,
        phase: Evictions,
        evict: Callable[[JobView], tuple[Eviction, ...]],
        jobs: Iterable[JobView],
    ) -> None:
        """Whoever waits for room keeps its turn here, too: none behind it ends others for it."""
        stuck: set[str] = set()
        for job in jobs:
            if not minimum(job) or job.queue in stuck:
                continue
            if phase.waits_for_ends(job):
                continue
            evictions = evict(job)
            if evictions:
                self._evictions.extend(evictions)
                names = ", ".join(each.job.name for each in evictions)
                self._why[job.uid] = f"it waits until {names} has made room"
            elif self._gangs.could_ever_fit(job):
                stuck.add(job.queue)
                if objection := phase.take_objection():
                    self._why[job.uid] = "; ".join([*self._told_so_far(job), objection])

    def _told_so_far(self, job: JobView) -> list[str]:
        return [self._why[job.uid]] if job.uid in self._why else []

    # ---- one job -------------------------------------------------------------------------------

    def _try(self, job: JobView, *, is_small: bool = False) -> _Verdict:
        queue = self.board.queues[job.queue]
        why = lacking(queue, charges(minimum(job)))
        if why is not None:
            self._why.setdefault(job.uid, why)
            return _Verdict.SHORT_OF_QUEUE
        ahead = self._ahead if is_small else []
        if any(crowds(job, gang, queue) for gang in ahead):
            return _Verdict.SHORT_OF_QUEUE
        held = len(job.placed)
        refusal = self._gangs.place(job, ahead)
        if refusal is None:
            if len(self.board.set_phase(job, JobPhase.RUNNING).placed) > held:
                self._started.append(job.uid)
            return _Verdict.STARTED
        if is_small:
            return _Verdict.SHORT_OF_NODES
        if not refusal.lacks_room:
            self._refuse(job, str(refusal))
            return _Verdict.REFUSED
        if not self._gangs.could_ever_fit(job):
            self._refuse(job, self._gangs.why_never(job))
            return _Verdict.REFUSED
        self._why[job.uid] = str(refusal)
        return _Verdict.SHORT_OF_NODES

    # ---- the lines -----------------------------------------------------------------------------

    def _line(self, queue: str) -> list[JobView]:
        """Those of the queue that wait for nodes, in their turn."""
        return in_turn(
            job
            for job in self.board.jobs.values()
            if job.queue == queue
            and job.waiting
            and job.phase is not JobPhase.PENDING
            and job.uid not in self._refused
        )

    def _is_overused(self, queue: str, line: Sequence[JobView]) -> bool:
        refusal = self._panel.overused(self.board.queues[queue])
        if refusal is not None:
            self._let_wait(line, str(refusal))
        return refusal is not None

    def _is_short_of_queue(self, job: JobView) -> bool:
        return lacking(self.board.queues[job.queue], charges(minimum(job))) is not None

    def _let_wait_behind(self, first: JobView, line: Sequence[JobView]) -> None:
        for job in line:
            by_age = first.priority < job.priority and not first.is_owed_room
            has_waited = " has waited long and" if by_age else ""
            self._let_wait([job], f"{first.name} of the same queue{has_waited} is before it")

    def _let_wait(self, jobs: Sequence[JobView], why: str) -> None:
        for job in jobs:
            self._why.setdefault(job.uid, why)

    def _refuse(self, job: JobView, why: str) -> None:
        self._refused.add(job.uid)
        self._why[job.uid] = why
