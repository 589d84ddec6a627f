r"""Searching with a user's pattern without trusting it: it may take for ever, and then it is ended.

`(a+)+$` needs years for forty characters, and Python holds its global lock all the while: the whole
agent would stand still. So only patterns that cannot backtrack are searched for in this process;
all others go to a helper process that is killed when it is late.
"""

import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_PROCESS = Path(__file__).with_name("pattern_process.py")
_START_SECONDS = 10.0
_LONGEST_SHOWN = 60


class PatternFence:
    """Searches on behalf of one decision; a `with` block ends the helper process.

    `per_pattern` are the seconds that one search may take, `patience` all of them together.
    """

    def __init__(self, *, per_pattern: float = 1.0, patience: float = 5.0) -> None:
        self._per_pattern = per_pattern
        self._left = patience
        self._helper: _Helper | None = None
        self.problems: list[str] = []
        """One sentence for each pattern that got no answer; those count as not found."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_helper()

    def search(self, pattern: re.Pattern[str], text: str) -> bool:
        """Whether the pattern is found; False, and a problem, where there was no answer in time."""
        if _cannot_backtrack(pattern):
            return pattern.search(text) is not None
        try:
            return self._ask(pattern, text)
        except OSError as error:
            self._end_helper()
            self.problems.append(
                f"the pattern {pattern.pattern[:_LONGEST_SHOWN]!r} counts as not found: {error}"
            )
            return False

    def _ask(self, pattern: re.Pattern[str], text: str) -> bool:
        patience = min(self._per_pattern, self._left)
        if patience <= 0:
            raise TimeoutError("the searches before it have used up the time")
        if self._helper is None:
            self._helper = _Helper()
        started = time.monotonic()
        try:
            return self._helper.search(pattern, text, patience)
        finally:
            self._left -= time.monotonic() - started

    def _end_helper(self) -> None:
        if self._helper is not None:
            self._helper.end()
            self._helper = None


class _Helper:
    """The process that searches; every trouble with it is an OSError."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROCESS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            # A busy machine may be slow to start it, which is not the pattern's fault.
            self._answer(_START_SECONDS)
        except OSError:
            self.end()
            raise

    def search(self, pattern: re.Pattern[str], text: str, patience: float) -> bool:
        question = json.dumps([pattern.pattern, pattern.flags, text])
        assert self._process.stdin is not None
        self._process.stdin.write(question.encode("ascii") + b"\n")
        self._process.stdin.flush()
        return self._answer(patience) == b"1"

    def _answer(self, patience: float) -> bytes:
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if not poll.poll(patience * 1000):
            raise TimeoutError(f"the search took longer than {patience:g} s")
        answer = os.read(self._process.stdout.fileno(), 1)
        if not answer:
            raise ChildProcessError("the process that searches has ended")
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _cannot_backtrack(pattern: re.Pattern[str]) -> bool:
    """Whether nothing in it repeats, is optional or is grouped: plain words, classes, choices."""
    return not _REPEATS_OR_GROUPS.search(pattern.pattern)


_REPEATS_OR_GROUPS = re.compile(r"[*+?{(]")
