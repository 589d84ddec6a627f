"""Waiting for the end of a run that another process owns: its end wakes us, nothing is polled."""

import select
from time import monotonic

from dlrover_cli.jobs.journal import read_story
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.story import Story


def wait_for_end(files: RunFiles, timeout: float | None = None) -> Story:
    """The story of the run when it is over, its owner is gone, or ``timeout`` seconds have passed.

    An owner on another host cannot be watched from here and counts as gone.
    """
    deadline = None if timeout is None else monotonic() + timeout
    while True:
        story = read_story(files.events)
        if story.state.is_over or story.owner is None:
            return story
        with story.owner.opened() as descriptor:
            if descriptor is None or not _ends_before(descriptor, deadline):
                return read_story(files.events)  # it may have written its last words since


def _ends_before(pidfd: int, deadline: float | None) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    left = None if deadline is None else max(0.0, 1000 * (deadline - monotonic()))
    return bool(poll.poll(left))
