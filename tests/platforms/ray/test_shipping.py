"""Files of an agent that are brought over piece by piece; both ends of it, without Ray between."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.platforms.ray import host
from dlrover_cli.platforms.ray.host import AgentHost, look_around
from dlrover_cli.platforms.ray.shipping import Shipment
from dlrover_cli.telemetry.run_dir import write_json_atomically

PROGRAM = """\
import json, os, pathlib
part = json.loads(os.environ["PART"])
place = pathlib.Path(part["run_directory"], "nodes", "a.0")
place.mkdir(parents=True)
(place / "events.jsonl").write_text("one\\n")
print(part["run_directory"])
raise SystemExit(7)
"""


@pytest.fixture
def plan(tmp_path: Path) -> dict[str, Any]:
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    (run / "probe").write_text("token")
    return {
        "agent": "a.0",
        "argv": [sys.executable, "-c", PROGRAM],
        "environ": {"PART": json.dumps({"run_directory": str(run)})},
        "cwd": str(tmp_path),
        "run_id": "r1",
        "run_directory": str(run),
        "probe": str(run / "probe"),
        "token": "token",
        "part_variable": "PART",
        "has_devices": False,
    }


@pytest.fixture
def agent_host() -> Iterator[AgentHost]:
    made = AgentHost()
    yield made
    made.forget()


def test_an_agent_writes_to_the_run_directory_where_it_is_shared(
    agent_host: AgentHost, plan: dict[str, Any]
):
    assert agent_host.start(plan)["shares"]
    assert agent_host.wait() == 7
    run = Path(plan["run_directory"])
    assert (run / "agents/a.0/stdout.log").read_text() == f"{run}\n"
    assert agent_host.read({}) == []


def test_what_an_agent_writes_elsewhere_is_brought_over_and_removed_there(
    agent_host: AgentHost, plan: dict[str, Any], tmp_path: Path
):
    plan["probe"] = str(tmp_path / "not-there")
    assert not agent_host.start(plan)["shares"]
    assert agent_host.wait() == 7
    there = Path(agent_host._root)
    run = Path(plan["run_directory"])
    shipment = Shipment(run, pytest.fail)
    shipment.take(agent_host.read(shipment.seen))
    assert (run / "nodes/a.0/events.jsonl").read_text() == "one\n"
    assert (run / "agents/a.0/stdout.log").read_text() == f"{there}\n"
    assert agent_host.read(shipment.seen) == []

    with (there / "nodes/a.0/events.jsonl").open("a") as file:
        file.write("two\n")
    write_json_atomically(there / "result.json", {"exit_code": 1})
    shipment.take(agent_host.read(shipment.seen))
    write_json_atomically(there / "result.json", {"exit_code": 0})
    shipment.take(agent_host.read(shipment.seen))
    assert (run / "nodes/a.0/events.jsonl").read_text() == "one\ntwo\n"
    assert json.loads((run / "result.json").read_text()) == {"exit_code": 0}
    agent_host.forget()
    assert not there.exists()


def test_much_is_brought_over_in_several_pieces(
    agent_host: AgentHost,
    plan: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(host, "_MOST_BYTES", 1000)
    plan["probe"] = str(tmp_path / "not-there")
    agent_host.start(plan)
    agent_host.wait()
    there = Path(agent_host._root)
    content = os.urandom(4500)
    (there / "large.bin").write_bytes(content)
    shipment = Shipment(tmp_path / "copy", pytest.fail)
    pieces = 0
    while parts := agent_host.read(shipment.seen):
        assert sum(len(data) for *_, data in parts) <= 1000
        shipment.take(parts)
        pieces += 1
    assert pieces >= 5
    assert (tmp_path / "copy" / "large.bin").read_bytes() == content


def test_nothing_is_written_outside_the_run_directory(tmp_path: Path):
    shipment = Shipment(tmp_path / "run", pytest.fail)
    shipment.take([("../escaped", 1, 0, b"x")])
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize(
    "change, problem",
    [
        ({}, ""),
        ({"cwd": "/not/there"}, "there is no directory /not/there"),
        ({"interpreter": "/not/python"}, "there is no interpreter /not/python"),
        ({"files": ["missing.py"]}, "there is no missing.py, or it cannot be read"),
        ({"program": "no-such-program"}, "there is no program no-such-program"),
        ({"modules": ["json", "no_such_module"]}, "has no module no_such_module"),
    ],
)
def test_a_node_says_what_it_lacks(tmp_path: Path, change: dict[str, Any], problem: str):
    wanted = {
        "cwd": str(tmp_path),
        "interpreter": sys.executable,
        "files": [],
        "modules": ["json"],
        "program": "",
        "path": os.environ["PATH"],
    }
    found = look_around(wanted | change)["problem"]
    assert problem in found
    assert bool(found) == bool(problem)


def test_secrets_of_a_node_are_no_facts_about_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("RAY_CLUSTER_NAME", "raycluster-1")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    wanted = {"cwd": "/not/there", "interpreter": "", "files": [], "modules": []}
    envs = look_around(wanted)["envs"]
    assert envs["RAY_CLUSTER_NAME"] == "raycluster-1"
    assert "RAY_AUTH_TOKEN" not in envs
