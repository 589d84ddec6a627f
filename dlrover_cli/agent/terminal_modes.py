"""The modes of the terminal, put back after workers that were killed at a prompt there."""

import contextlib
import os
import termios
from typing import Any


class TerminalModes:
    """How the terminal is before any worker reads from it."""

    def __init__(self, *, is_lent: bool, fd: int = 0) -> None:
        """``is_lent`` is whether a worker may read from it, and change it for that."""
        self._fd = fd
        self._before = _modes(fd) if is_lent else None

    def restore(self) -> None:
        """Undo what workers that are gone by now have changed."""
        if self._before is None or _modes(self._fd) == self._before or not self._is_ours():
            return
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _is_ours(self) -> bool:
        """Not while we are in the background: the shell has it, and the kernel would stop us."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return True  # nobody's controlling terminal


def _modes(fd: int) -> list[Any] | None:
    try:
        return termios.tcgetattr(fd)
    except termios.error:
        return None
