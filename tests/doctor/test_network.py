"""Names, interfaces, the rendezvous endpoint and ports."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.doctor.endpoint import check_endpoint, split_endpoint
from dlrover_cli.doctor.finding import Level
from dlrover_cli.doctor.listeners import listener_on
from dlrover_cli.doctor.machine import Machine, is_own_address, is_port_free
from dlrover_cli.doctor.names import check_hostname, check_interfaces
from tests.doctor.machines import machine, raising

UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
TWO_NODES = {"nnodes": "2"}


def one(found: Any) -> Any:
    [finding] = found
    return finding


def test_a_name_with_an_address_of_the_machine_is_fine(tmp_path: Path) -> None:
    assert one(check_hostname(machine(tmp_path))).seen == "node7 is 10.0.0.7"


@pytest.mark.parametrize("address", ["127.0.1.1", "127.0.0.1", "::1"])
def test_a_name_that_is_loopback_is_a_problem_for_many_nodes(tmp_path: Path, address: str) -> None:
    facts = {"look_up": lambda host, seconds: (address,)}
    alone = one(check_hostname(machine(tmp_path, **facts)))
    many = one(check_hostname(machine(tmp_path, flags=TWO_NODES, **facts)))
    assert (alone.level, many.level) == (Level.WARNING, Level.PROBLEM)
    assert "/etc/hosts" in many.fix


def test_a_loopback_name_does_not_matter_to_who_gives_an_address(tmp_path: Path) -> None:
    flags = {**TWO_NODES, "local_addr": "10.0.0.7"}
    found = one(check_hostname(machine(tmp_path, flags=flags, look_up=lambda *_: ("127.0.1.1",))))
    assert found.level is Level.WARNING


def test_a_name_that_leads_to_another_machine_is_a_problem(tmp_path: Path) -> None:
    found = one(check_hostname(machine(tmp_path, is_own_address=lambda address: False)))
    assert found.level is Level.PROBLEM
    assert "no interface of this machine" in found.seen


@pytest.mark.parametrize("error, words", [(UNKNOWN, "not known"), (TimeoutError(), "no answer")])
def test_a_name_that_nobody_knows_is_told_with_the_reason(
    tmp_path: Path, error: Exception, words: str
) -> None:
    found = one(check_hostname(machine(tmp_path, look_up=raising(error))))
    assert found.level is Level.WARNING
    assert words in found.seen


@pytest.mark.parametrize(
    "variable, value, level",
    [
        ("GLOO_SOCKET_IFNAME", "eth0", Level.OK),
        ("GLOO_SOCKET_IFNAME", "eth", Level.PROBLEM),
        ("GLOO_SOCKET_IFNAME", "eth0,eth9", Level.PROBLEM),
        ("NCCL_SOCKET_IFNAME", "eth", Level.OK),
        ("NCCL_SOCKET_IFNAME", "=eth", Level.PROBLEM),
        ("NCCL_SOCKET_IFNAME", "=ib0:1", Level.OK),
        ("NCCL_SOCKET_IFNAME", "bond,ib", Level.OK),
        ("NCCL_SOCKET_IFNAME", "^docker,lo", Level.OK),
        ("NCCL_SOCKET_IFNAME", "bond", Level.PROBLEM),
    ],
)
def test_interfaces_are_read_as_their_libraries_read_them(
    tmp_path: Path, variable: str, value: str, level: Level
) -> None:
    found = one(check_interfaces(machine(tmp_path, environ={variable: value})))
    assert found.level is level
    assert variable in found.seen


@pytest.mark.parametrize(
    "text, place",
    [
        ("node0", ("node0", 29400)),
        ("node0:2", ("node0", 2)),
        ("[fe80::1]:3", ("fe80::1", 3)),
        ("a:1,b:2", ("a", 1)),
        ("::1", ("::1", 29400)),
    ],
)
def test_endpoints_are_taken_apart(text: str, place: tuple[str, int]) -> None:
    assert split_endpoint(text, 29400) == place


def at(root: Path, **facts: Any) -> Machine:
    """Where the endpoint is that of another machine, unless facts say otherwise."""
    elsewhere = {"look_up": lambda host, seconds: ("10.0.0.1",)}
    return machine(root, flags={"rdzv_endpoint": "node0:1234"}, **{**elsewhere, **facts})


def test_an_endpoint_that_answers_is_fine(tmp_path: Path) -> None:
    name, port = check_endpoint(at(tmp_path))
    assert (name.level, port.level) == (Level.OK, Level.OK)
    assert "node0:1234 takes connections, in 1ms" in port.seen


@pytest.mark.parametrize(
    "error, level, words",
    [
        (ConnectionRefusedError(), Level.WARNING, "has not started yet"),
        (TimeoutError(), Level.PROBLEM, "firewalls"),
        (OSError(113, "No route to host"), Level.PROBLEM, "firewalls"),
    ],
)
def test_an_endpoint_that_does_not_answer_is_told_by_how(
    tmp_path: Path, error: Exception, level: Level, words: str
) -> None:
    _, port = check_endpoint(at(tmp_path, reach=raising(error)))
    assert port.level is level
    assert words in port.fix


def test_an_endpoint_without_an_address_is_a_problem(tmp_path: Path) -> None:
    found = one(check_endpoint(at(tmp_path, look_up=raising(UNKNOWN))))
    assert found.level is Level.PROBLEM
    assert found.seen == "node0 cannot be looked up: Name or service not known"


def test_a_port_that_cannot_be_is_a_problem(tmp_path: Path) -> None:
    found = one(check_endpoint(machine(tmp_path, flags={"rdzv_endpoint": "node0:99999"})))
    assert (found.level, found.seen) == (
        Level.PROBLEM,
        "there is no port 99999: they end with 65535",
    )


def test_the_master_of_the_static_backend_is_an_endpoint_too(tmp_path: Path) -> None:
    flags = {"master_addr": "node0", "master_port": 77}
    facts = {"look_up": lambda host, seconds: ("10.0.0.1",)}
    _, port = check_endpoint(machine(tmp_path, flags=flags, **facts))
    assert "node0:77" in port.seen


def test_without_an_endpoint_the_usual_ports_are_looked_at(tmp_path: Path) -> None:
    found = list(check_endpoint(machine(tmp_path, is_port_free=lambda port: port != 29500)))
    assert [each.level for each in found] == [Level.OK, Level.WARNING]
    assert "29500 is taken by a process of somebody else" in found[1].seen


@pytest.mark.parametrize(
    "family, host", [(socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_who_has_a_port_is_named(family: int, host: str, tmp_path: Path) -> None:
    with socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        port = server.getsockname()[1]
        assert not is_port_free(port)
        found = listener_on(machine(tmp_path), port)
        assert found is None  # that machine has no /proc
        real = Machine(settings=machine(tmp_path).settings, environ={})
        listener = listener_on(real, port)
        assert listener is not None
        assert listener.pid == os.getpid()
    assert is_port_free(port)
    assert listener_on(real, port) is None


def test_own_addresses_are_those_of_interfaces() -> None:
    assert is_own_address("127.0.0.1")
    assert not is_own_address("192.0.2.1")
