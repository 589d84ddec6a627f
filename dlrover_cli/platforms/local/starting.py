"""Start a job's main process as if nobody had started it: only what the job says is inherited."""

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

from dlrover_cli.telemetry.process_identity import ProcessIdentity

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""The exit codes of a shell for a command that it cannot start."""

_UMASK = 0o022


class CannotStart(Exception):
    """A sentence, and the exit code that a shell would have."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def start(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], stdout: int, stderr: int
) -> ProcessIdentity:
    """Start it in a session of its own. Raises CannotStart."""
    if not os.path.isdir(cwd):
        raise CannotStart(f"cannot start {argv[0]!r} in {cwd}: no such directory", NOT_EXECUTABLE)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from who knows whom: the kernel would throw the exit status away.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            umask=_UMASK,
            preexec_fn=_reset_signals,
        )
    except OSError as error:
        raise _cannot_start(argv[0], cwd, env, error) from error
    identity = ProcessIdentity.of(process.pid)
    # Else Popen, once forgotten, would ask for the status in its own time, and take it from us.
    process.returncode = 0
    return identity


def _reset_signals() -> None:
    """Ignored and blocked signals are inherited through exec: the runner's are not the job's."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _cannot_start(command: str, cwd: str, env: Mapping[str, str], error: OSError) -> CannotStart:
    is_path = "/" in command
    place = os.path.join(cwd, command) if is_path else shutil.which(command, path=env.get("PATH"))
    match error.errno:
        case errno.ENOENT if not is_path and place is None:
            why, code = "there is no such command in PATH", NOT_FOUND
        case errno.ENOENT if place is not None and os.path.exists(place):
            why, code = "the interpreter in its first line does not exist", NOT_FOUND
        case errno.ENOENT | errno.ENOTDIR:
            why, code = "there is no such file", NOT_FOUND
        case errno.EACCES if place is not None and os.path.isdir(place):
            why, code = "it is a directory", NOT_EXECUTABLE
        case errno.EACCES:
            why, code = "it is not executable", NOT_EXECUTABLE
        case errno.ENOEXEC:
            why, code = "it is neither a program nor a script that begins with #!", NOT_EXECUTABLE
        case _:
            why, code = str(error.strerror), NOT_EXECUTABLE
    return CannotStart(f"cannot start {command!r}: {why}", code)
