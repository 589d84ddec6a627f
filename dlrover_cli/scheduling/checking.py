"""Every verb of an extender tried on a sample, and how its answer is understood.

The sample is a session like any other, in its order: what is allocated is deallocated again. Its
names begin with `dlrover-check`, so that a service can tell it from real ones.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.scheduling.model import (
    JobView,
    NodeView,
    QueueView,
    SessionView,
    TaskStatus,
    TaskView,
    add,
)
from dlrover_cli.scheduling.plugin import HookFailed, Refusal, Victims, Vote
from dlrover_cli.scheduling.remote import RemoteExtender, Trouble
from dlrover_cli.scheduling.settings import ExtenderSettings

NAME = "dlrover-check"
_GIB = 2.0**30


@dataclass(frozen=True, slots=True)
class CheckedVerb:
    """What became of one question."""

    verb: Verb
    path: str
    understood: str
    """What the answer means, in words; empty if there was none that could be used."""
    error: str
    seconds: float

    @property
    def is_well(self) -> bool:
        return not self.error


def check_extender(settings: ExtenderSettings) -> tuple[CheckedVerb, ...]:
    """Ask everything that is configured. Raises UsageError if a file cannot be used."""
    sample = _Sample(settings)
    return tuple(
        _checked(settings, verb, ask)
        for verb, ask in sample.questions().items()
        if verb in settings.verbs
    )


def _checked(
    settings: ExtenderSettings, verb: Verb, ask: Callable[[RemoteExtender], str]
) -> CheckedVerb:
    # Errors are to be seen here, and one verb that fails must not keep the next from being asked.
    started = time.monotonic()
    understood = error = ""
    troubles: list[Trouble] = []
    with RemoteExtender(replace(settings, ignorable=False), troubles.append) as extender:
        try:
            understood = "; ".join((ask(extender), *(each.what for each in troubles)))
        except HookFailed as failed:
            if failed.__cause__ is None:  # it has answered, and means it
                understood = failed.message
            else:
                error = failed.message
    return CheckedVerb(verb, settings.verbs[verb], understood, error, time.monotonic() - started)


class _Sample:
    """A job of one task, two nodes, a queue, and a task that might be ended."""

    def __init__(self, settings: ExtenderSettings) -> None:
        uid = f"{NAME}-{uuid4().hex[:8]}"
        managed = dict.fromkeys(settings.managed_resources, 1.0)
        wanted = {"cpu": 1.0, "memory": _GIB, **managed}
        room = {name: 8 * amount for name, amount in wanted.items()}
        self.task = TaskView(NAME, f"{NAME}-0", f"{uid}/0", uid, wanted, priority=1)
        self.running = TaskView(
            NAME,
            f"{NAME}-running-0",
            f"{uid}-running/0",
            f"{uid}-running",
            wanted,
            f"{NAME}-node-2",
            TaskStatus.RUNNING,
        )
        self.nodes = (
            NodeView(f"{NAME}-node-1", room),
            NodeView(f"{NAME}-node-2", room, wanted),
        )
        self.placed = replace(self.task, node=self.nodes[0].name, status=TaskStatus.ALLOCATED)
        self.job = JobView(uid, NAME, NAME, NAME, 1, 1, (self.task,))
        self.queue = QueueView(NAME, capacity=add(room, {"agents": 8.0}), allocated=wanted)
        self.session = SessionView(uid, (self.job,), self.nodes, (self.queue,))

    def questions(self) -> dict[Verb, Callable[[RemoteExtender], str]]:
        """By verb, in the order of a session: asks, and says what the answer means."""
        ready = replace(self.job, tasks=(self.placed,))
        return {
            Verb.SESSION_OPEN: lambda it: _told(it.session_open(self.session)),
            Verb.JOB_ENQUEUEABLE: lambda it: _VOTES[it.job_enqueueable(self.job)],
            Verb.JOB_ENQUEUED: lambda it: _told(it.job_enqueued(self.job)),
            Verb.QUEUE_OVERUSED: lambda it: _overused(it.queue_overused(self.queue)),
            Verb.PREDICATE: lambda it: self._predicate(it),
            Verb.PRIORITIZE: lambda it: _scores(it.prioritize(self.task, self.nodes)),
            Verb.PREEMPTABLE: lambda it: _victims(it.preemptable(self.task, [self.running])),
            Verb.RECLAIMABLE: lambda it: _victims(it.reclaimable(self.task, [self.running])),
            Verb.ALLOCATE: lambda it: _agreed(it.allocated(self.placed)),
            Verb.JOB_READY: lambda it: _ready(it.job_ready(ready)),
            Verb.DEALLOCATE: lambda it: _told(it.deallocated(self.placed)),
            Verb.SESSION_CLOSE: lambda it: _told(it.session_close(self.session)),
        }

    def _predicate(self, extender: RemoteExtender) -> str:
        node = self.nodes[0]
        refusal = extender.predicate(self.task, node)
        if refusal is None:
            return f"{node.name} may be used"
        help_ = "; no victim could change that" if refusal.is_final else "; victims may help"
        return f"{node.name} is refused: {refusal.reason}{help_}"


def _told(_: None) -> str:
    return "was told"


def _overused(is_overused: bool) -> str:
    return "the queue is overused, nothing of it starts" if is_overused else "the queue has room"


def _ready(is_ready: bool) -> str:
    return "the job may start" if is_ready else "the job is not ready"


def _agreed(refusal: Refusal | None) -> str:
    return "agrees" if refusal is None else f"refuses: {refusal.reason}"


def _scores(scores: Mapping[str, float]) -> str:
    best_first: Sequence[tuple[str, float]] = sorted(scores.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {score:g}" for name, score in best_first) or "no scores"


def _victims(victims: Victims | None) -> str:
    if victims is None:
        return "abstains"
    return f"may be ended: {', '.join(sorted(victims.uids))}" if victims.uids else "vetoes"


_VOTES = {
    Vote.PERMIT: "permits the job",
    Vote.ABSTAIN: "abstains",
    Vote.REJECT: "rejects the job",
}
