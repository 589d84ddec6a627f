"""``dlrover_cli.heartbeat()``: a worker says that it is alive where no optimizer step says it.

For long evaluations, checkpoints and data preparation, and for training without torch's
optimizers. Outside of a worker, and in processes that a worker started, it does nothing.
"""

import os
from time import monotonic_ns

from dlrover_cli.workers.bootstrap import BEAT_FILE
from dlrover_cli.workers.bootstrap.in_worker import page as layout

_cells: "layout.Cells | None" = None
_looked_in = 0


def heartbeat() -> None:
    """Tell the agent that this worker makes progress. Costs about a microsecond; never raises."""
    global _cells, _looked_in
    # A forked child has our cells mapped too, and is not the worker.
    if os.getpid() != _looked_in:
        _cells = _find_cells()
        _looked_in = os.getpid()
    if _cells is None:
        return
    _cells[layout.HEARTBEAT_NS] = monotonic_ns()
    _cells[layout.HEARTBEATS] += 1
    _cells[layout.PHASE] = layout.TRAINING


def _find_cells() -> "layout.Cells | None":
    path = os.environ.get(BEAT_FILE)
    if not path:
        return None
    try:
        page = layout.open_page(path)
        try:
            return page.cells() if page.claim() else None
        finally:
            page.close()
    except (OSError, ValueError):
        return None  # the agent is gone with its page, or the variable is somebody else's
