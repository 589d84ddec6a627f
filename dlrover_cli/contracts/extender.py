"""What goes over the wire between a session and an extender: one request and one answer per verb.

These models are the single definition: requests are written with them, answers are judged by them,
services in Python may use them, and the JSON Schema in the documentation is made of them. Answers
are read strictly, since a `true` where a number belongs is a bug and not an opinion.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, FiniteFloat

from dlrover_cli.contracts.extender_objects import Job, Node, Queue, Task, Wire
from dlrover_cli.contracts.extender_verbs import NOTIFICATIONS, TASK_VERBS, Verb

__all__ = [
    "EXCHANGES",
    "NOTIFICATIONS",
    "TASK_VERBS",
    "Acknowledgement",
    "EventAnswer",
    "EventRequest",
    "Exchange",
    "JobEnqueueableAnswer",
    "JobReadyAnswer",
    "JobRequest",
    "OnSessionCloseRequest",
    "OnSessionOpenRequest",
    "PredicateAnswer",
    "PredicateRequest",
    "PrioritizeAnswer",
    "PrioritizeRequest",
    "QueueOverusedAnswer",
    "QueueRequest",
    "Verb",
    "Victim",
    "VictimsAnswer",
    "VictimsRequest",
    "json_schemas",
]


class OnSessionOpenRequest(Wire):
    """All that a session begins with."""

    session: str = Field(default="", description="The session's id; not in Volcano.")
    jobs: dict[str, Job] = Field(default_factory=dict, alias="Jobs")
    nodes: dict[str, Node] = Field(default_factory=dict, alias="Nodes")
    queues: dict[str, Queue] = Field(default_factory=dict, alias="Queues")
    namespace_info: dict[str, Any] = Field(default_factory=dict, alias="NamespaceInfo")
    revocable_nodes: dict[str, Node] = Field(default_factory=dict, alias="RevocableNodes")
    node_list: list[str] = Field(default_factory=list, alias="NodeList")


class OnSessionCloseRequest(Wire):
    """The session is over."""

    session: str = Field(default="", description="The session's id; not in Volcano.")


class JobRequest(Wire):
    """About one job."""

    job: Job


class QueueRequest(Wire):
    """About one queue."""

    queue: Queue


class PredicateRequest(Wire):
    """May this task run on this node?"""

    task: Task
    node: Node


class PrioritizeRequest(Wire):
    """How good is each of these nodes for this task?"""

    task: Task
    nodes: list[Node]


class VictimsRequest(Wire):
    """Which of the evictees may be ended for the evictor?"""

    evictor: Task
    evictees: list[Task]


class EventRequest(Wire):
    """A task has got its node, or its node is free again."""

    task: Task
    event_id: str = Field(
        default="",
        alias="eventId",
        description="The same when the event is sent again; not in Volcano.",
    )


class Answer(Wire):
    """Read strictly; what is absent has Go's zero value."""

    model_config = ConfigDict(strict=True)


Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What fits Go's int."""


class Acknowledgement(Answer):
    """Whatever a service says to a notification; nobody reads it."""


class PredicateAnswer(Answer):
    """A message or a code other than 0 refuses the node."""

    error_message: str = Field(default="", alias="errorMessage")
    status: str = Field(default="", description="What Volcano's code calls the error message.")
    code: Whole = Field(
        default=0,
        description="0 yes; 1 error; 2 no, but victims may help; 3 no, for good; 4 wait; 5 skip",
    )

    @property
    def message(self) -> str:
        return self.error_message or self.status


class PrioritizeAnswer(Answer):
    """Finite scores of nodes that were asked about; a node that is left out has 0."""

    node_score: dict[str, FiniteFloat] | None = Field(default=None, alias="nodeScore")
    error_message: str = Field(default="", alias="errorMessage")


class Victim(Answer):
    """One of the evictees that were offered, by its UID or else by namespace and name."""

    uid: str = Field(default="", alias="UID")
    namespace: str = ""
    name: str = ""


class VictimsAnswer(Answer):
    """0 abstains; any other status means the victims, and none of them is a veto."""

    status: Whole = 0
    victims: list[Victim] = Field(default_factory=list, max_length=10_000)


class JobEnqueueableAnswer(Answer):
    """Below 0 rejects, 0 abstains, above permits."""

    status: Whole = 0


class QueueOverusedAnswer(Answer):
    """Whether the queue has more than its share."""

    overused: bool = False


class JobReadyAnswer(Answer):
    """Whether the job may start with the nodes it has."""

    status: bool = False


class EventAnswer(Answer):
    """A message refuses an allocation."""

    error_message: str = Field(default="", alias="errorMessage")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is sent for a verb and what comes back."""

    request: type[Wire]
    answer: type[Answer]


EXCHANGES: Mapping[Verb, Exchange] = {
    Verb.SESSION_OPEN: Exchange(OnSessionOpenRequest, Acknowledgement),
    Verb.SESSION_CLOSE: Exchange(OnSessionCloseRequest, Acknowledgement),
    Verb.JOB_ENQUEUEABLE: Exchange(JobRequest, JobEnqueueableAnswer),
    Verb.JOB_ENQUEUED: Exchange(JobRequest, Acknowledgement),
    Verb.QUEUE_OVERUSED: Exchange(QueueRequest, QueueOverusedAnswer),
    Verb.PREDICATE: Exchange(PredicateRequest, PredicateAnswer),
    Verb.PRIORITIZE: Exchange(PrioritizeRequest, PrioritizeAnswer),
    Verb.PREEMPTABLE: Exchange(VictimsRequest, VictimsAnswer),
    Verb.RECLAIMABLE: Exchange(VictimsRequest, VictimsAnswer),
    Verb.JOB_READY: Exchange(JobRequest, JobReadyAnswer),
    Verb.ALLOCATE: Exchange(EventRequest, EventAnswer),
    Verb.DEALLOCATE: Exchange(EventRequest, EventAnswer),
}


def json_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of the request and of the answer of every verb."""
    return {
        verb.value: {
            "request": exchange.request.model_json_schema(mode="serialization"),
            "answer": exchange.answer.model_json_schema(),
        }
        for verb, exchange in EXCHANGES.items()
    }
