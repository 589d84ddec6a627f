"""Start real launcher processes from a test, look at them, signal them, and get all they said.

    finished = launch(["--standalone", "--nproc-per-node=2", script])
    assert finished.returncode == 0, finished

    running = start([...])
    running.wait_for("ready")
    running.signal(signal.SIGTERM)
    finished = running.finish()

`launch` and `start` are fixtures. A launcher is forked from a warm launch server (see
`launch_server.py`), which saves the import of torch; `real=True` runs the console script itself.
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.harness.launch_server import default_signals
from tests.harness.processes import (
    TOKEN_LENGTH,
    TOKEN_VARIABLE,
    assert_no_process_left,
    descendants_and_orphans,
    kill_all,
)

CONSOLE_SCRIPTS = ("dlrover-run", "torchrun")
# Read by the loader, the interpreter or torch's import: too early for a fork to change them.
LOAD_TIME_PREFIXES = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LC_", "LANG")
LOAD_TIME_VARIABLES = frozenset({"LOGLEVEL", "TORCH_LOGS", "TORCH_CPP_LOG_LEVEL"})
# Would steer a launcher or its workers if they leaked in from whoever runs the tests.
SCRUBBED_PREFIXES = (
    "PET_",
    "DLROVER_",
    "TORCHELASTIC_",
    "TORCH_",
    "PYTEST_",
    "OMP_",
    "GLOO_",
    "XDG_",
)
SCRUBBED_VARIABLES = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "LOGLEVEL",
        "PYTHON_EXEC",
    }
)


@dataclass(frozen=True, slots=True)
class Finished:
    """A launcher that has ended; `returncode` is negative when a signal ended it."""

    returncode: int
    stdout: str
    stderr: str
    duration: float
    argv: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return describe(
            self.argv, f"exited with {self.returncode} after {self.duration:.2f} s", self
        )


class LaunchFailed(AssertionError):
    """The launcher did not do what the test waited for; the message holds its output."""


class Running:
    """A launcher under way, and everything it started."""

    def __init__(
        self,
        process: "Process",
        *,
        argv: Sequence[str],
        token: str,
        directory: Path,
        master: int | None,
        started: float,
    ) -> None:
        self._process = process
        self._stdout = directory / "stdout"
        self._stderr = directory / "stderr"
        self._terminal = Terminal(master, self._stdout) if master is not None else None
        self._started = started
        self._ended: float | None = None
        self.argv = tuple(argv)
        self.token = token
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> str:
        """All that was written so far; with `tty=True` stderr is here too."""
        return self._stdout.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self._stderr.read_text(errors="replace")

    def poll(self, timeout: float = 0.0) -> int | None:
        """The exit status, waiting up to `timeout` seconds for it."""
        if self.returncode is None:
            self.returncode = self._process.poll(timeout)
            if self.returncode is not None:
                self._ended = time.monotonic()
        return self.returncode

    def wait_for(self, condition: "str | Callable[[Running], Any]", deadline: float = 30.0) -> Any:
        """Wait for a text in stdout or stderr, or for `condition(self)` to be truthy.

        Fails at once, with the output, when the launcher ends before that.
        """
        end = time.monotonic() + deadline
        while True:
            ended = self.poll() is not None
            if answer := self._holds(condition):
                return answer
            if ended or time.monotonic() >= end:
                why = "ended" if ended else f"{deadline:g} s passed"
                wanted = repr(condition) if isinstance(condition, str) else "the condition"
                raise LaunchFailed(describe(self.argv, f"{why} before {wanted} was seen", self))
            time.sleep(0.005)

    def processes(self) -> list[int]:
        """The pids of the launcher and of everything that it started, orphans too."""
        return [process.pid for process in descendants_and_orphans(self.token)]

    def signal(self, number: int) -> None:
        """Send a signal to the launcher alone."""
        self._process.signal(number)

    def signal_group(self, number: int) -> None:
        """Send a signal to the launcher's process group, as a terminal or a batch system does."""
        os.killpg(self.pid, number)

    def type(self, keys: bytes) -> None:
        """Type on the terminal of a `tty=True` launch; b"\\x03" is Ctrl-C."""
        if self._terminal is None:
            raise ValueError("only a launch with tty=True has a terminal to type on")
        self._terminal.type(keys)

    def terminal_modes(self) -> list[Any]:
        """How the terminal of a `tty=True` launch is set at the moment."""
        if self._terminal is None:
            raise ValueError("only a launch with tty=True has a terminal")
        return self._terminal.modes()

    def kill(self) -> None:
        """SIGKILL the launcher alone; what becomes of its workers is for the test to see."""
        self.signal(signal.SIGKILL)

    def finish(self, timeout: float = 60.0) -> Finished:
        """Wait for the end; past the timeout kill everything and fail with the output so far."""
        if self.poll(timeout) is None:
            alive = "\n  ".join(map(str, descendants_and_orphans(self.token)))
            self.discard()
            raise LaunchFailed(
                describe(self.argv, f"still running after {timeout:g} s", self)
                + f"\n--- processes\n  {alive}"
            )
        if self._terminal is not None:
            self._terminal.close()
        assert self.returncode is not None
        assert self._ended is not None
        return Finished(
            returncode=self.returncode,
            stdout=self.stdout,
            stderr=self.stderr,
            duration=self._ended - self._started,
            argv=self.argv,
        )

    def discard(self) -> None:
        """Kill the launcher and everything that it started."""
        if self.poll() is None:
            self.kill()
        kill_all(self.token)
        self.poll(10.0)
        if self._terminal is not None:
            self._terminal.close()

    def _holds(self, condition: "str | Callable[[Running], Any]") -> Any:
        if isinstance(condition, str):
            return condition in self.stdout or condition in self.stderr
        return condition(self)


class Launcher:
    """Starts launchers on behalf of one test; its methods are the fixtures `launch` and `start`."""

    def __init__(self, session: "LaunchSession", directory: Path, test_token: str) -> None:
        self._session = session
        self._directory = directory
        self._test_token = test_token
        self.started: list[Running] = []

    def launch(self, argv: Iterable[object], *, timeout: float = 60.0, **options: Any) -> Finished:
        """Run a launcher to its end; options as for `start`."""
        return self.start(argv, **options).finish(timeout)

    def start(
        self,
        argv: Iterable[object],
        *,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        real: bool = False,
        command: str | Sequence[str] = "dlrover-run",
        stdin: bytes = b"",
        tty: bool = False,
        size: tuple[int, int] | None = None,
        ignored_signals: Sequence[int] = (),
        pass_fds: Sequence[int] = (),
    ) -> Running:
        """Start a launcher in a session and process group of its own.

        env: changes to `environment()`; None removes a variable.
        cwd: the test's own directory unless told.
        real: execute the console script instead of forking the launch server.
        command: "dlrover-run", "torchrun", or any other command line (then always `real`).
        tty: one terminal for all three streams.
        size: rows and columns of that terminal; one that does not know its size unless told.
        ignored_signals: as `nohup` ignores SIGHUP.
        pass_fds: descriptors that a `real` one inherits.
        """
        token = self._test_token + uuid.uuid4().hex[: TOKEN_LENGTH - len(self._test_token)]
        environ = self.environment(env or {}) | {TOKEN_VARIABLE: token}
        directory = self._session.new_directory()
        arguments = [os.fspath(a) if isinstance(a, os.PathLike) else str(a) for a in argv]
        script = console_script(command) if isinstance(command, str) else None
        request = Request(
            command=(sys.executable, script) if script else tuple(command),
            argv=tuple(arguments),
            env=environ,
            cwd=str(cwd or self._directory),
            tty=tty,
            ignored_signals=tuple(ignored_signals),
            pass_fds=tuple(pass_fds),
        )
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            stdio, master = open_stdio(stack, directory, stdin, tty)
            if size is not None:
                fcntl.ioctl(stdio[0], termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            if real or script is None or is_read_at_load_time(env or {}):
                process: Process = RealProcess(request, stdio)
            else:
                process = self._session.server().fork(request, stdio)
        name = command if isinstance(command, str) else " ".join(command)
        running = Running(
            process,
            argv=[name, *arguments],
            token=token,
            directory=directory,
            master=master,
            started=started,
        )
        self.started.append(running)
        return running

    def environment(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """A launcher's environment: the tests' own, scrubbed, with a private state directory."""
        environ = scrubbed(os.environ)
        environ["XDG_STATE_HOME"] = str(self._directory / "state")
        environ["TMPDIR"] = str(self._session.temporary)
        for name, value in changes.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
        return environ

    def clean_up(self) -> list[Running]:
        """Kill what the test did not finish, and return it."""
        left = [running for running in self.started if running.poll() is None]
        for running in left:
            running.discard()
        return left


class LaunchSession:
    """What the launches of one test session share: the server, the files, the session's token."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex[:8]
        # Short, because socket paths below it are limited to 108 bytes.
        self._root = Path(tempfile.mkdtemp(prefix="dlr-"))
        self.temporary = self._root / "tmp"
        self.temporary.mkdir()
        self._server: LaunchServer | None = None
        self._count = 0

    def new_test_token(self) -> str:
        return self.token + uuid.uuid4().hex[:8]

    def new_directory(self) -> Path:
        self._count += 1
        directory = self._root / str(self._count)
        directory.mkdir()
        return directory

    def server(self) -> "LaunchServer":
        if self._server is None:
            self._server = LaunchServer(self.token, self._root / "server.log")
        return self._server

    def close(self) -> None:
        """End the server; raise if anything of the session was still alive."""
        try:
            assert_no_process_left(self.token)
        finally:
            if self._server is not None:
                self._server.close()
            shutil.rmtree(self._root, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All that makes a launcher process, apart from its three streams."""

    command: tuple[str, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    tty: bool
    ignored_signals: tuple[int, ...]
    pass_fds: tuple[int, ...] = ()


class Process(Protocol):
    """A started launcher, however it was started."""

    @property
    def pid(self) -> int: ...

    def poll(self, timeout: float) -> int | None: ...

    def signal(self, number: int) -> None: ...


class RealProcess:
    """A launcher that was executed."""

    def __init__(self, request: Request, stdio: Sequence[int]) -> None:
        def prepare() -> None:
            default_signals(list(request.ignored_signals))
            if request.tty:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self._popen = subprocess.Popen(
            [*request.command, *request.argv],
            env=dict(request.env),
            cwd=request.cwd,
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            start_new_session=True,
            pass_fds=request.pass_fds,
            preexec_fn=prepare,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self, timeout: float) -> int | None:
        if timeout <= 0:
            return self._popen.poll()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._popen.wait(timeout)
        return None

    def signal(self, number: int) -> None:
        self._popen.send_signal(number)


class ForkedProcess:
    """A launcher that the server forked; the server reaps it and tells its status."""

    def __init__(self, reply: socket.socket, server_log: Path) -> None:
        self._reply = reply
        self._log = server_log
        packet, fds, _flags, _address = socket.recv_fds(reply, 4096, 1)
        if not packet:
            raise LaunchFailed(f"the launch server is gone:\n{server_log.read_text()}")
        self.pid: int = json.loads(packet)["pid"]
        self._pidfd: int = fds[0]

    def poll(self, timeout: float) -> int | None:
        ready, _, _ = select.select([self._reply], [], [], max(timeout, 0))
        if not ready:
            return None
        packet = self._reply.recv(4096)
        if not packet:
            raise LaunchFailed(f"the launch server is gone:\n{self._log.read_text()}")
        self._reply.close()
        os.close(self._pidfd)
        status: int = json.loads(packet)["status"]
        return status

    def signal(self, number: int) -> None:
        # The pidfd cannot hit a stranger who got the number of a launcher that is gone.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)


class LaunchClient:
    """Asks a launch server that runs already, from whatever process."""

    def __init__(self, control: socket.socket, log: Path) -> None:
        self._control = control
        self._log = log

    def fork(self, request: Request, stdio: Sequence[int]) -> ForkedProcess:
        packet = json.dumps(
            {
                "script": request.command[1],
                "argv": request.argv,
                "env": dict(request.env),
                "cwd": request.cwd,
                "tty": request.tty,
                "ignored_signals": [int(number) for number in request.ignored_signals],
            }
        ).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._control, [packet], [theirs.fileno(), *stdio])
            except OSError as error:
                ours.close()
                raise LaunchFailed(
                    f"the launch server: {error}:\n{self._log.read_text()}"
                ) from None
        return ForkedProcess(ours, self._log)


class LaunchServer:
    """A launch server of our own: `launch_server.py`."""

    def __init__(self, session_token: str, log: Path) -> None:
        self._log = log
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._control, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        environ = scrubbed(os.environ)
        environ[TOKEN_VARIABLE] = "-" * TOKEN_LENGTH  # forks write theirs over it
        environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy would start threads, and a server must not
        with theirs, log.open("wb") as output:
            self._popen = subprocess.Popen(
                [
                    sys.executable,
                    Path(__file__).with_name("launch_server.py"),
                    str(theirs.fileno()),
                    session_token,
                ],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def control(self) -> socket.socket:
        """Whoever inherits it can make a `LaunchClient` of it."""
        return self._control

    def fork(self, request: Request, stdio: Sequence[int]) -> ForkedProcess:
        return LaunchClient(self._control, self._log).fork(request, stdio)

    def close(self) -> None:
        self._control.close()
        self._popen.wait(30)


class Terminal:
    """Copies what appears on a pseudo-terminal into a file, until nobody writes any more."""

    def __init__(self, master: int, path: Path) -> None:
        self._master = master
        self._stop, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._copy, args=(path,), name="test-terminal")
        self._thread.start()

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._master)

    def close(self) -> None:
        if self._thread.is_alive():
            os.write(self._wake, b"x")
        self._thread.join()
        if self._master >= 0:
            for fd in (self._master, self._stop, self._wake):
                os.close(fd)
            self._master = -1

    def _copy(self, path: Path) -> None:
        with path.open("ab", buffering=0) as file:
            while True:
                ready, _, _ = select.select([self._master, self._stop], [], [])
                if self._master not in ready:
                    return
                try:
                    file.write(os.read(self._master, 65536))
                except OSError:  # EIO: the last writer has closed the terminal
                    return


def open_stdio(
    stack: contextlib.ExitStack, directory: Path, stdin: bytes, tty: bool
) -> tuple[list[int], int | None]:
    """Three descriptors for the launcher, closed with the stack, and the master of a terminal."""
    paths = [directory / name for name in ("stdin", "stdout", "stderr")]
    for path in paths:
        path.touch()
    if tty:
        master, slave = pty.openpty()
        stack.callback(os.close, slave)
        return [slave] * 3, master
    if stdin:
        paths[0].write_bytes(stdin)
    source = paths[0] if stdin else Path(os.devnull)
    # Files rather than pipes: nothing to drain, and an orphan that holds one open blocks nobody.
    flags = [os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND]
    fds = [os.open(p, f | os.O_CLOEXEC) for p, f in zip([source, *paths[1:]], flags, strict=True)]
    for fd in fds:
        stack.callback(os.close, fd)
    return fds, None


def console_script(name: str) -> str:
    """The path of an installed console script of this environment."""
    if name not in CONSOLE_SCRIPTS:
        raise ValueError(
            f"{name!r} is not one of {CONSOLE_SCRIPTS}; give a sequence for other commands"
        )
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise LaunchFailed(
            f"{path.name} is not installed beside {sys.executable}: "
            "run pip install -c constraints.txt -e '.[dev]'"
        )
    return str(path)


def is_read_at_load_time(changes: Mapping[str, str | None]) -> bool:
    """Whether a fork of the server would come too late for one of these variables."""
    return any(
        name.startswith(LOAD_TIME_PREFIXES) or name in LOAD_TIME_VARIABLES for name in changes
    )


def scrubbed(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that steer launchers and workers."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(SCRUBBED_PREFIXES) and name not in SCRUBBED_VARIABLES
    }


def describe(argv: Sequence[str], what: str, output: Finished | Running) -> str:
    """A report for a person: the command, what became of it, the ends of its streams."""
    return "\n".join(
        [
            f"{' '.join(argv)}: {what}",
            "--- stdout",
            output.stdout[-4000:].rstrip(),
            "--- stderr",
            output.stderr[-8000:].rstrip(),
        ]
    )
