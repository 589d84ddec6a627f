# filename mymetrics.py
"""A metrics handler that stores metrics in memory and allows to retrieve them.

From one's own launcher, `handler.get(name)` gives them back (see `../custom_launcher`). Under
`dlrover-run` they can be written to a file at the end:

    cd examples/metrics_in_memory
    dlrover-run --metrics_handler=mymetrics::MyMetricHandler --metrics_cfg=dump=metrics.json \
        --nproc-per-node=2 ../train_ddp.py
"""

import atexit
import json
import threading
from collections import defaultdict
from pathlib import Path

import torchelastic.metrics as metrics


class MyMetricHandler(metrics.MetricHandler):
    def __init__(self, dump: str | None = None) -> None:
        self._metrics = defaultdict(list)
        # Metrics are emitted in a thread of their own and read in the launcher's.
        self._lock = threading.Lock()
        if dump is not None:
            atexit.register(self._write, Path(dump).absolute())

    def emit(self, metric_data: metrics.MetricData):
        # Emit metrics
        with self._lock:
            self._metrics[metric_data.group_name, metric_data.name].append(metric_data)

    def get(self, name: str, group: str = "torchelastic") -> list[metrics.MetricData]:
        """Every value that the metric had so far, in order."""
        with self._lock:
            return list(self._metrics.get((group, name), []))

    def names(self, group: str = "torchelastic") -> list[str]:
        with self._lock:
            return sorted(name for owner, name in self._metrics if owner == group)

    def _write(self, path: Path) -> None:
        with self._lock:
            rows = [data._asdict() for series in self._metrics.values() for data in series]
        path.write_text(json.dumps(sorted(rows, key=lambda row: row["timestamp"]), indent=2))
