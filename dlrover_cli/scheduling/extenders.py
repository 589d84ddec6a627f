"""The services of a configuration, ready to be asked, and let go of afterwards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dlrover_cli.scheduling.plugin import SessionPlugin
from dlrover_cli.scheduling.settings import ExtenderSettings


@contextmanager
def opened_extenders(
    extenders: Sequence[ExtenderSettings], say: Callable[[str], None]
) -> Iterator[Sequence[SessionPlugin]]:
    """One decider for each service, in their order; ``say`` is told what fails or is ignored."""
    if not extenders:
        yield ()
        return
    # Models of the wire take a while to load; queues alone do without.
    from dlrover_cli.scheduling.remote import RemoteExtender

    with ExitStack() as stack:
        yield [
            stack.enter_context(RemoteExtender(each, lambda trouble: say(str(trouble))))
            for each in extenders
        ]
