"""``--metrics_handler=jsonl``: one JSON object per line, for whoever looks at the run later.

What happens is written when it happens; what is sampled, at most every ``interval`` seconds for
each series, and once more at the end. A full disk costs lines and one sentence, never the job.
"""

import json
import os
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.metrics import MetricHandler, MetricsContext
from dlrover_cli.errors import ConfigError
from dlrover_cli.telemetry.handlers.keys import seconds
from dlrover_cli.telemetry.whole_writes import append_line

Series = tuple[Any, ...]


class JsonlHandler(MetricHandler):
    """Appends to ``path``, by default `metrics.jsonl` in the node's directory of the run."""

    def __init__(self, path: str = "", interval: str = "10") -> None:
        self._path = Path(path).expanduser() if path else None
        self._interval = seconds("interval", interval)
        self._fd: int | None = None
        self._context: MetricsContext | None = None
        self._written: dict[Series, float] = {}
        self._held_back: dict[Series, Any] = {}
        self._lost = 0

    def start(self, context: MetricsContext) -> None:
        self._context = context
        path = self._path or context.directory / "metrics.jsonl"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            raise ConfigError(
                f"--metrics_handler=jsonl cannot write to {path}: {error.strerror}",
                setting="metrics_cfg",
                hint="name a file in a directory that is there: --metrics_cfg=path=metrics.jsonl",
            ) from None

    def emit(self, metric_data: Any) -> None:
        if getattr(metric_data, "is_past", False):
            return  # it is in the file already
        instrument = getattr(metric_data, "instrument", None)
        if instrument is None or not instrument.is_sampled:
            self._write(metric_data)
            return
        series = (metric_data.name, *metric_data.labels.values())
        before = self._written.get(series)
        if before is not None and metric_data.timestamp - before < self._interval:
            self._held_back[series] = metric_data
            return
        self._written[series] = metric_data.timestamp
        self._held_back.pop(series, None)
        self._write(metric_data)

    def close(self) -> None:
        for metric in self._held_back.values():
            self._write(metric)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._lost and self._context is not None:
            self._context.say(f"metrics: {self._lost} lines could not be written")

    def _write(self, metric: Any) -> None:
        if self._fd is None:
            return
        line = {
            "time": metric.timestamp,
            "group": metric.group_name,
            "name": metric.name,
            "value": metric.value,
            "labels": dict(getattr(metric, "labels", {})),
        }
        try:
            append_line(self._fd, (json.dumps(line, default=str) + "\n").encode("ascii"))
        except OSError as error:  # there may be room again for the next line
            self._lost += 1
            if self._lost == 1 and self._context is not None:
                self._context.say(
                    f"metrics: cannot write metrics.jsonl: {error.strerror}; "
                    "lines are lost until there is room"
                )
