"""Events and samples as an agent records them, at times that the test chooses."""

from typing import Any

from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.telemetry.events import Event
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState

RUN_ID = "20260101-120000-abcdef"


class Journal:
    """Makes events; the time is in seconds since the run began."""

    def __init__(self) -> None:
        self.seq = 0
        self.node_rank: int | None = None
        self.attempt: int | None = None

    def event(self, time: float, kind: str, **data: Any) -> Event:
        self.seq += 1
        return {
            "schema_version": 1,
            "seq": self.seq,
            "time": time,
            "run_id": RUN_ID,
            "node_rank": self.node_rank,
            "attempt": self.attempt,
            "kind": kind,
            "data": data,
        }

    def started(self, time: float, attempt: int, ranks: range = range(2)) -> list[Event]:
        """A rendezvous of half a second, and workers that start at once."""
        self.node_rank, self.attempt = 0, attempt
        workers = [{"global_rank": rank, "local_rank": rank, "pid": 100 + rank} for rank in ranks]
        return [
            self.event(time, "rendezvous_completed", nodes=1, world_size=len(ranks), seconds=0.5),
            self.event(
                time, "workers_started", restart_count=attempt, generation=0, workers=workers
            ),
        ]

    def exited(self, time: float, rank: int, status: int = 0) -> Event:
        return self.event(time, "worker_exited", global_rank=rank, local_rank=rank, status=status)

    def failed(self, time: float, action: str = "restart_workers") -> list[Event]:
        """Rank 1 raises; what is decided takes no time."""
        return [
            self.exited(time, 1, 1),
            self.event(
                time,
                "failure",
                number=1,
                failure_kind="exception",
                root_rank=1,
                how="exited with code 1 (ValueError: no labels)",
                ranks=[1],
            ),
            self.event(time, "decision", action=action, trigger="exception", is_first=True),
            self.event(time, "workers_stopping", signal="SIGTERM", local_ranks=[0]),
            self.exited(time, 0, -9),
        ]

    def life(self) -> list[Event]:
        """1 s until the workers run, 5 s of work, 2 s to recover, 12 s of work."""
        return [
            self.event(0, "run_started", argv=[], pid=1, host="vm"),
            *self.started(1, 0),
            *self.failed(6),
            *self.started(8, 1),
            self.exited(19, 1),
            self.exited(20, 0),
            self.event(20, "run_finished", outcome="succeeded", exit_code=0, reason="fine"),
        ]


def sample(
    time: float, attempt: int, steps: int, *, ranks: range = range(2), is_running: bool = True
) -> NodeSample:
    return NodeSample(
        time=time,
        run_id=RUN_ID,
        host="vm",
        node_rank=0,
        nodes=1,
        world_size=len(ranks),
        attempt=attempt,
        restart_count=attempt,
        generation=0,
        ended=not is_running,
        ranks=tuple(
            RankSample(
                global_rank=rank,
                local_rank=rank,
                pid=100 + rank,
                state=RankState.RUNNING if is_running else RankState.STOPPED,
                phase=WorkerPhase.TRAINING,
                steps=steps,
                steps_per_second=4.0 + rank,
                cpu_percent=150.0 if is_running else None,
                memory_bytes=1_000_000 if is_running else None,
                last_moved=time,
            )
            for rank in ranks
        ),
    )
