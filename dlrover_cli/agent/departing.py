"""Going because we were told to: the peers hear of it, and whoever waits for us does."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from dlrover_cli.agent.agreement import Agreement, LocalAgreement
from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.calls import Call
from dlrover_cli.agent.deciding import Decider
from dlrover_cli.agent.reports import of_departure
from dlrover_cli.failover.decide import Counters
from dlrover_cli.workers.api import WorkerExit
from dlrover_cli.workers.inbox import Inbox

_DEPARTURE_SECONDS = 1.0
_SILENCE_SECONDS = 1.0


def announce_departure(
    signum: signal.Signals,
    inbox: Inbox,
    attempt: RunningAttempt | None,
    agreement: Agreement,
    decider: Decider,
    counters: Counters,
) -> None:
    """Tell the peers that we go because we were told to, so that it costs them no restart."""
    if attempt is None or isinstance(agreement, LocalAgreement) or attempt.has_succeeded():
        return
    report = of_departure(socket.gethostname(), signum.name)
    settle = partial(decider.settle, counters=counters)
    call = Call(inbox, "departure", lambda: agreement.depart(report, settle, _DEPARTURE_SECONDS))
    deadline = time.monotonic() + _DEPARTURE_SECONDS
    while not call.done:
        match inbox.next(deadline):
            case WorkerExit() as exit_:
                attempt.note(exit_)
            case None:
                return
            case _:
                pass


@contextlib.contextmanager
def telling_of_patience(
    signum: signal.Signals, timeout: float, say: Callable[[str], None]
) -> Iterator[None]:
    """Whoever pressed Ctrl-C should not wonder for half a minute whether it was noticed."""
    line = (
        f"{signum.name} received: the workers have {timeout:g} s to end; "
        "Ctrl-C or SIGINT kills them at once"
    )
    timer = threading.Timer(_SILENCE_SECONDS, say, [line])
    timer.name = "patience"
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
