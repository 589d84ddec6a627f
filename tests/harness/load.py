"""Keep the processors busy, to see whether a test only passes on a quiet machine."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

# Ends with its parent even when that is killed.
SPIN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(100000): pass\n"


@contextlib.contextmanager
def cpu_load(processes: int | None = None) -> Iterator[None]:
    """Run the block beside busy processes, two per processor unless told."""
    count = 2 * (os.cpu_count() or 1) if processes is None else processes
    command = [sys.executable, "-S", "-c", SPIN, str(os.getpid())]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            spinner = subprocess.Popen(command)
            stack.callback(spinner.wait)
            stack.callback(spinner.kill)
        yield
