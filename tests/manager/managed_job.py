"""A managed job under way, as a test sees it: its nodes, its workers' steps, its journals."""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.launcher import Finished, LaunchSession, Running
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
SMALL = ("--nproc-per-node=1", "--rdzv-conf=last_call_timeout=1")

STEPS = """
checkpoint = os.path.join(DIRECTORY, "checkpoint")
step = int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0
log = os.open(f"{DIRECTORY}/steps.{attempt}.{rank}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
leave(
    "start", step=step, world_size=world_size,
    restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
)
while not os.path.exists(os.path.join(DIRECTORY, "finish")):
    time.sleep(0.02)
    for order in (f"fail.{rank}", f"fail.{rank}.{attempt}"):
        if os.path.exists(os.path.join(DIRECTORY, order)):
            sys.exit(int(open(os.path.join(DIRECTORY, order)).read()))
    step += 1
    os.write(log, f"{step} {time.monotonic()}\\n".encode())
    if rank == 0:
        with open(checkpoint + ".new", "w") as file:
            file.write(str(step))
        os.replace(checkpoint + ".new", checkpoint)
leave("end", step=step)
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One step that a worker has taken."""

    attempt: int
    rank: int
    number: int
    time: float


class ManagedJob:
    """One job of `manage_processes.py` with workers that take steps until they are told to end."""

    def __init__(self, running: Running, fifo: Path, directory: Path) -> None:
        self.running = running
        self._fifo = fifo
        self.directory = directory
        self.scripts = Scripts(directory)

    # ---- doing something to it -----------------------------------------------------------------

    def order(self, order: str) -> None:
        """Such as `lose_node n1`."""
        descriptor = os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK)
        os.write(descriptor, f"{order}\n".encode())
        os.close(descriptor)

    def fail(self, rank: int, code: int, attempt: int | None = None) -> None:
        """Let a worker end with this code, in every attempt or in one."""
        name = f"fail.{rank}" if attempt is None else f"fail.{rank}.{attempt}"
        (self.directory / f"{name}.new").write_text(str(code))
        (self.directory / f"{name}.new").rename(self.directory / name)

    def finish(self, timeout: float = 60.0) -> Finished:
        """Let the workers end with success, and wait for the job."""
        (self.directory / "finish").touch()
        return self.running.finish(timeout)

    def finish_by_itself(self, timeout: float = 60.0) -> Finished:
        return self.running.finish(timeout)

    # ---- looking at it -------------------------------------------------------------------------

    def wait_for_steps(self, attempt: int, ranks: int, deadline: float = 60.0) -> None:
        """Until each rank has taken three steps of this attempt."""
        self.running.wait_for(
            lambda running: all(
                sum(s.attempt == attempt and s.rank == rank for s in self.steps()) >= 3
                for rank in range(ranks)
            ),
            deadline,
        )

    def wait_for_event(self, kind: str, deadline: float = 60.0, **data: object) -> dict[str, Any]:
        """The first event of this kind, with these data, in the manager's journal."""

        def found() -> dict[str, Any] | None:
            return next((e for e in self.events(kind) if data.items() <= e.items()), None)

        return eventually(found, deadline, what=f"the event {kind} {data}")  # type: ignore[return-value]

    def steps(self) -> list[Step]:
        """All that were taken, by time."""
        found = []
        for path in self.directory.glob("steps.*.*"):
            attempt, rank = map(int, path.name.split(".")[1:])
            for line in path.read_text().splitlines():
                number, taken = line.split()
                found.append(Step(attempt, rank, int(number), float(taken)))
        return sorted(found, key=lambda step: step.time)

    def started(self, attempt: int) -> list[dict[str, Any]]:
        return [fact for fact in self.scripts.facts("start") if fact["attempt"] == attempt]

    @property
    def run_directory(self) -> Path:
        (path,) = self.directory.glob("state/dlrover/runs/*")
        return path

    @property
    def result(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_directory / "result.json").read_text())
        return document

    def events(self, kind: str | None = None, agent: str = "manager") -> list[dict[str, Any]]:
        """The data of an agent's events, with their kinds and times."""
        journal = self.run_directory / "nodes" / agent / "events.jsonl"
        lines = journal.read_text().splitlines() if journal.exists() else []
        events = [json.loads(line) for line in lines]
        return [
            {"kind": event["kind"], "time": event["time"], **event["data"]}
            for event in events
            if kind in (None, event["kind"])
        ]

    def placed(self) -> list[str]:
        """The nodes on which agents were started, in that order."""
        return [event["node"] for event in self.events("agent_placed")]


class JobStarter:
    """Starts managed jobs on behalf of one test."""

    def __init__(
        self, start: Callable[..., Running], session: LaunchSession, directory: Path
    ) -> None:
        self._start = start
        self._session = session
        self.directory = directory
        self.sites: list[Path] = []
        """Where packages are installed that the manager finds."""

    def __call__(
        self,
        nodes: str,
        *options: str,
        nnodes: str = "2",
        script: Path | None = None,
        lease: float = 3.0,
        command: list[str] | None = None,
        env: Mapping[str, str] | None = None,
        is_executed: bool = False,
    ) -> ManagedJob:
        """A job on these nodes whose workers take steps, unless there is another script."""
        fifo = self.directory / f"orders.{time.monotonic_ns()}"
        os.mkfifo(fifo)
        is_forked = not is_executed and command is None
        server = self._session.server().control.fileno() if is_forked else None
        orders = {
            "nodes": nodes.split(),
            "fifo": str(fifo),
            "lease": lease,
            "launch_server": server,
            "command": command,
        }
        script = script or Scripts(self.directory).write("steps.py", STEPS)
        path = ":".join(map(str, (REPOSITORY, self.directory / "site", *self.sites)))
        running = self._start(
            [
                json.dumps(orders),
                f"--nnodes={nnodes}",
                *SMALL,
                *options,
                script,
            ],
            command=[sys.executable, str(Path(__file__).with_name("manage_processes.py"))],
            env={"PYTHONPATH": path, **(env or {})},
            pass_fds=[] if server is None else [server],
        )
        return ManagedJob(running, fifo, self.directory)

    def install_extension(self, source: str, name: str = "mine") -> None:
        """A package with a module `<name>_extension` and its entry point, as pip leaves it."""
        site = self.directory / "site"
        info = site / f"{name}-1.2.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(
            f"[dlrover.unified.extension]\n{name} = {name}_extension:Extension\n"
        )
        (site / f"{name}_extension.py").write_text(source)
