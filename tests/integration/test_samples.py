"""The samples of real runs: every attempt has its last one, and what it counted is true."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.telemetry.live import RankState
from dlrover_cli.telemetry.live_files import latest_samples

TRAIN = """
import torch

optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
for step in range(30):
    optimizer.step()
    if attempt == 0 and rank == 1 and step == 20:
        raise ValueError("on purpose")
"""
FUNCTION = """
from dlrover_cli import LaunchConfig, elastic_launch


def work():
    import torch

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    for _ in range(12):
        optimizer.step()


if __name__ == "__main__":
    elastic_launch(LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2), work)()
"""


def node_of(state: Path) -> Path:
    [node] = state.glob("dlrover/runs/*/nodes/*")
    return node


def history(node: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (node / "samples.jsonl").read_text().splitlines()]


def test_every_attempt_leaves_its_last_sample_with_all_of_its_steps(
    launch, scripts, tmp_path
) -> None:
    script = scripts.write("train.py", TRAIN)
    finished = launch(["--nproc-per-node=2", "--max-restarts=1", script])
    assert finished.returncode == 0, finished
    node = node_of(tmp_path / "state")
    ends = [line for line in history(node) if line["ended"]]
    assert [line["attempt"] for line in ends] == [0, 1]
    assert ends[0]["steps"]["1"] == 21
    assert ends[1]["steps"] == {"0": 30, "1": 30}
    [sample] = latest_samples(node.parents[1]).values()
    assert (sample.attempt, sample.restart_count, sample.ended) == (1, 1, True)
    assert [rank.state for rank in sample.ranks] == [RankState.SUCCEEDED] * 2
    assert [rank.global_rank for rank in sample.ranks] == [0, 1]


@pytest.mark.full
def test_functions_are_sampled_too(launch, tmp_path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FUNCTION)
    finished = launch([program], command=[sys.executable])
    assert finished.returncode == 0, finished
    last = history(node_of(tmp_path / "state"))[-1]
    assert last["ended"]
    assert last["steps"] == {"0": 12, "1": 12}
