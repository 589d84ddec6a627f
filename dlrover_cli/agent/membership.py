"""Asking the rendezvous whether nodes wait to join, off the agent's loop."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from torch.distributed.elastic.rendezvous import RendezvousHandler

from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.workers.inbox import Inbox

_STOP_SECONDS = 1.0
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class NodesWaiting:
    """Nodes have arrived that are not part of the round."""

    watch: "MembershipWatch"
    count: int


class MembershipWatch:
    """Calls ``num_nodes_waiting`` every ``interval`` seconds in a thread of its own.

    A handler that is slow delays only the next question; one that raises is recorded once and asked
    again, less and less often: torch's store, once it is lost, fills stderr at each question. Posts
    one NodesWaiting and ends.
    """

    def __init__(
        self,
        handler: RendezvousHandler,
        interval: float,
        inbox: Inbox,
        record: Recorder,
        on_problem: Callable[[str], None],
    ) -> None:
        self._handler = handler
        self._interval = interval
        self._inbox = inbox
        self._record = record
        self._on_problem = on_problem
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more. A question that does not come back is left behind after a second."""
        self._stop.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        complained = False
        pause = self._interval
        while not self._stop.wait(pause):
            try:
                count = int(self._handler.num_nodes_waiting())
            except Exception as error:  # noqa: BLE001 - the fence around a user's handler
                if not complained:
                    complained = True
                    what = f"{type(error).__name__}: {error}"
                    self._record("rendezvous_handler_error", method="num_nodes_waiting", error=what)
                    self._on_problem(
                        f"the rendezvous handler raised in num_nodes_waiting ({what}); "
                        "the job goes on and new nodes may go unnoticed"
                    )
                pause = min(2 * pause, max(self._interval, _LONGEST_PAUSE))
                continue
            pause = self._interval
            if count > 0:
                self._inbox.post(NodesWaiting(self, count))
                return
