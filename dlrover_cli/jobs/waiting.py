"""Waiting for the end of a run that another process owns: its end wakes us, nothing is polled."""

import select
from time import monotonic

from dlrover_cli.contracts.run_states import ENDED
from dlrover_cli.jobs.journal import read_story
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.jobs.story import Story
from dlrover_cli.telemetry.process_identity import ProcessIdentity


def wait_for_end(files: RunFiles, timeout: float | None = None) -> Story:
    """The story of the run when it has ended, its owner is gone, or ``timeout`` seconds are over.

    An owner on another host cannot be watched from here and counts as gone. A lost run that is
    owned by somebody who lives is being stopped. Raises FileNotFoundError if the run is removed.
    """
    deadline = None if timeout is None else monotonic() + timeout
    while True:
        story = read_story(files.events)
        if story.state in ENDED or story.owner in (None, ProcessIdentity.own()):
            return story
        assert story.owner is not None
        with story.owner.opened() as descriptor:
            if descriptor is None or not _ends_before(descriptor, deadline):
                return read_story(files.events)  # it may have written its last words since


def wait_for_process(process: ProcessIdentity) -> bool:
    """Until it has ended; False if it cannot be watched, because it has ended or is elsewhere."""
    with process.opened() as descriptor:
        return descriptor is not None and _ends_before(descriptor, None)


def _ends_before(pidfd: int, deadline: float | None) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    left = None if deadline is None else max(0.0, 1000 * (deadline - monotonic()))
    return bool(poll.poll(left))
