"""Blocking calls off the agent's loop: a thread runs one, its end arrives in the inbox."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlrover_cli.workers.inbox import Inbox


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call that was started earlier has returned or raised."""

    call: "Call"


class Call:
    """One blocking call in a daemon thread of its own.

    The thread cannot be interrupted: whoever stops caring about the result forgets the call, and
    the thread ends with the call or with the process.
    """

    def __init__(self, inbox: Inbox, name: str, function: Callable[[], Any]) -> None:
        self._inbox = inbox
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None
        self.done = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def result(self) -> Any:
        """What the call returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            self._error = error
        self.done = True
        self._inbox.post(CallFinished(self))
