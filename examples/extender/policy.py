"""The decisions of the example: each verb is a method from a typed request to a typed answer."""

from pathlib import Path
from threading import Lock

from dlrover_cli.config.quantities import parse_quantity
from dlrover_cli.contracts.extender import (
    Acknowledgement,
    EventAnswer,
    EventRequest,
    JobEnqueueableAnswer,
    JobReadyAnswer,
    JobRequest,
    OnSessionCloseRequest,
    OnSessionOpenRequest,
    PredicateAnswer,
    PredicateRequest,
    PrioritizeAnswer,
    PrioritizeRequest,
    QueueOverusedAnswer,
    QueueRequest,
    Victim,
    VictimsAnswer,
    VictimsRequest,
)

GPU = "nvidia.com/gpu"
UNRESOLVABLE = 3


class Policy:
    """Asked by several threads at once."""

    def __init__(self, cordoned: Path) -> None:
        self._cordoned = cordoned
        self._lock = Lock()
        self._gpus: float | None = None
        """Of all nodes together; None while no session is open."""
        self._seen: set[str] = set()
        """Ids of events: one that comes again, since its answer was lost, is not a second one."""
        self.holding: dict[str, int] = {}
        """How many tasks are on each node."""

    def open_session(self, request: OnSessionOpenRequest) -> Acknowledgement:
        nodes = request.nodes.values()
        with self._lock:
            self._gpus = sum(node.allocatable.get(GPU, 0) for node in nodes)
        return Acknowledgement()

    def close_session(self, request: OnSessionCloseRequest) -> Acknowledgement:
        with self._lock:
            self._gpus = None
        return Acknowledgement()

    def is_enqueueable(self, request: JobRequest) -> JobEnqueueableAnswer:
        """A job that will never have enough GPUs is not let in; others may decide on the rest."""
        wanted = request.job.total_request.amounts().get(GPU, 0)
        is_hopeless = self._gpus is not None and wanted > self._gpus
        return JobEnqueueableAnswer(status=-1 if is_hopeless else 0)

    def note_enqueued(self, request: JobRequest) -> Acknowledgement:
        return Acknowledgement()

    def is_overused(self, request: QueueRequest) -> QueueOverusedAnswer:
        queue = request.queue
        over = [
            name
            for name, most in queue.capability.items()
            if parse_quantity(queue.allocated.get(name, "0")) > parse_quantity(most)
        ]
        return QueueOverusedAnswer(overused=bool(over))

    def may_run(self, request: PredicateRequest) -> PredicateAnswer:
        reason = self.why_cordoned(request.node.name)
        if reason is None:
            return PredicateAnswer()
        # Volcano's documentation and its code have different names for the message.
        return PredicateAnswer(code=UNRESOLVABLE, errorMessage=reason, status=reason)

    def score(self, request: PrioritizeRequest) -> PrioritizeAnswer:
        free = {node.name: float(node.idle.amounts().get(GPU, 0)) for node in request.nodes}
        return PrioritizeAnswer(nodeScore=free)

    def choose_victims(self, request: VictimsRequest) -> VictimsAnswer:
        """Whoever counts for less; nobody, if they are all as important."""
        less = [task for task in request.evictees if task.priority < request.evictor.priority]
        chosen = [Victim(UID=task.uid, namespace=task.namespace, name=task.name) for task in less]
        return VictimsAnswer(status=1, victims=chosen)

    def is_ready(self, request: JobRequest) -> JobReadyAnswer:
        placed = [task for task in request.job.tasks.values() if task.node_name]
        return JobReadyAnswer(status=len(placed) >= request.job.min_available)

    def allocate(self, request: EventRequest) -> EventAnswer:
        """A node may have been cordoned since it was asked about."""
        reason = self.why_cordoned(request.task.node_name)
        if reason is not None:
            return EventAnswer(errorMessage=reason)
        self._count(request, 1)
        return EventAnswer()

    def deallocate(self, request: EventRequest) -> EventAnswer:
        self._count(request, -1)
        return EventAnswer()

    def why_cordoned(self, node: str) -> str | None:
        """What the file says about a node; read each time, so that a change counts at once."""
        try:
            lines = self._cordoned.read_text().splitlines()
        except FileNotFoundError:
            return None
        for line in lines:
            name, _, reason = line.partition(" ")
            if name == node and not line.startswith("#"):
                return f"{node} is cordoned: {reason.strip() or 'no reason given'}"
        return None

    def _count(self, request: EventRequest, change: int) -> None:
        with self._lock:
            if request.event_id and request.event_id in self._seen:
                return
            self._seen.add(request.event_id)
            node = request.task.node_name
            self.holding[node] = self.holding.get(node, 0) + change
