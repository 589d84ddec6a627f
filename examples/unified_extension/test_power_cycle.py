"""An extension can be tried without a cluster: it needs nodes, and what `manager` tells."""

import asyncio
from types import SimpleNamespace

import pytest
from power_cycle import PowerCycle

from dlrover_cli.contracts.manager import Deployment, Ground, NodeInfo


@pytest.mark.parametrize("command, replaced", [("true {hostname}", 1), ("false {hostname}", 0)])
def test_a_command_that_succeeds_has_replaced_the_node(
    monkeypatch: pytest.MonkeyPatch, command: str, replaced: int
) -> None:
    monkeypatch.setenv("DLROVER_POWER_CYCLE", command)
    extension = PowerCycle()
    extension.manager = SimpleNamespace(deployment=Deployment("ray", Ground.MACHINES))
    assert len(asyncio.run(extension.relaunch_nodes_impl([NodeInfo("1", "gpu7")]))) == replaced
