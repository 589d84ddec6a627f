"""A signal that arrives while nothing runs yet: the launcher ends at once, and in good order.

The agent takes signals as events of its loop. Before there is an agent, during seconds of imports,
the default would be to die on the spot, with neither result nor reason.
"""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import from_signal


class Interrupted(DlroverError):
    """The launcher was signalled before its agent ran."""

    def __init__(self, signum: signal.Signals) -> None:
        super().__init__(f"the launcher received {signum.name}")
        self.sigval = signum
        self.exit_code = from_signal(signum)


@contextmanager
def interruptible(signals: Iterable[signal.Signals]) -> Iterator[None]:
    """Raise Interrupted out of the block when one of the signals arrives.

    Ignored ones stay ignored, and Python's own way with Ctrl-C stays. Outside the main thread
    handlers cannot be installed and this does nothing.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    ours = [s for s in signals if in_main_thread and signal.getsignal(s) == signal.SIG_DFL]
    for signum in ours:
        signal.signal(signum, _raise)
    try:
        yield
    except _Signalled as caught:
        raise Interrupted(caught.sigval) from None
    finally:
        for signum in ours:
            signal.signal(signum, signal.SIG_DFL)


class _Signalled(KeyboardInterrupt):
    """Passes through whatever is being imported, and through our own fences around plugins."""

    def __init__(self, signum: signal.Signals) -> None:
        super().__init__(f"the launcher received {signum.name}")
        self.sigval = signum


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Signalled(signal.Signals(number))
