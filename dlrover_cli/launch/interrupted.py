"""A signal that arrives while nothing runs yet: the launcher ends at once, and in good order.

The agent takes signals as events of its loop. Before there is an agent, during seconds of imports,
the default would be to die on the spot, with neither result nor reason.
"""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import from_signal

_PYTHONS_CTRL_C = signal.default_int_handler


class Interrupted(DlroverError):
    """The launcher was signalled before its agent ran."""

    def __init__(self, signum: signal.Signals) -> None:
        super().__init__(f"the launcher received {signum.name}")
        self.sigval = signum
        self.exit_code = from_signal(signum)


@contextmanager
def interruptible(signals: Iterable[signal.Signals]) -> Iterator[Callable[[], None]]:
    """Raise Interrupted out of the block when one of the signals arrives; Ctrl-C stays Ctrl-C.

    What is being imported may swallow the exception: torch tries numpy in C++ and goes on without.
    The block gets a function that raises such a signal again, to be called when imports are over.
    Or it makes another one of it, which counts as the signal, too.

    Ignored signals, and those that somebody else handles, stay so. Outside the main thread handlers
    cannot be installed and this does nothing.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = {s: signal.getsignal(s) for s in signals if in_main_thread}
    ours = {s: how for s, how in before.items() if how in (signal.SIG_DFL, _PYTHONS_CTRL_C)}
    arrived: list[signal.Signals] = []

    def note_and_raise(number: int, frame: FrameType | None) -> None:
        arrived.append(signal.Signals(number))
        raise _Signalled(arrived[-1])

    def raise_swallowed() -> None:
        if arrived:
            raise _Signalled(arrived[0])

    for signum in ours:
        signal.signal(signum, note_and_raise)
    try:
        yield raise_swallowed
    except BaseException:
        if not arrived:
            raise
        if ours[arrived[0]] is _PYTHONS_CTRL_C:
            raise KeyboardInterrupt from None
        raise Interrupted(arrived[0]) from None
    finally:
        for signum, how in ours.items():
            signal.signal(signum, how)


class _Signalled(KeyboardInterrupt):
    """Passes through whatever is being imported, and through our own fences around plugins."""

    def __init__(self, signum: signal.Signals) -> None:
        super().__init__(f"the launcher received {signum.name}")
