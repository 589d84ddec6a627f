"""Metrics of real runs: a scrape by Prometheus' own parser, with a restart in between."""

import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.launcher import Finished, Running
from tests.harness.waiting import eventually

STEPS = """
import os, pathlib, sys, time, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rank, attempt = os.environ["RANK"], os.environ["DLROVER_ATTEMPT"]
while not pathlib.Path(sys.argv[1], f"end-{attempt}").exists():
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
if attempt == "0" and rank == "1":
    raise RuntimeError("once")
"""
Families = dict[str, Any]


def scraped(url: str) -> Families:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return families_of(answer.read().decode())


def families_of(text: str) -> Families:
    return {
        key_of(sample.name, sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def key_of(name: str, labels: dict[str, str]) -> str:
    own = {name: label for name, label in labels.items() if name not in ("run_id", "host", "role")}
    return f"{name}{sorted(own.items())}"


def key(name: str, **labels: str) -> str:
    return key_of(name, {"node": "0", **labels})


def url_said_by(running: Running) -> str:
    running.wait_for("/metrics\n")
    found = re.search(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", running.stderr)
    assert found is not None
    return found[1]


def test_a_live_run_is_scraped_and_its_counters_survive_a_restart(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    script, textfile = tmp_path / "steps.py", tmp_path / "run.prom"
    script.write_text(STEPS)
    running = start(
        [
            *("--nproc-per-node=2", "--max-restarts=1", "--metrics_handler=prometheus"),
            *(f"--metrics_cfg=port=0,textfile={textfile}", str(script), str(tmp_path)),
        ]
    )
    url = url_said_by(running)
    steps = key("dlrover_worker_steps_total", rank="1")
    before = eventually(
        lambda: (found := scraped(url)).get(steps, 0) > 2 and found, 60, what="steps of rank 1"
    )
    assert before[key("dlrover_attempt")] == 0
    assert before[key("dlrover_worker_memory_bytes", rank="0")] > 1e6
    assert before[key("dlrover_restarts_total", kind="restart_workers")] == 0
    (tmp_path / "end-0").touch()

    def went_on() -> Families | None:
        found = scraped(url)
        is_there = found.get(key("dlrover_attempt")) == 1
        return found if is_there and found[steps] > before[steps] + 10 else None

    after = eventually(went_on, 60, what="steps of the second attempt")
    assert after[key("dlrover_restarts_total", kind="restart_workers")] == 1
    assert after[key("dlrover_failures_total", kind="exception")] == 1
    assert after[key("dlrover_recovery_seconds_count", kind="restart_workers")] == 1
    assert 0 < after[key("dlrover_goodput_ratio")] < 1
    assert after[key("dlrover_rendezvous_seconds_count")] == 2
    (tmp_path / "end-1").touch()
    assert running.finish().returncode == 0
    with pytest.raises(OSError, match="refused"):
        scraped(url)
    at_end = families_of(textfile.read_text())
    assert at_end[key("dlrover_exit_code")] == 0
    assert at_end[steps] >= after[steps]
    assert at_end[key("dlrover_worker_up", rank="1")] == 0


@pytest.mark.full
def test_a_replaced_launcher_goes_on_counting(
    launch: Callable[..., Finished], tmp_path: Path
) -> None:
    textfile, folder = tmp_path / "run.prom", tmp_path / "state"
    script = "import os, sys; sys.exit(7 if os.environ['DLROVER_ATTEMPT'] == '0' else 0)"
    (tmp_path / "once.py").write_text(script)
    rule = '[[rules]]\nname = "mine"\nwhen = {exit_code = 7}\nstrategy = "node"\n'
    (tmp_path / "rules.toml").write_text(rule)
    finished = launch(
        [
            *("--metrics_handler=prometheus", "--metrics_handler=jsonl"),
            f"--metrics_cfg=port=0,textfile={textfile}",
            f"--failover_rules={tmp_path / 'rules.toml'}",
            str(tmp_path / "once.py"),
        ],
        env={"XDG_STATE_HOME": str(folder)},
        real=True,
    )
    assert finished.returncode == 0, finished
    at_end = families_of(textfile.read_text())
    assert at_end[key("dlrover_restarts_total", kind="replace_node")] == 1
    assert at_end[key("dlrover_recovery_seconds_count", kind="replace_node")] == 1
    [journal] = folder.glob("dlrover/runs/*/nodes/*/metrics.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [line["name"] for line in lines].count("recovery_seconds") == 1


def test_the_console_says_how_it_went(launch: Callable[..., Finished], tmp_path: Path) -> None:
    finished = launch(["--metrics_handler=console", "--no-python", "/bin/true"])
    assert finished.returncode == 0, finished
    lines = [line for line in finished.stderr.splitlines() if "metrics:" in line]
    assert len(lines) == 1
    assert re.search(r"metrics: attempt 0, 0 of 1 worker running, goodput \d+%", lines[0])
