"""The manager's extension point has the shape that DLRover's guide describes."""

import asyncio

import pytest

from dlrover_cli.contracts import ManagerExtension, NodeInfo


def test_by_default_no_node_is_replaced() -> None:
    assert asyncio.run(ManagerExtension().relaunch_nodes_impl([NodeInfo("n1")])) == []


def test_a_node_is_known_by_its_id_alone() -> None:
    assert NodeInfo("n1") == NodeInfo(id="n1", hostname=None, ip_address=None, envs={})


def test_registering_is_a_decorator_that_returns_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagerExtension, "_registered", [])

    @ManagerExtension.register_extension
    class Replaces(ManagerExtension):
        pass

    ManagerExtension.register_extension(Replaces)
    assert ManagerExtension.extensions() == [Replaces]
