"""The services of a configuration, ready to be asked, and let go of afterwards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dlrover_cli.scheduling.plugin import SessionPlugin
from dlrover_cli.scheduling.settings import ExtenderSettings


@contextmanager
def opened_extenders(
    extenders: Sequence[ExtenderSettings], say: Callable[[str], None]
) -> Iterator[Sequence[SessionPlugin]]:
    """One decider for each service, in their order; ``say`` is told what is ignored.

    What is not ignored makes a decision fail, and is the reason for that.
    """
    if not extenders:
        yield ()
        return
    # Models of the wire take a while to load; queues alone do without.
    from dlrover_cli.scheduling.remote import RemoteExtender, Trouble

    def tell(trouble: Trouble) -> None:
        if trouble.is_ignored:
            say(str(trouble))

    with ExitStack() as stack:
        yield [stack.enter_context(RemoteExtender(each, tell)) for each in extenders]
