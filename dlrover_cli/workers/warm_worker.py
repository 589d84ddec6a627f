"""What a forked worker does before its script's first line: become as good as a new interpreter.

Everything that a script can observe is what a fresh ``python -u script.py`` would show it:
streams, environment, ``sys.argv``, ``sys.path``, ``__main__``, signals, seeds, the way it ends. The
differences that remain are listed, and tested, in docs/explanation/warm-workers.md.
"""

import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlrover_cli.workers import as_new, light_exit, process_title
from dlrover_cli.workers.bootstrap import BEAT_FILE, WORKER_DIRECTORY, restore_python_path
from dlrover_cli.workers.bootstrap.in_worker.install import install
from dlrover_cli.workers.load_time import watch_load_time_variables
from dlrover_cli.workers.main_program import run_module, run_script

OUR_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class WarmWorker:
    """One worker: the command line that a fresh one would have had, and its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    learn: bool = False
    """Whether to write down what it loads."""
    has_seeds: bool = False
    """Whether it has seeds of its own already."""

    @classmethod
    def from_message(
        cls,
        message: dict[str, Any],
        fds: list[int],
        *,
        learn: bool = False,
        has_seeds: bool = False,
    ) -> "WarmWorker":
        """In the worker's process: takes the request's descriptors, so it is made only once."""
        place_descriptors(fds, message["fds"])
        fds.clear()
        return cls(
            tuple(_unpacked(part) for part in message["argv"]),
            {_unpacked(name): _unpacked(value) for name, value in message["env"].items()},
            learn,
            has_seeds,
        )

    def run(self) -> None:
        """Run the program; returns or raises as its interpreter's end demands."""
        self._become()
        # python -u [-m] program arguments
        if self.argv[2] == "-m":
            run_module(self.argv[3], list(self.argv[4:]))
        else:
            run_script(self.argv[2], list(self.argv[3:]))

    def _become(self) -> None:
        process_title.write(self.argv)
        inherited_threads = os.environ.get("OMP_NUM_THREADS")
        os.environ.clear()
        os.environ.update(self.env)
        restore_python_path(os.environ)
        as_new.open_standard_streams()
        as_new.restore_signals()
        if not self.has_seeds:
            as_new.renew_seeds()
        as_new.renew_torch_threads(inherited_threads, os.environ.get("OMP_NUM_THREADS"))
        as_new.renew_main_thread()
        sys.orig_argv[:] = self.argv
        directory = os.environ.get(WORKER_DIRECTORY)
        if directory is not None:
            install(directory, os.environ.get(BEAT_FILE), learn=self.learn)
        watch_load_time_variables(os.environ)
        light_exit.pass_over_shared(os.environ)


def place_descriptors(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Give each descriptor its number and close it under its old one."""
    above = max((*numbers, *fds)) + 1
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
    for fd in fds:
        os.close(fd)
    for copy, number in zip(copies, numbers, strict=True):
        os.dup2(copy, number)
        os.close(copy)


def _unpacked(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))
