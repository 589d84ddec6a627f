"""examples/unified_extension: pods are deleted, machines switched, each where it can be."""

import asyncio
import importlib.util
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.manager import (
    Deployment,
    EngineMode,
    Ground,
    ManagerExtension,
    NodeInfo,
)
from dlrover_cli.manager.extensions import InstalledExtension, compose
from tests.harness.launcher import Finished

EXAMPLE = Path(__file__).parents[2] / "examples" / "unified_extension"
NODES = [NodeInfo("1", "ray-worker-a", "10.0.0.1"), NodeInfo("2", "ray-worker-b", "10.0.0.2")]


@dataclass
class View:
    deployment: Deployment
    run_id: str = "r"
    nodes: list[NodeInfo] = field(default_factory=list)


def load(module: str, name: str) -> type:
    spec = importlib.util.spec_from_file_location(module, EXAMPLE / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    cls: type = getattr(loaded, name)
    return cls


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ground], ManagerExtension]:
    """Both of them as one object, as the manager makes it, on a ground."""
    monkeypatch.setattr(ManagerExtension, "_registered", [])
    installed = [
        InstalledExtension(name, "", "", "", 0.0, load(module, name), None)
        for module, name in (("delete_pod", "DeletePod"), ("power_cycle", "PowerCycle"))
    ]

    def make(ground: Ground) -> ManagerExtension:
        facts = {"RAY_CLUSTER_NAMESPACE": "training"}
        made = compose(installed, View(Deployment("ray", ground, EngineMode.CLUSTER, facts)))
        assert made.extension is not None
        return made.extension

    return make


def replaced(extension: ManagerExtension) -> list[str]:
    return [node.id for node in asyncio.run(extension.relaunch_nodes_impl(NODES))]


class TestMachines:
    @pytest.fixture
    def calls(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A command that records how it is called; it fails for one of the nodes."""
        program, calls = tmp_path / "power", tmp_path / "calls"
        program.write_text(f'#!/bin/sh\necho "$# $*" >> {calls}\ntest "$2" != ray-worker-b\n')
        program.chmod(0o755)
        monkeypatch.setenv("DLROVER_POWER_CYCLE", f"{program} 'a b' {{hostname}} {{ip_address}}")
        return calls

    def test_the_command_is_run_for_each_node_and_its_exit_code_counts(
        self, extension: Callable[[Ground], ManagerExtension], calls: Path
    ) -> None:
        assert replaced(extension(Ground.MACHINES)) == ["1"]
        assert sorted(calls.read_text().splitlines()) == [
            "3 a b ray-worker-a 10.0.0.1",
            "3 a b ray-worker-b 10.0.0.2",
        ]

    def test_a_strange_name_stays_one_word(self, calls: Path, tmp_path: Path) -> None:
        made = load("power_cycle", "PowerCycle")()
        made.manager = View(Deployment("ray", Ground.MACHINES))
        strange = NodeInfo("1", f"a; touch {tmp_path / 'oops'}", "10.0.0.1")
        assert asyncio.run(made.relaunch_nodes_impl([strange])) == [strange]
        assert not (tmp_path / "oops").exists()

    def test_without_a_command_nothing_is_replaced(
        self, extension: Callable[[Ground], ManagerExtension], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DLROVER_POWER_CYCLE", raising=False)
        assert replaced(extension(Ground.MACHINES)) == []


class TestPods:
    @pytest.fixture
    def api(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        """An API server on loopback; the requests that it got."""
        requests: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_DELETE(self) -> None:
                requests.append(self.path)
                self.send_response(404 if "worker-b" in self.path else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, name="api")
        thread.start()
        monkeypatch.setenv("KUBERNETES_API", f"http://127.0.0.1:{server.server_port}")
        yield requests
        server.shutdown()
        server.server_close()
        thread.join()

    def test_pods_are_deleted_and_one_that_is_gone_counts_as_deleted(
        self,
        extension: Callable[[Ground], ManagerExtension],
        api: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("DLROVER_DELETE_PODS", "1")
        assert replaced(extension(Ground.KUBERNETES)) == ["1", "2"]
        assert sorted(api) == [
            f"/api/v1/namespaces/training/pods/{node.hostname}?gracePeriodSeconds=0"
            for node in NODES
        ]

    def test_by_default_they_are_only_named(
        self,
        extension: Callable[[Ground], ManagerExtension],
        api: list[str],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.delenv("DLROVER_DELETE_PODS", raising=False)
        assert replaced(extension(Ground.KUBERNETES)) == []
        assert api == []
        assert "would send DELETE" in capsys.readouterr().out

    def test_machines_are_none_of_its_business(
        self,
        extension: Callable[[Ground], ManagerExtension],
        api: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("DLROVER_DELETE_PODS", "1")
        monkeypatch.delenv("DLROVER_POWER_CYCLE", raising=False)
        assert replaced(extension(Ground.MACHINES)) == []
        assert api == []


def test_the_installed_package_is_listed_without_an_error(
    launch: Callable[..., Finished],
    pip_install: Callable[[Path], Path],
) -> None:
    site = pip_install(EXAMPLE)
    program = str(Path(sys.executable).parent / "dlrover-job")
    env = {"PYTHONPATH": os.fspath(site)}
    found = launch(["plugins", "check", "-o", "json"], command=[program], env=env)
    assert found.returncode == 0, found
    document = json.loads(found.stdout)
    mine = [each for each in document["checked"] if each["distribution"] == "dlrover-relaunch"]
    assert [each["plugin"] for each in mine] == ["delete_pod:DeletePod", "power_cycle:PowerCycle"]
    assert len(document["conflicts"]) == 1
