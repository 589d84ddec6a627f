"""Where the workers are: their Python stacks on request, grouped so that the odd one stands out."""

import contextlib
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlrover_cli.workers.bootstrap.in_worker.faults import STACK_SIGNAL, STACKS_FILE

_LONGEST_DUMP = 1 << 18
_LOOK_SECONDS = 0.002
# How long a dump may stand still before it counts as complete without the kernel's word for it.
_STILL_SECONDS = 0.5
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_WAITS_FOR_PEERS = ("_engine_run_backward", "synchronize")
_STATES = {"D": "uninterruptible", "R": "running", "S": "sleeping", "T": "stopped", "t": "traced"}


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    function: str

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    @property
    def is_standard_library(self) -> bool:
        return self.file.startswith("<frozen") or (
            "/lib/python3." in self.file and not self.is_installed
        )

    @property
    def is_installed(self) -> bool:
        return "site-packages" in self.file or "dist-packages" in self.file


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker's main thread is: the library function it sits in, and the user's line."""

    frame: Frame
    own: Frame | None

    def __str__(self) -> str:
        if self.own is None or self.own == self.frame:
            return f"{self.frame.function} ({self.frame.name}:{self.frame.line})"
        return (
            f"{self.frame.function} ({self.frame.name}), "
            f"called from {self.own.name}:{self.own.line} in {self.own.function}"
        )


def dump_stacks(
    workers: Mapping[int, int], directories: Mapping[int, Path], deadline: float
) -> dict[int, str]:
    """The stacks of all threads of each worker, by local rank.

    ``workers`` has their pids, ``directories`` what they were told to be their directory. Returns
    by ``deadline`` (``time.monotonic``) at the latest. A worker that gives no stack gets a sentence
    instead that says why. The workers go on: the request goes only to those that handle it, and
    costs them an interrupted system call at most.
    """
    requests = {
        local_rank: _Request(pid, Path(directories[local_rank]) / STACKS_FILE)
        for local_rank, pid in workers.items()
        if local_rank in directories
    }
    try:
        for request in requests.values():
            request.send()
        waiting = list(requests.values())
        while (waiting := [request for request in waiting if not request.is_answered()]) and (
            time.monotonic() < deadline
        ):
            time.sleep(_LOOK_SECONDS)
        return {local_rank: request.answer() for local_rank, request in requests.items()}
    finally:
        for request in requests.values():
            request.close()


def parse_stacks(text: str) -> list[list[Frame]]:
    """One list of frames per thread, innermost first; the main thread is the last."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif threads and (match := _FRAME.fullmatch(line)):
            threads[-1].append(Frame(match["file"], int(match["line"]), match["function"]))
    return threads


def place_of(text: str) -> Place | None:
    """Where the main thread is; None if the text has no stack."""
    frames = next((frames for frames in reversed(parse_stacks(text)) if frames), None)
    if frames is None:
        return None
    own = next((f for f in frames if not f.is_standard_library and not f.is_installed), None)
    return Place(next((f for f in frames if not f.is_standard_library), frames[0]), own)


def summarise(stacks: Mapping[int, str]) -> str:
    """One line per place, with the ranks that are there; the largest group first."""
    groups = sorted(_groups(stacks).items(), key=lambda group: (-len(group[1]), group[1]))
    return "\n".join(
        f"{_ranks_in_words(ranks)}: {place if isinstance(place, str) else f'in {place}'}"
        for place, ranks in groups
    )


def odd_one_out(stacks: Mapping[int, str]) -> int | None:
    """The one rank that is not where the others wait for it; None if no single one stands out."""
    if len(stacks) < 2:
        return None
    outside = [rank for rank, text in stacks.items() if not _waits_for_peers(text)]
    if len(outside) == 1:
        return outside[0]
    largest, *others = sorted(_groups(stacks).values(), key=len, reverse=True)
    if len(largest) >= 2 and len(others) == 1 and len(others[0]) == 1:
        return others[0][0]
    return None


@dataclass(slots=True)
class _Request:
    """One worker that is asked for its stacks."""

    pid: int
    path: Path
    _handle: int | None = None
    _offset: int = 0
    _refusal: str = ""
    _blocking: frozenset[str] = frozenset()
    _text: bytes = b""
    _changed: float = field(default_factory=time.monotonic)

    def send(self) -> None:
        try:
            self._handle = os.pidfd_open(self.pid)
            # After the handle was opened: what is read here is true of the process it stands for.
            if not _has_signal(_status(self.pid), "SigCgt"):
                self._refusal = "it does not answer; not a Python worker, or it became another"
                return
            self._offset = self.path.stat().st_size
            self._blocking = self._threads_blocking()
            signal.pidfd_send_signal(self._handle, STACK_SIGNAL)
        except ProcessLookupError:
            self._refusal = "it has ended"
        except OSError as error:
            self._refusal = f"{error.strerror}: {error.filename}"

    def is_answered(self) -> bool:
        """Whether the dump is complete.

        The kernel blocks a signal in the thread that handles it: once text has come and no thread
        blocks the signal that did not do so before, the handler has returned.
        """
        if self._refusal:
            return True
        text = self._read()
        if text != self._text:
            self._text = text
            self._changed = time.monotonic()
        if not text.endswith(b"\n"):
            return _cannot_answer(self.pid)
        if self._threads_blocking() <= self._blocking:
            # It may have written its last lines between the two looks.
            self._text = self._read()
            return True
        return time.monotonic() - self._changed >= _STILL_SECONDS

    def answer(self) -> str:
        if self._text:
            return self._text.decode("utf-8", "replace")
        state = _state_in_words(self.pid)
        return f"no Python stack: {self._refusal or f'no answer ({state})'}"

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                return file.read(_LONGEST_DUMP)
        except OSError:
            return b""

    def _threads_blocking(self) -> frozenset[str]:
        found = set()
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                if _has_signal(_status(f"{self.pid}/task/{thread}"), "SigBlk"):
                    found.add(thread)
        return frozenset(found)


def _status(process: int | str) -> str:
    try:
        return Path(f"/proc/{process}/status").read_text()
    except OSError:
        return ""


def _has_signal(status: str, mask: str) -> bool:
    found = re.search(rf"^{mask}:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (STACK_SIGNAL - 1) & 1)


def _cannot_answer(pid: int) -> bool:
    """Gone, or stopped by a signal or a debugger."""
    return _state(pid) in ("", "Z", "X", "T", "t")


def _state(pid: int) -> str:
    found = re.search(r"^State:\s*(\w)", _status(pid), re.MULTILINE)
    return "" if found is None else found[1]


def _state_in_words(pid: int) -> str:
    state = _state(pid)
    if state in ("", "Z", "X"):
        return "it has ended"
    words = f"it is {_STATES.get(state, state)}"
    try:
        where = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        where = ""
    return f"{words} in the kernel's {where}" if where not in ("", "0") else words


def _groups(stacks: Mapping[int, str]) -> dict[Place | str, list[int]]:
    groups: defaultdict[Place | str, list[int]] = defaultdict(list)
    for rank, text in sorted(stacks.items()):
        place = place_of(text)
        groups[text.strip() if place is None else place].append(rank)
    return groups


def _waits_for_peers(text: str) -> bool:
    place = place_of(text)
    return place is not None and (
        place.frame.name == "distributed_c10d.py" or place.frame.function in _WAITS_FOR_PEERS
    )


def _ranks_in_words(ranks: Sequence[int]) -> str:
    """``rank 3``, ``2 ranks (0, 1)``, ``7 ranks (0-2, 4-7)``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    names = ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
    return f"{len(ranks)} ranks ({names})"
