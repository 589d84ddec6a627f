"""Jobs on the tests' Ray: a training that leaves its steps, and what a run tells."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engines.ray.engine import RayEngine
from tests.harness.launcher import Finished, Launcher, Running
from tests.harness.processes import descendants_and_orphans
from tests.harness.waiting import eventually

# Each rank appends its steps to a file of its own; rank 0 keeps the checkpoint.
TRAIN = """\
import json, os, sys, time
import torch, torch.distributed as dist

directory, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
checkpoint = os.path.join(directory, "checkpoint.json")
attempt = int(os.environ["DLROVER_ATTEMPT"])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
done = [0]
if rank == 0 and os.path.exists(checkpoint):
    done = [json.load(open(checkpoint))["step"]]
dist.broadcast_object_list(done, src=0)
print(f"rank {rank} of {world} goes on after step {done[0]}", flush=True)
log = open(os.path.join(directory, f"steps.{attempt}.{rank}"), "a", buffering=1)
for step in range(done[0] + 1, steps + 1):
    TOGETHER
    log.write(json.dumps({"step": step, "world": world, "time": time.time()}) + "\\n")
    if rank == 0:
        with open(checkpoint + ".new", "w") as file:
            json.dump({"step": step}, file)
        os.replace(checkpoint + ".new", checkpoint)
    time.sleep(pause if attempt == 0 else 0.01)  # the first has to last until something happens
    FAIL
dist.destroy_process_group()
"""
TOGETHER = "dist.all_reduce(torch.ones(1))"
FAIL = 'if attempt == 0 and rank == 1 and step == 3: raise RuntimeError("on purpose")'


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank."""

    attempt: int
    rank: int
    number: int
    world: int
    time: float


class RayJobs:
    """All jobs of one test, whose files are in its directory."""

    def __init__(self, engine: RayEngine, launcher: Launcher, directory: Path) -> None:
        self.engine = engine
        self.directory = directory
        self._launcher = launcher
        self.state = directory / "state" / "dlrover"

    def training(self, *, fails: bool = False, together: bool = True) -> Path:
        """The script; ``fails``: rank 1 raises at its third step, once.

        Ranks that are not ``together`` do not wait for one another: a lost one goes on, if it can.
        """
        path = self.directory / "train.py"
        text = TRAIN.replace("FAIL", FAIL if fails else "")
        path.write_text(text.replace("TOGETHER", TOGETHER if together else "pass"))
        return path

    def arguments(self, *options: str, steps: int, pause: float = 0.05) -> list[str]:
        """Of `dlrover-run`."""
        script = self.directory / "train.py"
        if not script.exists():
            self.training()
        return [
            *("--platform=ray", "--nproc-per-node=1", "--rdzv-conf=last_call_timeout=0.2"),
            "--preload=none",  # it has no optimizer, and what one needs takes its time to load
            *options,
            *map(str, (script, self.directory, steps, pause)),
        ]

    def start(self, *options: str, steps: int, pause: float = 0.05, **more: Any) -> Running:
        """Begin a training; ``options`` are for `dlrover-run`."""
        argv = self.arguments(*options, steps=steps, pause=pause)
        return self.run(*self.launcher(*argv), **more)

    def launcher(self, *argv: str) -> list[str]:
        return [str(self.engine.programs / "dlrover-run"), *argv]

    def run(self, *command: str, env: dict[str, str] | None = None, **more: Any) -> Running:
        """Any command in the cluster's namespace."""
        environ: dict[str, str | None] = {**self.engine.environ(), **(env or {})}
        return self._launcher.start([], command=self.engine.command(*command), env=environ, **more)

    def job(self, *arguments: str) -> Finished:
        """A `dlrover-job` command, to its end."""
        return self.run(str(self.engine.programs / "dlrover-job"), *arguments).finish(60)

    def steps(self) -> list[Step]:
        """All that were taken so far, in no order."""
        found = []
        for path in self.directory.glob("steps.*"):
            _, attempt, rank = path.name.split(".")
            for line in path.read_text().splitlines():
                row = json.loads(line)
                found.append(Step(int(attempt), int(rank), row["step"], row["world"], row["time"]))
        return found

    def wait_for_step(
        self, running: Running, number: int, *, where: Callable[[Step], bool] = lambda step: True
    ) -> None:
        """Until some rank has come so far."""
        running.wait_for(
            lambda _: any(step.number >= number and where(step) for step in self.steps()), 120
        )

    def wait_until(self, condition: Callable[[], Any]) -> None:
        """Of a job that has no process here."""
        eventually(condition, 120, interval=0.1)

    def wait_for_state(self, run: str, state: str) -> dict[str, Any]:
        """The run's row of `dlrover-job list`, once it is in this state."""

        def row() -> dict[str, Any] | None:
            listed = json.loads(self.job("list", "-o", "json").stdout)
            [found] = [each for each in listed["runs"] if each["run_id"] == run]
            return found if found["state"] == state else None

        return eventually(row, 90, what=f"{state} of {run}", interval=0.5)  # type: ignore[return-value]

    def wait_until_free(self, within: float = 10.0) -> None:
        """No actor of any job holds a node."""
        eventually(
            lambda: (
                not any(
                    "AgentHost" in process.command
                    for process in descendants_and_orphans(self.engine.token)
                )
            ),
            within,
            what="the end of all actors",
        )

    def checkpoint(self) -> int:
        step: int = json.loads((self.directory / "checkpoint.json").read_text())["step"]
        return step

    def run_directory(self) -> Path:
        [path] = (self.state / "runs").iterdir()
        return path

    def result(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_directory() / "result.json").read_text())
        return document

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Of the manager: the data, with the time."""
        path = self.run_directory() / "nodes" / "manager" / "events.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return [{**row["data"], "time": row["time"]} for row in rows if row["kind"] == kind]

    def node_of(self, rank: int, attempt: int = 0) -> str:
        """On which node of the cluster a rank ran."""
        [path] = self.run_directory().glob(f"nodes/*/logs/attempt_{attempt}/{rank}")
        agent = path.parents[2].name
        [placed] = [each for each in self.events("agent_placed") if each["agent"] == agent]
        node: str = placed["node"]
        return node

    def output_of(self, rank: int, attempt: int) -> str:
        """Its stdout, from the run directory."""
        pattern = f"nodes/*/logs/attempt_{attempt}/{rank}/stdout.log"
        [path] = self.run_directory().glob(pattern)
        return path.read_text()

    def assert_nothing_left(self, running: Running, since: float, within: float = 10.0) -> None:
        """Neither processes of the job, nor actors that hold what it needed."""
        left = within - (time.monotonic() - since)
        eventually(lambda: not running.processes(), left, what="the end of all processes")
