"""A job on the tests' Slurm, as a test sees it: its checkpoint, its journals, its Slurm job."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.engines.slurm.engine import Slurm
from tests.harness.launcher import Finished, Running
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually

TRAINING = """
import torch
import torch.distributed as dist

checkpoint = os.path.join(DIRECTORY, "checkpoint")


def is_there(name):
    return os.path.exists(os.path.join(DIRECTORY, name))


dist.init_process_group("gloo")
start = torch.tensor([int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0])
dist.broadcast(start, 0)
step = int(start)
leave("start", step=step, world_size=world_size, node=os.environ.get("SLURMD_NODENAME"))
while step < STEPS:
    if step == GATE and rank == 0:
        while not is_there("go"):
            time.sleep(0.02)
    if step == GATE and attempt < FAILURES and rank == 1:
        sys.exit(7)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert int(total) == world_size
    step += 1
    if rank == 0:
        with open(os.path.join(DIRECTORY, "steps"), "a") as file:
            file.write(f"{attempt} {step}\\n")
        with open(checkpoint + ".new", "w") as file:
            file.write(str(step))
        os.replace(checkpoint + ".new", checkpoint)
leave("end", step=step)
say(f"rank {rank} of {world_size} took {step} steps")
"""
STEPS, GATE = 20, 5
# The training has no optimizer: what one needs would be a second of each agent's start.
QUICK = ("--nproc-per-node=1", "--rdzv-conf=last_call_timeout=1", "--preload=none")


class SlurmJob:
    """A launcher in the foreground, and all that it has caused."""

    def __init__(self, running: Running, slurm: Slurm, directory: Path) -> None:
        self.running = running
        self.slurm = slurm
        self.directory = directory
        self.scripts = Scripts(directory)

    @property
    def id(self) -> str:
        """Slurm's number of it."""
        found = self.running.wait_for(lambda job: re.search(r"Slurm job (\d+)", job.stderr), 60)
        return str(found[1])

    def wait_for_gate(self, ranks: int = 2, deadline: float = 90.0) -> int:
        """Until so many ranks have come as far as they may; the attempt in which they have."""

        def attempt_of_all(_: Running) -> list[int]:
            starts = self.scripts.facts("start") if self.checkpoint == GATE else []
            last = [fact for fact in starts if fact["attempt"] == starts[-1]["attempt"]]
            are_all = bool(last) and len(last) == last[0]["world_size"] == ranks
            return [last[0]["attempt"]] if are_all else []

        return int(self.running.wait_for(attempt_of_all, deadline)[0])

    def go(self) -> None:
        """Let the training come to its end."""
        (self.directory / "go").touch()

    def finish(self, timeout: float = 90.0) -> Finished:
        return self.running.finish(timeout)

    @property
    def checkpoint(self) -> int:
        path = self.directory / "checkpoint"
        return int(path.read_text()) if path.exists() else 0

    @property
    def steps(self) -> list[int]:
        """Those that were taken, in order."""
        lines = (self.directory / "steps").read_text().splitlines()
        return [int(line.split()[1]) for line in lines]

    @property
    def run_directory(self) -> Path:
        (path,) = self.directory.glob("state/dlrover/runs/*")
        return path

    @property
    def result(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_directory / "result.json").read_text())
        return document

    def events(self, kind: str, agent: str = "manager") -> list[dict[str, Any]]:
        """The data of events in the journals of one agent, or of one that was restarted."""
        found = []
        for journal in sorted(self.run_directory.glob(f"nodes/{agent}*/events.jsonl")):
            for line in journal.read_text().splitlines():
                event = json.loads(line)
                if event["kind"] == kind:
                    found.append(event["data"])
        return found

    def started(self, attempt: int) -> list[dict[str, Any]]:
        """What the ranks of one attempt left."""
        return [fact for fact in self.scripts.facts("start") if fact["attempt"] == attempt]

    def nothing_is_left(self) -> bool:
        """Neither a process nor a job that Slurm knows to wait or run."""
        return not self.running.processes() and not self.slurm.run(
            "squeue", "--noheader", "--format=%i"
        )


class SlurmJobs:
    """Starts jobs on behalf of one test."""

    def __init__(self, slurm: Slurm, start: Callable[..., Running], directory: Path) -> None:
        self.slurm = slurm
        self._start = start
        self.directory = directory

    def training(self, failures: int = 0) -> Path:
        """A script that waits at a step until it may go on; rank 1 may fail there first."""
        return Scripts(self.directory).write(
            "training.py", TRAINING, STEPS=STEPS, GATE=GATE, FAILURES=failures
        )

    def __call__(
        self, *options: str, script: Path | None = None, args: Sequence[str] = ()
    ) -> SlurmJob:
        running = self._start(
            ["--platform=slurm", *QUICK, *options, script or self.training(), *args],
            env=self.slurm.environ,
            real=True,
        )
        return SlurmJob(running, self.slurm, self.directory)

    def verdict(self, strategy: str) -> str:
        """An extension that always says the same."""
        (self.directory / "verdict.py").write_text(_VERDICT.format(strategy=strategy))
        return "--dynamic_failover_extension=verdict::Verdict"

    def wait_for_end(self, job_id: str, deadline: float = 60.0) -> None:
        """Until Slurm says that the job is over."""
        eventually(
            lambda: not self.slurm.run("squeue", "--noheader", f"--jobs={job_id}"),
            deadline,
            what=f"the end of Slurm job {job_id}",
            interval=0.1,
        )


_VERDICT = """
from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy

class Verdict(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        return FailoverStrategy.{strategy}
"""
