"""`dlrover-job top`: a running job rank by rank, refreshed until somebody has seen enough."""

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.job_why import story_of
from dlrover_cli.cli.output import Cell, Output, print_document, print_rows, remark, styled
from dlrover_cli.cli.run_ids import RunArgument, find_run, opened_ledger
from dlrover_cli.cli.run_view import as_document
from dlrover_cli.cli.top_picture import Picture, folded, picture_of
from dlrover_cli.cli.top_view import (
    NEVER,
    NOTHING,
    facts_of,
    fitting,
    rank_cells,
)
from dlrover_cli.exit_codes import from_signal
from dlrover_cli.jobs.ledger import RunRow
from dlrover_cli.telemetry.live_files import latest_samples

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

app = commands()
_REFRESH_SECONDS = 1.0
_LEAVING = ("q", "Q", "\x1b", "\x04")


@command(app, "top")
def watch_run(run: RunArgument = None, output: Output = None) -> None:
    """Watch a running job, rank by rank.

    Steps, CPU and memory of each, and what is odd. On a terminal it is refreshed every second
    until the run is over; q leaves. Elsewhere it is printed once. Everything comes from the run
    directory: the job is not slowed down.
    """
    row = _row(run)
    if output is not None:
        print_document({"run": as_document(row), **_look(row).to_json()}, output)
        return
    picture = _look(row)
    if sys.stdout.isatty() and not picture.is_over and os.environ.get("TERM") != "dumb":
        left_by = _watch(row.run_id)
        if left_by is None:
            return
        picture = left_by
    print_picture(picture)


def print_picture(picture: Picture) -> None:
    """All of it, once."""
    for name, cell in facts_of(picture):
        text = styled(cell.text, cell.style) if cell.style else cell.text
        print(f"{styled(name.ljust(8), 'bold')} {text}")
    if not picture.ranks:
        remark(NEVER if picture.is_over else NOTHING)
        return
    print()
    rows = [rank_cells(each, picture.now) for each in picture.ranks]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print_rows(*fitting(rows, width))


def _row(run: str | None) -> RunRow:
    with opened_ledger() as (ledger, _):
        return find_run(ledger, run)


def _look(row: RunRow) -> Picture:
    return picture_of(story_of(row), latest_samples(row.directory), time.time())


def _watch(run_id: str) -> Picture | None:
    """Show the run until it is over, and then its last picture; None if somebody has left."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    with (
        _keys() as pressed,
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
        _giving_way(live, pressed),
    ):
        while True:
            picture = _look(_row(run_id))
            if picture.is_over:
                return picture
            live.update(_screen(picture, console), refresh=True)
            if pressed(_REFRESH_SECONDS) in _LEAVING:
                return None
    return None


def _screen(picture: Picture, console: "Console") -> "Group":
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = facts_of(picture)
    lines = [
        Text(no_wrap=True, overflow="ellipsis").append(f"{name:8} ", "bold").append(*_styled(cell))
        for name, cell in facts
    ]
    if not picture.ranks:
        return Group(*lines, Text(), Text(NOTHING), Text("q leaves", "bright_black"))
    room = console.height - len(facts) - 5  # a blank, the heading with its line, and the foot
    shown, others = folded(picture.ranks, max(room, 1))
    cells = [rank_cells(each, picture.now) for each in shown]
    columns, rows = fitting(cells, console.width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        right = column.heading in ("Rank", "Step", "Steps/s", "CPU", "Memory", "Moved")
        table.add_column(column.heading, no_wrap=True, justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(*_styled(cell)) for cell in row))
    foot = [Text(f"… {others}", no_wrap=True, overflow="ellipsis")] if others else []
    return Group(*lines, Text(), table, *foot, Text("q leaves", "bright_black"))


def _styled(cell: Cell) -> tuple[str, str]:
    return cell.text, cell.style


@contextlib.contextmanager
def _giving_way(live: "Live", keys: "Keys") -> Iterator[None]:
    """Ctrl-Z and SIGTERM give the screen and the keys back; with `fg` the picture returns."""

    def stop(signum: int, frame: FrameType | None) -> None:
        live.stop()
        keys.release()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, stop)
        keys.take()
        live.start(refresh=True)

    def end(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(from_signal(signum))

    before = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGTERM)}
    signal.signal(signal.SIGTSTP, stop)
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _keys() -> Iterator["Keys"]:
    """What is typed, key by key; the terminal is as before afterwards."""
    keys = Keys(sys.stdin.fileno() if sys.stdin.isatty() else None)
    keys.take()
    try:
        yield keys
    finally:
        keys.release()


class Keys:
    """Called with seconds, waits so long for a key."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._before: list[Any] = []

    def take(self) -> None:
        """From now on each key comes at once, and is not shown."""
        if self._fd is not None:
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)

    def release(self) -> None:
        """Type as before."""
        if self._fd is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def __call__(self, seconds: float) -> str:
        """The key, or nothing."""
        if self._fd is None:
            time.sleep(seconds)
            return ""
        if not select.select([self._fd], [], [], seconds)[0]:
            return ""
        return os.read(self._fd, 16).decode(errors="replace")
