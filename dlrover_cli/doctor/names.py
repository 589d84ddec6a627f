"""The name of this machine and its interfaces: what other nodes are told to connect to."""

import ipaddress
import re
import time
from collections.abc import Iterator

from dlrover_cli.config.derive import parse_nnodes
from dlrover_cli.doctor.finding import Finding, Level, ok, problem, warning
from dlrover_cli.doctor.machine import Machine

_SLOW = 1.0
_GLOO = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_NCCL = "NCCL_SOCKET_IFNAME"


def check_hostname(machine: Machine) -> Iterator[Finding]:
    """Whether it leads to this machine, from here and from the other nodes."""
    name = machine.hostname()
    started = time.monotonic()
    try:
        addresses = machine.look_up(name, machine.patience)
    except OSError as error:
        reason = error.strerror or f"no answer within {machine.patience:g} s"
        yield _for_many_nodes(
            machine,
            f"{name} cannot be looked up: {reason}",
            why="gloo and the rendezvous find this node's address by its name",
            fix=f"add '{name}' to /etc/hosts or to DNS, or give --local-addr ADDRESS",
        )
        return
    seconds = time.monotonic() - started
    shown = f"{name} is {', '.join(addresses)}"
    if all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses):
        yield _for_many_nodes(
            machine,
            f"{shown}, which is loopback",
            why="other nodes are told this address, and connect to themselves",
            fix="take the name out of the line of 127.0.0.1 or 127.0.1.1 in /etc/hosts, or give "
            "--local-addr ADDRESS; for gloo also GLOO_SOCKET_IFNAME=INTERFACE",
        )
    elif not any(map(machine.is_own_address, addresses)):
        yield problem(
            "hostname",
            f"{shown}, which no interface of this machine has",
            why="whoever looks for this node finds another one, or nobody",
            fix="mend /etc/hosts or DNS, or give --local-addr ADDRESS",
        )
    elif seconds > _SLOW:
        yield warning(
            "hostname",
            f"{shown}, after {seconds:.1f} s",
            why="every connection between workers looks names up and waits as long",
            fix=f"add '{name}' to /etc/hosts, or mend the name server in /etc/resolv.conf",
        )
    else:
        yield ok("hostname", shown)


def check_interfaces(machine: Machine) -> Iterator[Finding]:
    """Whether there are those that variables name."""
    there = machine.interfaces()
    shown = ", ".join(there)
    named = [name for name in (*_GLOO, _NCCL) if machine.environ.get(name)]
    for variable in named:
        value = machine.environ[variable]
        missing = _missing(variable, value, there)
        if missing:
            yield problem(
                "interfaces",
                f"{variable}={value}, and there is no {missing}",
                why="the workers' first collective operation fails",
                fix=f"unset it, or name one of: {shown}",
            )
        else:
            yield ok("interfaces", f"{variable}={value} is among {shown}")
    if not named:
        yield ok("interfaces", shown)


def _missing(variable: str, value: str, there: tuple[str, ...]) -> str:
    """What is named and not there. NCCL takes beginnings of names, `=` for whole ones, `^` for not.

    One of several is enough for NCCL; gloo takes each of its names.
    """
    if variable != _NCCL:
        return ", ".join(name for name in value.split(",") if name not in there)
    if value.startswith("^"):
        return ""
    exact = value.startswith("=")
    names = [re.sub(r":\d+$", "", name) for name in value.removeprefix("=").split(",") if name]
    matches = str.__eq__ if exact else str.startswith
    found = any(matches(each, name) for each in there for name in names)
    return "" if found else " or ".join(names)


def _for_many_nodes(machine: Machine, seen: str, *, why: str, fix: str) -> Finding:
    """A problem only for a job on many nodes."""
    level = Level.PROBLEM if expects_others(machine) else Level.WARNING
    return Finding(level, "hostname", seen, why, fix)


def expects_others(machine: Machine) -> bool:
    """Whether the settings at hand are those of a job on many nodes."""
    if machine.settings.local_addr:
        return False  # the name is not asked for
    return parse_nnodes(machine.settings.nnodes, machine.settings.origin("nnodes"))[1] > 1
