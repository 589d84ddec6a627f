"""examples/metrics_in_memory: metrics go into memory and come back."""

import json
from collections.abc import Callable
from pathlib import Path

from torch.distributed.elastic.metrics.api import put_metric

from dlrover_cli.telemetry.metrics import MetricsFanOut, install
from dlrover_cli.telemetry.metrics_loading import load_metrics_handlers
from tests.harness.launcher import Finished
from tests.plugins.user_code import forgetting_imports

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "metrics_in_memory"
REFERENCE = "mymetrics::MyMetricHandler"


def test_metrics_are_given_back() -> None:
    with forgetting_imports(EXAMPLES):
        loaded = load_metrics_handlers([REFERENCE], {}, [FOLDER])
    fan_out = MetricsFanOut(loaded)
    undo = install(fan_out)
    put_metric("loss", 3)
    put_metric("loss", 2)
    put_metric("speed", 7, "mine")
    undo()
    assert fan_out.close(10) == 0
    handler = loaded[0].handler
    assert [data.value for data in handler.get("loss")] == [3, 2]  # type: ignore[attr-defined]
    assert handler.names() == ["loss"]  # type: ignore[attr-defined]
    assert handler.get("speed", "mine")[0].value == 7  # type: ignore[attr-defined]
    assert handler.get("unknown") == []  # type: ignore[attr-defined]


def test_the_launcher_writes_them_to_the_file_it_was_told(
    launch: Callable[..., Finished], tmp_path: Path
) -> None:
    dump = tmp_path / "metrics.json"
    finished = launch(
        [
            f"--metrics_handler={REFERENCE}",
            f"--metrics_cfg=dump={dump}",
            "--no-python",
            "/bin/true",
        ],
        cwd=FOLDER,
        real=True,
    )
    assert finished.returncode == 0, finished
    names = {row["name"] for row in json.loads(dump.read_text())}
    assert {"workers.default.succeeded", "workers.default.run_total"} <= names
