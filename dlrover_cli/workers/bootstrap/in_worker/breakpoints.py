"""A breakpoint that nobody has asked for: the page shows that the worker has come to it.

All workers read the same stdin there, as under torchrun. The agent tells a person what to do.
"""

import os
import sys

from . import page as layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def note_breakpoints(page: layout.Page) -> None:
    """Count the calls of ``breakpoint()``, and let them do what they did."""
    noted = _Noted(page, sys.breakpointhook)
    if sys.__breakpointhook__ is sys.breakpointhook:  # what a script compares it with, or puts back
        sys.__breakpointhook__ = noted
    sys.breakpointhook = noted


class _Noted:
    """The hook that was there before, for whoever calls this one."""

    __name__ = "breakpointhook"

    def __init__(self, page: layout.Page, previous: "Any") -> None:
        self._page = page
        self._previous = previous
        self._pid = os.getpid()

    # Not a method: a debugger stops in the frame that has called its own, and that is not ours.
    @property
    def __call__(self) -> "Any":
        if os.getpid() == self._pid and os.environ.get("PYTHONBREAKPOINT") != "0":
            try:
                reached = self._page.read(layout.BREAKPOINTS)
                self._page.write(layout.BREAKPOINTS, reached + 1)
            except OSError:
                pass  # the script has closed our descriptor
        return self._previous
