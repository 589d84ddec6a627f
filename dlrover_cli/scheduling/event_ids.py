"""The ids of events: one that is sent again, since nobody knows whether it came, has its id again.

A place has a name that outlives sessions and processes, and so have its events. Where nobody has
given it one, an event is another one as soon as the last of its kind was taken.
"""

import uuid
from collections import Counter

from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.scheduling.model import TaskView

_NAMES = uuid.UUID("5f3a3c0e-5c0c-4a53-9b0a-6a2f5a0f6d11")
"""Any, as long as it stays the same."""


class EventIds:
    """Of one service."""

    def __init__(self) -> None:
        self.session = ""
        self._taken: Counter[tuple[Verb, str, str | None]] = Counter()

    def of(self, verb: Verb, task: TaskView) -> str:
        hold = task.place or f"{self.session}/{self._taken[verb, task.uid, task.node]}"
        return str(uuid.uuid5(_NAMES, "\n".join((verb, task.uid, task.node or "", hold))))

    def take(self, verb: Verb, task: TaskView) -> None:
        """The service has answered."""
        self._taken[verb, task.uid, task.node] += 1
