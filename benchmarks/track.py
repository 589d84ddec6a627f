"""One run of one launcher: start it, bound it, collect what its workers stamped, leave nothing."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
# Would steer one launcher or the other if they leaked in.
SCRUBBED = ("PET_", "DLROVER_", "TORCHELASTIC_", "TORCH_", "OMP_", "XDG_", "RACE_")


class RunFailed(Exception):
    """A run that gave no figure; the message is the reason, in a few words."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A contender: its name, its command line, and what it needs to recover from a crash at all."""

    name: str
    command: tuple[str, ...]
    recovery_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """When a launcher was started, when it ended, and the stamps in between."""

    started: float
    ended: float
    directory: Path

    def last(self, event: str, *, ranks: int, attempt: int = 0) -> float:
        """When the last of so many ranks stamped the event."""
        paths = [self.directory / f"{event}.{attempt}.{rank}" for rank in range(ranks)]
        missing = [path.name for path in paths if not path.exists()]
        if missing:
            raise RunFailed(f"no stamp {missing[0]}")
        return max(float(path.read_text()) for path in paths)

    def only(self, event: str) -> float:
        """When the event was stamped by the one rank that stamps it."""
        paths = [path for path in self.directory.glob(f"{event}.*") if path.suffix != ".new"]
        if len(paths) != 1:
            raise RunFailed(f"{len(paths)} stamps of {event}")
        return float(paths[0].read_text())


@dataclass(frozen=True, slots=True)
class Track:
    """Where launchers run: a directory for scratch files and a bound on every run."""

    launcher: Launcher
    timeout: float = 90.0

    def command(self, *arguments: str) -> float:
        """Seconds that `launcher arguments` takes to its successful end."""
        with self._run([*self.launcher.command, *arguments], {}) as run:
            return run.ended - run.started

    @contextlib.contextmanager
    def workers(self, count: int, work: str, *options: str, restarts: int = 0) -> Iterator[Run]:
        """A finished standalone run of `worker.py` with so many workers."""
        command = [
            *self.launcher.command,
            "--standalone",
            f"--nproc-per-node={count}",
            f"--max-restarts={restarts}",
            str(WORKER),
            work,
            *options,
        ]
        with self._run(command, self.launcher.recovery_env if restarts else {}) as run:
            yield run

    @contextlib.contextmanager
    def _run(self, command: Sequence[str], extra_env: Mapping[str, str]) -> Iterator[Run]:
        directory = Path(tempfile.mkdtemp(prefix="race-"))
        environ = {k: v for k, v in os.environ.items() if not k.startswith(SCRUBBED)}
        environ |= {
            "RACE_DIRECTORY": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            "TMPDIR": str(directory),
            "OMP_NUM_THREADS": "1",
            **extra_env,
        }
        errors = directory / "stderr"
        try:
            with errors.open("wb") as stderr:
                started = time.monotonic()
                process = subprocess.Popen(
                    command,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,
                )
                try:
                    status = process.wait(self.timeout)
                    ended = time.monotonic()
                except subprocess.TimeoutExpired:
                    raise RunFailed(f"still running after {self.timeout:g} s") from None
                finally:
                    kill_processes_of(directory)
                    process.wait()
            if status != 0:
                raise RunFailed(f"exit code {status}: {last_line(errors)}")
            yield Run(started, ended, directory)
        except OSError as error:
            raise RunFailed(f"cannot start: {error.strerror}") from error
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def kill_processes_of(directory: Path) -> None:
    """End whatever still carries the run's directory in its environment."""
    needle = f"RACE_DIRECTORY={directory}\0".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)


def last_line(path: Path) -> str:
    """The last line on stderr that says what happened: no rule, no hint."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    telling = [line for line in lines if line.strip("=- ") and not line.startswith("hint:")]
    return telling[-1][:200] if telling else "nothing on stderr"
