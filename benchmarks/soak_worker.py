"""The worker of the soak: counts steps in a checkpoint, in step with its peers, until it is hit.

Every step lengthens a chain of digests, so the number at the end cannot be right by accident: a
step that was lost or done twice gives another digest. Rank 0 saves after each step that all ranks
have done. What hits whom in which attempt stands in `plan.json`. Needs no torch.
"""

import hashlib
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dlrover_cli

# The soak itself imports this file too, and is no worker.
RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
ATTEMPT = int(os.environ.get("DLROVER_ATTEMPT", "0"))
DIRECTORY = Path(os.environ.get("SOAK_DIRECTORY", "."))
CHECKPOINT = DIRECTORY / "checkpoint.json"
RESERVE = 50
"""Steps that are left for the last attempt, which nothing hits."""
STEP_SECONDS = 0.001


def main() -> None:
    plan = json.loads((DIRECTORY / "plan.json").read_text())
    fault = dict(enumerate(plan["faults"])).get(ATTEMPT)
    mine = fault if fault is not None and fault["rank"] == RANK else None
    if fault is not None and fault["children"]:
        have_a_child()
    if mine is not None and mine["kind"] == "start-up":
        import a_module_that_is_nowhere  # type: ignore[import-not-found]  # noqa: F401
    dlrover_cli.heartbeat()
    if RANK == 0 and ATTEMPT == 0:
        page = Path(os.environ.get("DLROVER_BEAT_FILE", "/none"))
        (DIRECTORY / "beats").write_text(str(page.parent))
    step, digest = load()
    peers = Peers(DIRECTORY / f"steps.{ATTEMPT}")
    last = plan["steps"] - (0 if fault is None else RESERVE)
    done = 0
    while fault is not None or step < last:
        if mine is not None and done >= mine["after"]:
            strike(mine)
        time.sleep(STEP_SECONDS)
        done += 1
        if step < last:
            step, digest = step + 1, chained(digest, step + 1)
        peers.wait_for(done)
        if RANK == 0:
            save(step, digest)
        dlrover_cli.heartbeat()
    (DIRECTORY / f"end.{RANK}").write_text(f"{step} {digest}")


def chained(digest: str, step: int) -> str:
    return hashlib.sha256(f"{digest}{step}".encode()).hexdigest()


def load() -> tuple[int, str]:
    if not CHECKPOINT.exists():
        return 0, ""
    saved: dict[str, Any] = json.loads(CHECKPOINT.read_text())
    return saved["step"], saved["digest"]


def save(step: int, digest: str) -> None:
    new = CHECKPOINT.with_suffix(f".{ATTEMPT}")
    new.write_text(json.dumps({"step": step, "digest": digest}))
    new.replace(CHECKPOINT)


class Peers:
    """A barrier in shared memory: one cell per rank, which holds how many steps it has done."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, 8 * WORLD_SIZE)
        self._cells = memoryview(mmap.mmap(fd, 8 * WORLD_SIZE)).cast("Q")
        os.close(fd)

    def wait_for(self, done: int) -> None:
        self._cells[RANK] = done
        while any(cell < done for cell in self._cells):
            time.sleep(STEP_SECONDS / 2)


def have_a_child() -> None:
    """As a data loader would be, but harder to get rid of."""
    subprocess.Popen(["sleep", "1000"], start_new_session=True)


def strike(fault: dict[str, Any]) -> None:
    match fault["kind"]:
        case "exception":
            raise RuntimeError("hit by the soak")
        case "exit":
            os._exit(fault["code"])
        case "sys.exit":
            sys.exit(fault["code"])
        case "SIGSEGV":
            import ctypes

            ctypes.string_at(0)
        case "hang":
            time.sleep(600)
        case "SIGKILL" | "SIGABRT" | "SIGTERM" | "SIGBUS" | "SIGSTOP" as name:
            os.kill(os.getpid(), getattr(signal, name))
            time.sleep(600)  # a stopped process goes on here, if ever
        case "from outside" | "all from outside":
            pass  # goes on until it is killed


if __name__ == "__main__":
    main()
