"""Native stacks of the workers with py-spy, where it is installed and the kernel allows it."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_MOST_AT_ONCE = 4  # each reads the debug information of every library that is loaded
_LONGEST = 1 << 18
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def native_stacks(pids: Mapping[int, int], seconds: float) -> dict[int, str]:
    """What py-spy shows of each worker, by the same key; or a sentence that says why it cannot.

    A worker is stopped for the moment in which its stack is read.
    """
    program = py_spy()
    if program is None:
        reason = "py-spy is not installed here: pip install py-spy"
        return dict.fromkeys(pids, f"no native stack: {reason}")
    with ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="py-spy") as pool:
        texts = pool.map(lambda pid: _dump(program, pid, seconds), pids.values())
        return dict(zip(pids, texts, strict=True))


def py_spy() -> str | None:
    """Beside our interpreter, or on the path."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _dump(program: str, pid: int, seconds: float) -> str:
    command = [program, "dump", "--native", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no native stack: py-spy took longer than {seconds:g} s"
    except OSError as error:
        return f"no native stack: {program}: {error.strerror}"
    if done.returncode == 0:
        return done.stdout[:_LONGEST]
    return f"no native stack: {_why(done.stderr)}"


def _why(complaint: str) -> str:
    """What py-spy complains of, in its first line; a backtrace of its own may follow."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    said = lines[0].removeprefix("Error: ") if lines else "it did not say why it failed"
    if "ermission" not in complaint and "not permitted" not in complaint:
        return f"py-spy: {said}"
    scope = ""
    with suppress(OSError):
        scope = f" (kernel.yama.ptrace_scope is {_PTRACE_SCOPE.read_text().strip()})"
    return (
        f"py-spy may not look into the process{scope}: that takes root, CAP_SYS_PTRACE or, for "
        "processes of the same user, kernel.yama.ptrace_scope=0"
    )
