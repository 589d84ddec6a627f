"""A metrics handler as its author sees it: each measurement, and when a run starts and ends.

torch's own `MetricHandler` is as good a base. `start` and `close` are called if a handler has them.
A metric has torch's four fields, `timestamp, group_name, name, value`; those of the group
``dlrover`` have `labels` besides.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENTRY_POINTS = "dlrover.metrics_handler"
"""The group of entry points whose names can be given to ``--metrics_handler``."""

GROUP = "dlrover"
"""The group of the launcher's own metrics; those of torch's agent are in ``torchelastic``."""


@dataclass(frozen=True, slots=True)
class MetricsContext:
    """The run that a handler is there for."""

    run_id: str
    host: str
    role: str
    directory: Path
    """Of this node in the run directory; private to the user."""
    record: Callable[..., None]
    """``record(kind, **data)`` puts an event into the node's journal."""
    say: Callable[[str], None]
    """One line on stderr."""


class MetricHandler(ABC):
    """Gets every metric of a run in a thread of its own; it may take its time, or raise.

    The constructor gets those keys of ``--metrics_cfg`` that it has parameters for. It is called
    for ``--dry_run`` too, and starts nothing.
    """

    def start(self, context: MetricsContext) -> None:  # noqa: B027 - most have nothing to start
        """Called once before the first metric and before the nodes meet.

        What it raises ends the run before it begins.
        """

    @abstractmethod
    def emit(self, metric_data: Any) -> None:
        """Take one metric."""

    def close(self) -> None:  # noqa: B027 - nor anything to end
        """Called once after the last metric, in the thread of `emit`."""
