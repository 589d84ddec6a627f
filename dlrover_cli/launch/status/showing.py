"""Whether there is a status line, and for how long: what draws it is loaded where there is one."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.telemetry.events import EventLog

if TYPE_CHECKING:
    from dlrover_cli.telemetry.live import NodeSample, SampleListener

SampleSource = Callable[[], "Sequence[NodeSample]"]
"""The latest samples of all nodes; asked from the thread that draws."""


def is_wanted(settings: LaunchSettings, environ: Mapping[str, str]) -> bool:
    """Whether a person sits at the terminal who has not asked for silence."""
    if settings.debug_rank is not None or settings.pdb:  # the terminal is the debugger's
        return False
    if settings.quiet or settings.json_output or settings.compat != "none":
        return False
    return may_draw(environ) and sys.stderr is not None and os.isatty(2)


def may_draw(environ: Mapping[str, str]) -> bool:
    """Whether a terminal would show a line that is drawn again and again, and nobody minds."""
    is_able = environ.get("TERM", "") not in ("", "dumb")
    return is_able and not environ.get("CI") and not environ.get("NO_COLOR")


@contextmanager
def showing_status(
    settings: LaunchSettings,
    events: EventLog,
    *,
    samples: SampleSource | None = None,
) -> "Iterator[tuple[SampleListener, ...]]":
    """Show the run while inside; the terminal is as before on every way out.

    Yields the listeners that the samples of this node go to: none where there is no line.
    """
    if not is_wanted(settings, os.environ):
        yield ()
        return
    # Only now: most launchers have no terminal, and start without it.
    from dlrover_cli.launch.status.line import StatusLine, stopping_in_good_order
    from dlrover_cli.launch.status.row import LastRow

    try:
        row = LastRow(2)
    except OSError:
        yield ()
        return
    line = StatusLine(row, samples, asks=settings.interactive)
    events.subscribe(line.note_event)
    try:
        with stopping_in_good_order(line):
            line.start()
            yield (line.note_sample,)
    finally:
        line.close()
