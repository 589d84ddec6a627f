"""How long something takes that is not the fault of a busy machine."""

import gc
import time
from pathlib import Path
from typing import Self


class Stopwatch:
    """Measures a block: `seconds` without what threads of this process waited for a processor."""

    seconds: float
    cpu_seconds: float
    """Of this thread alone."""

    def __enter__(self) -> Self:
        gc.freeze()  # what thousands of tests left behind is not to be searched for garbage
        self._started = time.monotonic()
        self._cpu = time.thread_time()
        self._waited = _waited_for_processors()
        return self

    def __exit__(self, *_: object) -> None:
        waited = max(0.0, _waited_for_processors() - self._waited)
        self.seconds = time.monotonic() - self._started - waited
        self.cpu_seconds = time.thread_time() - self._cpu
        gc.unfreeze()


def _waited_for_processors() -> float:
    """The sum over the threads that there are; 0 where the kernel does not count it."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            continue
    return total / 1e9
