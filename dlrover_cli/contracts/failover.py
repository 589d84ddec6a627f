"""A failure as a failover extension sees it, and the four answers that it can give.

An extension written for DLRover runs with these classes unmodified: same names, same constructor
order, same mutability. What we know beyond DLRover's four fields comes after them, by keyword.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, StrEnum
from typing import Any, Self

from dlrover_cli.contracts.documents import Document, plain

SCHEMA_VERSION = 1


class FailoverStrategy(Enum):
    """What the job does about a failure."""

    NORMAL_FAILOVER = "NORMAL_FAILOVER"
    NODE_FAILOVER = "NODE_FAILOVER"
    GLOBAL_FAILOVER = "GLOBAL_FAILOVER"
    ABORTION_FAILOVER = "ABORTION_FAILOVER"


class FailureKind(Enum):
    """How the root cause showed itself."""

    EXCEPTION = "exception"
    EXIT = "exit"
    SIGNAL = "signal"
    HANG = "hang"
    START_UP = "start-up"


class WorkerPhase(StrEnum):
    """How far a worker had come; equal to its value, so that a plain string compares well."""

    START_UP = "start-up"
    """Before the process group stood, and before any optimizer step or heartbeat."""
    TRAINING = "training"
    UNKNOWN = "unknown"
    """Nothing of ours ran in it, as in a program that is not Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """What is known of one worker that failed."""

    global_rank: int
    local_rank: int
    pid: int = 0
    """0 where the worker never became a process."""
    exit_code: int | None = None
    signal: int | None = None
    exception_type: str | None = None
    message: str = ""
    traceback: str = ""
    time_ns: int = 0
    root_cause: bool = False
    """False for a worker that went down only because another one did."""
    phase: WorkerPhase = WorkerPhase.UNKNOWN
    oom: bool = False
    """Killed by the kernel because memory ran out."""

    def to_json(self) -> dict[str, Any]:
        return {
            "global_rank": self.global_rank,
            "local_rank": self.local_rank,
            "pid": self.pid,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "exception_type": self.exception_type,
            "message": self.message,
            "traceback": self.traceback,
            "time_ns": self.time_ns,
            "root_cause": self.root_cause,
            "phase": self.phase.value,
            "oom": self.oom,
        }

    @classmethod
    def from_json(cls, data: object, *, where: str = "worker failure") -> Self:
        document = Document(data, where=where)
        worker = cls(
            global_rank=document.integer("global_rank"),
            local_rank=document.integer("local_rank"),
            pid=document.integer("pid", default=0),
            exit_code=document.optional_integer("exit_code"),
            signal=document.optional_integer("signal"),
            exception_type=document.optional_text("exception_type"),
            message=document.text("message", default=""),
            traceback=document.text("traceback", default=""),
            time_ns=document.integer("time_ns", default=0),
            root_cause=document.flag("root_cause", default=False),
            phase=document.member("phase", WorkerPhase, default=WorkerPhase.UNKNOWN),
            oom=document.flag("oom", default=False),
        )
        document.refuse_unknown_keys()
        return worker


# Neither frozen nor slotted, unlike our other values: extensions written for DLRover may subclass
# these with a plain @dataclass, or set attributes on them, and both must go on working.


@dataclass
class FailureInfo:
    """The fields that every failure has, wherever it was noticed."""

    timestamp: int = field(default_factory=lambda: int(time.time()))
    """Whole seconds since the epoch, taken when the failure happened."""
    log_content: str = ""
    extra_info: dict[str, Any] = field(default_factory=dict)


@dataclass
class AgentFailureInfo(FailureInfo):
    """One failure on one node: DLRover's four fields first, then the facts in structured form."""

    node_rank: int = -1
    _: KW_ONLY
    kind: FailureKind = FailureKind.EXCEPTION
    workers: tuple[WorkerFailure, ...] = ()
    attempt: int = 0
    restart_count: int = 0
    restarts_left: int = 0
    steps: int | None = None
    """Optimizer steps done in this attempt; None where nobody counted."""
    run_id: str = ""
    host: str = ""
    generation: int = 0
    phase: WorkerPhase = WorkerPhase.UNKNOWN
    """How far the root cause's worker had come."""
    stacks: Mapping[str, str] = field(default_factory=dict)
    """After a hang, the Python stacks of the workers by global rank; after a time-out of a
    collective, those of the workers that had not failed."""

    @property
    def root_cause(self) -> WorkerFailure | None:
        """The worker that failed first, as opposed to those it took along."""
        return next((worker for worker in self.workers if worker.root_cause), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "timestamp": self.timestamp,
            "log_content": self.log_content,
            "extra_info": plain(self.extra_info),
            "node_rank": self.node_rank,
            "kind": self.kind.value,
            "workers": [worker.to_json() for worker in self.workers],
            "attempt": self.attempt,
            "restart_count": self.restart_count,
            "restarts_left": self.restarts_left,
            "steps": self.steps,
            "run_id": self.run_id,
            "host": self.host,
            "generation": self.generation,
            "phase": self.phase.value,
            "stacks": plain(self.stacks),
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read a recorded or hand-written failure; what is left out has its default."""
        document = Document(data, where="failure")
        document.check_schema_version(SCHEMA_VERSION)
        timestamp = document.optional_integer("timestamp")
        info = cls(
            timestamp=int(time.time()) if timestamp is None else timestamp,
            log_content=document.text("log_content", default=""),
            extra_info=dict(document.mapping("extra_info")),
            node_rank=document.integer("node_rank", default=-1),
            kind=document.member("kind", FailureKind, default=FailureKind.EXCEPTION),
            workers=tuple(
                WorkerFailure.from_json(worker, where=f"failure: workers[{index}]")
                for index, worker in enumerate(document.items("workers"))
            ),
            attempt=document.integer("attempt", default=0),
            restart_count=document.integer("restart_count", default=0),
            restarts_left=document.integer("restarts_left", default=0),
            steps=document.optional_integer("steps"),
            run_id=document.text("run_id", default=""),
            host=document.text("host", default=""),
            generation=document.integer("generation", default=0),
            phase=document.member("phase", WorkerPhase, default=WorkerPhase.UNKNOWN),
            stacks={rank: str(text) for rank, text in document.mapping("stacks").items()},
        )
        document.refuse_unknown_keys()
        return info


class DynamicFailoverExtension(ABC):
    """A user's opinion on failures; one object is asked about every failure of a run."""

    @abstractmethod
    def get_user_failover_strategy(self, failure_info: Any) -> FailoverStrategy:
        """Decide about one failure. `super().get_user_failover_strategy(info)` says NORMAL."""
        return FailoverStrategy.NORMAL_FAILOVER


class DynamicAgentFailoverExtension(DynamicFailoverExtension):
    """A failover extension that an elastic agent asks when workers of its node failed."""

    @abstractmethod
    def get_user_failover_strategy(self, failure_info: AgentFailureInfo) -> FailoverStrategy:
        """Decide about one failure. `super().get_user_failover_strategy(info)` says NORMAL."""
        return FailoverStrategy.NORMAL_FAILOVER
