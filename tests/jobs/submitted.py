"""Job files submitted by the real command, with real runners, and what these record."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.journal import read_story
from dlrover_cli.jobs.ledger import Ledger, RunRow
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.story import Story
from dlrover_cli.jobs.waiting import wait_for_process
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.harness.waiting import eventually

PROGRAM = Path(sys.executable).with_name("dlrover-job")
PLUGIN = Path(__file__).with_name("scripted_plugin.py")
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """One run, seen from outside."""

    files: RunFiles
    project: Path

    @property
    def run_id(self) -> str:
        return self.files.run_id

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.files.events.read_text().splitlines()]

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    @property
    def states(self) -> list[str]:
        """All that it was in, one after the other."""
        moves = [event["data"] for event in self.events if event["kind"] == "state"]
        for before, after in pairwise(moves):
            assert before["to"] == after["from"]
        return ["PENDING", *(move["to"] for move in moves)]

    @property
    def story(self) -> Story:
        return read_story(self.files.events)

    @property
    def owner(self) -> ProcessIdentity:
        owner = self.story.owner
        assert owner is not None
        return owner

    @property
    def result(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.files.result.read_text())
        return document

    @property
    def log(self) -> str:
        return self.files.runner_log.read_text()

    def wait_for(self, state: RunState) -> None:
        eventually(
            lambda: self.story.state is state, PATIENCE, what=f"{self.run_id} is {state.value}"
        )

    def ended(self) -> Story:
        """The story when its owner's process is gone, however that came."""
        owner = eventually(lambda: self.story.owner, PATIENCE)
        wait_for_process(owner)
        return self.story

    def kill_owner(self) -> None:
        owner = self.owner
        assert owner.signal(signal.SIGKILL)
        eventually(lambda: not owner.is_alive())


@dataclass(frozen=True, slots=True)
class Jobs:
    """Submits jobs of a project; everything is below one directory."""

    home: Path
    environ: Mapping[str, str]

    @property
    def project(self) -> Path:
        return self.home / "project"

    @property
    def state(self) -> Path:
        return self.home / "state" / "dlrover"

    def command(
        self, *argv: object, check: bool = True, timeout: float = PATIENCE
    ) -> "subprocess.CompletedProcess[str]":
        """Run `dlrover-job`; with ``check`` it must succeed."""
        done = subprocess.run(
            [sys.executable, PROGRAM, *map(str, argv)],
            env=self.environ,
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done

    def start(self, *argv: object) -> "subprocess.Popen[bytes]":
        """Start `dlrover-job` and return at once; what it says is thrown away."""
        return subprocess.Popen(
            [sys.executable, PROGRAM, *map(str, argv)],
            env=self.environ,
            cwd=self.project,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def write(self, jobs: Mapping[str, Mapping[str, Any]]) -> Path:
        """A job file; JSON is YAML, too."""
        path = self.project / "jobs.yaml"
        path.write_text(json.dumps(jobs))
        return path

    def submit(self, **jobs: Mapping[str, Any]) -> list[SubmittedRun]:
        """Submit them in one file; their runs in the order of the arguments."""
        done = self.command("submit", self.write(jobs))
        by_name = {
            name: run_id for run_id, name in map(str.split, done.stdout.strip().splitlines())
        }
        return [self.run(by_name[name]) for name in jobs]

    def submit_one(self, **job: Any) -> SubmittedRun:
        [run] = self.submit(one=job)
        return run

    def run(self, run_id: str) -> SubmittedRun:
        return SubmittedRun(RunFiles.of(self.state, run_id), self.project)

    def runs(self) -> list[SubmittedRun]:
        """All that there are, as directories."""
        paths = sorted((self.state / "runs").glob("[!.]*")) if self.state.exists() else []
        return [self.run(path.name) for path in paths]

    def existing(self) -> list[SubmittedRun]:
        """Without what a submitter has left that was killed before its runs existed."""
        return [run for run in self.runs() if run.files.job.exists()]

    def listed(self) -> dict[str, dict[str, Any]]:
        """What `dlrover-job list` says, by run id."""
        document = json.loads(self.command("list", "--all", "-o", "json").stdout)
        return {run["run_id"]: run for run in document["runs"]}

    def rows(self) -> dict[str, RunRow]:
        """The ledger as it is, not healed."""
        with Ledger.open(self.state) as ledger:
            return {row.run_id: row for row in ledger.rows()}

    def calls(self) -> list[str]:
        """What the scripted plugin was asked for, without graces."""
        return [line for line in self.noted() if not line.startswith("grace")]

    def noted(self) -> list[str]:
        path = self.project / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def meet(self, method: str) -> None:
        """Wait until a job's plugin is in there."""
        eventually((self.project / f"{method}.reached").exists, PATIENCE, what=f"in {method}")

    def let_go(self, method: str) -> None:
        (self.project / f"{method}.go").touch()

    def end_job(self, code: int = 0) -> None:
        """Let a job that lasts `until_end` end."""
        part = self.project / "end.part"
        part.write_text(str(code))
        part.rename(self.project / "end")


def play(**does: str) -> dict[str, Any]:
    """A job of the scripted plugin."""
    return {
        "platform": "theatre",
        "engine": "play",
        "plugin": "scripted_plugin::PlayPlugin",
        "properties": {"does": does},
    }


def shell(text: str, **more: Any) -> dict[str, Any]:
    """A job of the engine cmd_line."""
    properties = {"command": text, "shell": True, **more.pop("properties", {})}
    return {"engine": "cmd_line", "properties": properties, **more}


def make_jobs(home: Path, environ: Mapping[str, str]) -> Jobs:
    # No job here has an optimizer, and what one needs takes its time to load.
    own = {"XDG_STATE_HOME": str(home / "state"), "DLROVER_PRELOAD": "none"}
    jobs = Jobs(home, {**environ, **own})
    jobs.project.mkdir(parents=True)
    shutil.copy(PLUGIN, jobs.project)
    return jobs


def assert_private(directory: Path) -> None:
    """Nobody but its owner can look at anything there."""
    for path in [directory, *directory.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = 0o700 if path.is_dir() else 0o600
        assert mode == wanted, f"{path} is {mode:o}"


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def pids_in(path: Path) -> list[int]:
    return [int(text) for text in path.read_text().split()]


def environment() -> dict[str, str]:
    """Of whoever runs the tests, without what would steer a run."""
    return {name: value for name, value in os.environ.items() if not _steers(name)}


def _steers(name: str) -> bool:
    return name.startswith(("DLROVER_", "PET_")) and name != "DLROVER_TEST_TOKEN"
