"""One run of one launcher: start it, bound it, collect what its workers stamped, leave nothing."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.processes import kill_processes_of, wait_for_end

WORKER = Path(__file__).with_name("worker.py")
# Would steer one launcher or the other if they leaked in.
SCRUBBED = ("PET_", "DLROVER_", "TORCHELASTIC_", "TORCH_", "OMP_", "XDG_", "RACE_")
_RESTARTS = 3
_LOOK_EVERY = 0.02


class RunFailed(Exception):
    """A run that gave no figure; the message is the reason, in a few words."""


class NotRaced(Exception):
    """This contender has nothing to measure in this figure."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A contender: its name, its command line, and what it needs to recover from a crash at all."""

    name: str
    command: tuple[str, ...]
    recovery_env: Mapping[str, str] = field(default_factory=dict)
    # How its nodes meet, and which of benchmarks.rendezvous_scale it is there, if any.
    backend: str = "c10d"
    simulated_backend: str | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """When something happened in a worker (CLOCK_MONOTONIC), and in which process."""

    time: float
    pid: int


@dataclass(frozen=True, slots=True)
class Job:
    """The launchers of a run that goes on, and the stamps of its workers."""

    processes: Sequence["subprocess.Popen[bytes]"]
    directory: Path
    started: float
    timeout: float

    @property
    def launchers(self) -> list[int]:
        return [process.pid for process in self.processes]

    def finish(self) -> float:
        """Wait for the successful end of all launchers; when the last one ended."""
        ended = wait_for_end(self.launchers, self.started + self.timeout)
        for process in self.processes:
            self._check(process)
        if len(ended) < len(self.processes):
            raise RunFailed(f"still running after {self.timeout:g} s")
        return max(ended.values())

    def wait_for(self, event: str, *, ranks: Sequence[int]) -> list[Stamp]:
        """The stamps of these ranks in the first attempt, as soon as all are there."""
        while time.monotonic() < self.started + self.timeout:
            with contextlib.suppress(RunFailed):
                return [self._stamp(event, 0, rank) for rank in ranks]
            for process in self.processes:
                self._check(process)
            time.sleep(_LOOK_EVERY)
        raise RunFailed(f"no {event} after {self.timeout:g} s")

    def last(self, event: str, *, ranks: int, attempt: int = 0) -> float:
        """When the last of so many ranks stamped the event."""
        return max(self._stamp(event, attempt, rank).time for rank in range(ranks))

    def has(self, event: str) -> bool:
        """Whether any rank has stamped the event."""
        return bool(self._stamps_of(event))

    def only(self, event: str) -> float:
        """When the event was stamped by the one rank that stamps it."""
        paths = self._stamps_of(event)
        if len(paths) != 1:
            raise RunFailed(f"{len(paths)} stamps of {event}")
        return _read_stamp(paths[0]).time

    def _stamps_of(self, event: str) -> list[Path]:
        return [path for path in self.directory.glob(f"{event}.*") if path.suffix != ".new"]

    def _stamp(self, event: str, attempt: int, rank: int) -> Stamp:
        path = self.directory / f"{event}.{attempt}.{rank}"
        try:
            return _read_stamp(path)
        except FileNotFoundError:
            raise RunFailed(f"no stamp {path.name}") from None

    def _check(self, process: "subprocess.Popen[bytes]") -> None:
        if process.poll():
            errors = self.directory / f"stderr.{self.processes.index(process)}"
            raise RunFailed(f"exit code {process.returncode}: {last_line(errors)}")


@dataclass(frozen=True, slots=True)
class Track:
    """Where launchers run: a directory for scratch files and a bound on every run."""

    launcher: Launcher
    timeout: float = 90.0

    def command(self, *arguments: str) -> float:
        """Seconds that `launcher arguments` takes to its successful end."""
        with self._job([[*self.launcher.command, *arguments]], {}) as job:
            return job.finish() - job.started

    @contextlib.contextmanager
    def workers(
        self, count: int, work: str, then: str = "end", *, recovery_env: bool = True
    ) -> Iterator[Job]:
        """A standalone run of `worker.py` with so many workers."""
        options = ["--standalone", f"--nproc-per-node={count}"]
        with self._workers([options], work, then, recovery_env=recovery_env) as job:
            yield job

    @contextlib.contextmanager
    def nodes(self, count: int, work: str, then: str = "end", *, backend: str) -> Iterator[Job]:
        """A run of `worker.py` on so many nodes with one worker each, all on this machine."""
        options = [
            f"--nnodes={count}",
            "--nproc-per-node=1",
            f"--rdzv-backend={backend}",
            f"--rdzv-endpoint=127.0.0.1:{free_port()}",
            f"--rdzv-id={uuid.uuid4().hex}",
            "--local-addr=127.0.0.1",
        ]
        with self._workers([options] * count, work, then) as job:
            yield job

    @contextlib.contextmanager
    def _workers(
        self, nodes: Sequence[Sequence[str]], work: str, then: str, *, recovery_env: bool = True
    ) -> Iterator[Job]:
        recovers = "crash" in then
        restarts = _RESTARTS if recovers else 0
        commands = [
            [*self.launcher.command, *node, f"--max-restarts={restarts}", str(WORKER), work, then]
            for node in nodes
        ]
        env = self.launcher.recovery_env if recovers and recovery_env else {}
        with self._job(commands, env) as job:
            yield job

    @contextlib.contextmanager
    def _job(
        self, commands: Sequence[Sequence[str]], extra_env: Mapping[str, str]
    ) -> Iterator[Job]:
        directory = Path(tempfile.mkdtemp(prefix="race-"))
        environ = {k: v for k, v in os.environ.items() if not k.startswith(SCRUBBED)}
        environ |= {
            "RACE_DIRECTORY": str(directory),
            "TMPDIR": str(directory),
            "OMP_NUM_THREADS": "1",
            **extra_env,
        }
        processes: list[subprocess.Popen[bytes]] = []
        try:
            started = time.monotonic()
            for node, command in enumerate(commands):
                with (directory / f"stderr.{node}").open("wb") as stderr:
                    process = subprocess.Popen(
                        command,
                        env=environ | {"XDG_STATE_HOME": str(directory / f"state.{node}")},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=stderr,
                        start_new_session=True,
                    )
                processes.append(process)
            yield Job(processes, directory, started, self.timeout)
        except OSError as error:
            raise RunFailed(f"cannot start: {error.strerror}") from error
        finally:
            kill_processes_of(directory)
            for process in processes:
                process.wait()
            shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def last_line(path: Path) -> str:
    """The last line on stderr that says what happened: no rule, no hint."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    telling = [line for line in lines if line.strip("=- ") and not line.startswith("hint:")]
    return telling[-1][:200] if telling else "nothing on stderr"


def _read_stamp(path: Path) -> Stamp:
    moment, pid = path.read_text().split()
    return Stamp(float(moment), int(pid))
