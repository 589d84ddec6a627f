"""examples/custom_launcher: torchelastic's documented launcher, with its placeholders filled in."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.launcher import Finished

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples"


@pytest.mark.full
def test_my_launcher_runs_and_gives_results_and_metrics_back(
    launch: Callable[..., Finished],
) -> None:
    path = [EXAMPLES / "custom_rendezvous", EXAMPLES / "metrics_in_memory", REPOSITORY]
    finished = launch(
        ["--nproc-per-node=2", "--steps=4"],
        command=[sys.executable, "-m", "mylauncher"],
        cwd=EXAMPLES / "custom_launcher",
        env={"PYTHONPATH": os.pathsep.join(map(str, path))},
    )
    assert finished.returncode == 0, finished
    assert "rank 0 of 2 took 4 steps" in finished.stdout
    assert "rank 1 of 2 took 4 steps" in finished.stdout
    assert "results by rank: {0: 4.0, 1: 4.0}" in finished.stdout
    assert "workers.default.succeeded" in finished.stdout
