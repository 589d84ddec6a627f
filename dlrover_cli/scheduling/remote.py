"""An extender as a decider of the session: each hook is a question to its service.

`ignorable` has one meaning for all of them. True: an error of the service is as if the hook were
not configured, and is told to `on_trouble`. False: the decision fails, and says which service is
the cause. What a service means is never ignored.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from dlrover_cli.contracts.extender import (
    EXCHANGES,
    NOTIFICATIONS,
    Answer,
    EventAnswer,
    JobEnqueueableAnswer,
    JobReadyAnswer,
    PredicateAnswer,
    PrioritizeAnswer,
    QueueOverusedAnswer,
    Verb,
    VictimsAnswer,
)
from dlrover_cli.scheduling import answers
from dlrover_cli.scheduling.event_ids import EventIds
from dlrover_cli.scheduling.model import JobView, NodeView, QueueView, SessionView, TaskView
from dlrover_cli.scheduling.plugin import HookFailed, Refusal, Victims, Vote
from dlrover_cli.scheduling.settings import ExtenderSettings
from dlrover_cli.scheduling.wire import Writer
from dlrover_cli.services.bodies import BadBody
from dlrover_cli.services.client import ServiceClient, ServiceOptions
from dlrover_cli.services.faults import BadAnswer, ServiceFailed, ServiceNotAsked

_Answer = TypeVar("_Answer", bound=Answer)
_Decision = TypeVar("_Decision")


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error of a service, for the record and for a person."""

    extender: str
    verb: Verb
    what: str
    is_ignored: bool

    def __str__(self) -> str:
        what_follows = "ignored" if self.is_ignored else "the decision fails"
        return f"extender {self.what}; {what_follows}"


class RemoteExtender:
    """Asks one service. `predicate` may be called from several threads, all else from one."""

    def __init__(
        self,
        settings: ExtenderSettings,
        on_trouble: Callable[[Trouble], None] = lambda trouble: None,
    ) -> None:
        """Raises UsageError if a file that the settings name cannot be used."""
        self.settings = settings
        self._on_trouble = on_trouble
        self._client = ServiceClient(
            ServiceOptions(
                settings.address, settings.http_timeout, settings.token_file, settings.ca_file
            )
        )
        self._writer = Writer()
        self._event_ids = EventIds()
        self._lock = threading.Lock()
        self._left_alone: set[Verb] = set()
        """Verbs of which it was told in this session that the service is not asked."""

    @property
    def name(self) -> str:
        return self.settings.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def session_open(self, view: SessionView) -> None:
        self._event_ids.session = view.uid
        self._writer.forget()
        self._left_alone.clear()
        self._notify(Verb.SESSION_OPEN, lambda: self._writer.session_open(view))

    def session_close(self, view: SessionView) -> None:
        self._notify(Verb.SESSION_CLOSE, lambda: self._writer.session_close(view))
        self._writer.forget()

    def job_enqueueable(self, job: JobView) -> Vote:
        return self._ask(
            Verb.JOB_ENQUEUEABLE,
            JobEnqueueableAnswer,
            lambda: self._writer.job(job),
            answers.vote,
            Vote.ABSTAIN,
        )

    def job_enqueued(self, job: JobView) -> None:
        self._notify(Verb.JOB_ENQUEUED, lambda: self._writer.job(job))

    def queue_overused(self, queue: QueueView) -> bool:
        return self._ask(
            Verb.QUEUE_OVERUSED,
            QueueOverusedAnswer,
            lambda: self._writer.queue(queue),
            lambda answer: answer.overused,
            False,
        )

    def predicate(self, task: TaskView, node: NodeView) -> Refusal | None:
        if not self.settings.manages(task.resources):
            return None
        return self._ask(
            Verb.PREDICATE,
            PredicateAnswer,
            lambda: self._writer.predicate(task, node),
            lambda answer: answers.refusal(answer, self.name),
            None,
        )

    def prioritize(self, task: TaskView, nodes: Sequence[NodeView]) -> Mapping[str, float]:
        if not self.settings.manages(task.resources):
            return {}
        nothing: Mapping[str, float] = {}
        return self._ask(
            Verb.PRIORITIZE,
            PrioritizeAnswer,
            lambda: self._writer.prioritize(task, nodes),
            lambda answer: answers.scores(answer, nodes),
            nothing,
        )

    def preemptable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        return self._victims(Verb.PREEMPTABLE, evictor, evictees)

    def reclaimable(self, evictor: TaskView, evictees: Sequence[TaskView]) -> Victims | None:
        return self._victims(Verb.RECLAIMABLE, evictor, evictees)

    def job_ready(self, job: JobView) -> bool:
        return self._ask(
            Verb.JOB_READY,
            JobReadyAnswer,
            lambda: self._writer.job(job),
            lambda answer: answer.status,
            True,
        )

    def allocated(self, task: TaskView) -> Refusal | None:
        return self._tell(Verb.ALLOCATE, task)

    def deallocated(self, task: TaskView) -> None:
        objection = self._tell(Verb.DEALLOCATE, task)
        if objection is not None:  # it was told, and cannot change it; but a person should hear it
            what = f"{self._url(Verb.DEALLOCATE)} objects: {objection.reason}"
            self._on_trouble(Trouble(self.name, Verb.DEALLOCATE, what, is_ignored=True))

    def _victims(
        self, verb: Verb, evictor: TaskView, evictees: Sequence[TaskView]
    ) -> Victims | None:
        if not self.settings.manages(evictor.resources):
            return None
        return self._ask(
            verb,
            VictimsAnswer,
            lambda: self._writer.victims(evictor, evictees),
            lambda answer: answers.victims(answer, evictees),
            None,
        )

    def _tell(self, verb: Verb, task: TaskView) -> Refusal | None:
        """Send an event. What it answers is its objection."""
        if not self.settings.manages(task.resources):
            return None
        event_id = self._event_ids.of(verb, task)

        def judge(answer: EventAnswer) -> Refusal | None:
            self._event_ids.take(verb, task)
            return answers.objection(answer, self.name)

        return self._ask(
            verb,
            EventAnswer,
            lambda: self._writer.event(task, event_id),
            judge,
            None,
            headers={"Idempotency-Key": event_id},
        )

    def _notify(self, verb: Verb, body: Callable[[], bytes]) -> None:
        assert verb in NOTIFICATIONS
        self._ask(verb, EXCHANGES[verb].answer, body, lambda _: None, None)

    def _ask(
        self,
        verb: Verb,
        kind: type[_Answer],
        body: Callable[[], bytes],
        judge: Callable[[_Answer], _Decision],
        otherwise: _Decision,
        headers: Mapping[str, str] | None = None,
    ) -> _Decision:
        """The decision, or ``otherwise`` if there is no such hook. Raises HookFailed."""
        path = self.settings.verbs.get(verb)
        if path is None:
            return otherwise
        try:
            content = self._client.post(path, body(), headers)
            if verb in NOTIFICATIONS:
                return otherwise
            return judge(answers.read_answer(kind, content))
        except BadBody as error:
            trouble: ServiceFailed = BadAnswer(self._url(verb), str(error))
        except answers.ObjectionRaised as objection:
            raise HookFailed(f"{self.name} objects to {verb}: {objection}") from None
        except ServiceFailed as error:
            trouble = error
        return self._troubled(verb, trouble, otherwise)

    def _url(self, verb: Verb) -> str:
        return f"{self.settings.address}/{self.settings.verbs[verb]}"

    def _troubled(self, verb: Verb, error: ServiceFailed, otherwise: _Decision) -> _Decision:
        ignorable = self.settings.ignorable
        if not self._is_told_already(verb, error):
            self._on_trouble(Trouble(self.name, verb, error.message, ignorable))
        if ignorable:
            return otherwise
        hint = error.hint or "Mend the service, or set extender.ignorable to go on without it."
        raise HookFailed(f"extender {error.message}", hint=hint) from error

    def _is_told_already(self, verb: Verb, error: ServiceFailed) -> bool:
        """That a service is left alone is worth a line, but not one for each node."""
        if not isinstance(error, ServiceNotAsked):
            return False
        with self._lock:
            is_told = verb in self._left_alone
            self._left_alone.add(verb)
        return is_told
