"""Run directories written by hand, as launchers write them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.diagnosis.papers import read_papers
from dlrover_cli.diagnosis.run_story import About, RunStory
from dlrover_cli.diagnosis.telling import tell

START = 1_800_000_000.0


@dataclass(frozen=True, slots=True)
class Journals:
    """Times are seconds since the start of the run."""

    directory: Path

    def life(self, at: float, kind: str, **data: Any) -> None:
        self._append(self.directory / "events.jsonl", at, None, None, kind, data)

    def state(self, at: float, to: str, **data: Any) -> None:
        self.life(at, "state", to=to, **data)

    def node(
        self, at: float, kind: str, attempt: int | None = 0, node: str = "vm.1", **data: Any
    ) -> None:
        rank = None if attempt is None else int(node.rpartition(".")[2]) - 1
        path = self.directory / "nodes" / node / "events.jsonl"
        self._append(path, at, rank, attempt, kind, data)

    def started(self, at: float, attempt: int, *ranks: int, node: str = "vm.1") -> None:
        """The rendezvous and the start of the workers, half a second later."""
        self.node(at - 0.5, "rendezvous_completed", attempt, node, nodes=1, world_size=2)
        workers = [{"global_rank": rank, "local_rank": rank, "pid": 100 + rank} for rank in ranks]
        counts = {"restart_count": attempt, "generation": 0}
        self.node(at, "workers_started", attempt, node, workers=workers, **counts)

    def exited(self, at: float, attempt: int, rank: int, status: int, node: str = "vm.1") -> None:
        self.node(at, "worker_exited", attempt, node, global_rank=rank, pid=1, status=status)

    def failed(self, at: float, attempt: int, rank: int, *, number: int = 1, **facts: Any) -> None:
        """A failure of vm.1, with its facts, noticed 50 ms later."""
        root = WorkerFailure(
            global_rank=rank,
            local_rank=rank,
            exit_code=1,
            exception_type="ValueError",
            message="a <b>bad</b> batch",
            traceback='Traceback\n  File "train.py", line 3, in <module>\n',
            time_ns=int((START + at) * 1e9),
            root_cause=True,
        )
        info = AgentFailureInfo(
            int(START + at), kind=FailureKind.EXCEPTION, workers=(root,), attempt=attempt, **facts
        )
        path = self.directory / "nodes" / "vm.1" / "failures" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(info.to_json()))
        self.node(
            at + 0.05, "failure", attempt, number=number, failure_kind="exception", root_rank=rank
        )

    def decided(self, at: float, attempt: int, action: str, **data: Any) -> None:
        told = {
            "trigger": "exception",
            "node_rank": 0,
            "reason": "restart 1 of 3",
            "strategy": "NORMAL_FAILOVER",
            "decided_by": "default",
        }
        self.node(at, "decision", attempt, action=action, **{**told, **data})

    def sample(self, at: float, attempt: int, *steps: int, node: str = "vm.1") -> None:
        """The steps of each rank at one moment."""
        path = self.directory / "nodes" / node / "samples.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        counts = {str(rank): count for rank, count in enumerate(steps)}
        line = {"time": START + at, "attempt": attempt, "ended": False, "steps": counts}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def result(self, **content: Any) -> None:
        (self.directory / "result.json").write_text(json.dumps(content))

    def story(
        self, state: RunState = RunState.FINISHED, *, ended: float | None = None, now: float = 1000
    ) -> RunStory:
        about = About(
            run_id="20300131-060000-abc123",
            name="train",
            platform="local",
            engine="torch",
            state=state,
            exit_code=0 if state is RunState.FINISHED else None,
            reason="",
            submitted=START,
            started=None if state is RunState.PENDING else START,
            ended=None if ended is None else START + ended,
            directory=self.directory,
        )
        return tell(read_papers(self.directory), about, now=START + now)

    def _append(
        self, path: Path, at: float, rank: int | None, attempt: int | None, kind: str, data: Any
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        event = {
            "schema_version": 1,
            "time": START + at,
            "node_rank": rank,
            "attempt": attempt,
            "kind": kind,
            "data": data,
        }
        with path.open("a") as file:
            file.write(json.dumps(event) + "\n")


def one_restart(journals: Journals) -> None:
    """Two ranks start after 2 s; rank 1 fails at 5 s, all run again at 6 s, and end at 11 s."""
    journals.state(0, "STARTING")
    journals.state(0, "RUNNING")
    journals.started(2, 0, 0, 1)
    journals.failed(5, 0, 1, steps=7)
    journals.decided(5.1, 0, "restart_workers", backoff=0.5, problems=["it said nothing"])
    journals.exited(5.05, 0, 1, 1)
    journals.exited(5.2, 0, 0, -9)
    journals.started(6, 1, 0, 1)
    journals.exited(10.5, 1, 0, 0)
    journals.exited(11, 1, 1, 0)
    journals.state(12, "FINISHED", exit_code=0)
