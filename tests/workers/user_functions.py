"""Worker functions of an imaginary user; light, since spawned workers import this module."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def rank_and(value: Any) -> tuple[int, Any]:
    return int(os.environ["LOCAL_RANK"]), value


def large(size: int) -> bytes:
    return bytes(size)


def fail(message: str) -> None:
    raise RuntimeError(message)


def leave(code: int) -> None:
    sys.exit(code)


def leave_at_once(code: int) -> None:
    os._exit(code)


def crash(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def speak(text: str) -> None:
    os.write(1, text.encode())
    os.write(2, text.upper().encode())


def mark_and_sleep(directory: str) -> None:
    """Leave the pids of this worker and of a child, and wait."""
    child = subprocess.Popen(["sleep", "60"])
    path = Path(directory, os.environ["LOCAL_RANK"])
    path.with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
    path.with_suffix(".new").rename(path)
    time.sleep(60)


def surroundings() -> dict[str, Any]:
    """What a function can see of the process that it runs in."""
    return {
        "leads its session": os.getpid() == os.getsid(0),
        "handlers": {
            number.name: signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
        },
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "variable": os.environ["FROM_THE_AGENT"],
    }


def count_in_queue(queue: Any, value: int) -> None:
    queue.put((int(os.environ["LOCAL_RANK"]), value))


def leave_somebody_talking(path: str) -> None:
    """Leave a child behind that writes to stderr when it gets SIGUSR1."""
    code = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "os.write(2, b'early ')\n"
        f"open({path!r}, 'w').write(str(os.getpid()))\n"
        "signal.sigwait([signal.SIGUSR1])\n"
        "os.write(2, b'late')\n"
    )
    subprocess.Popen([sys.executable, "-S", "-c", code])


def fork_and_end(path: str) -> int:
    """Leave a forked child behind that holds every descriptor of ours."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    Path(path).write_text(str(pid))
    return pid


class OnlyThere:
    """Can be pickled, but not read back."""

    def __reduce__(self) -> Any:
        return (fail, ("not here",))


def return_unreadable() -> OnlyThere:
    return OnlyThere()


def return_unpicklable() -> Any:
    return lambda: None
