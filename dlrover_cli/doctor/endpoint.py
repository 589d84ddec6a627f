"""The rendezvous endpoint: whether its name is known, who answers there, whether its port is free.

Without one the ports that jobs take by default are looked at.
"""

import re
import time
from collections.abc import Iterator

from dlrover_cli.doctor.finding import Finding, ok, problem, warning
from dlrover_cli.doctor.listeners import Listener, listener_on
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.words import span

RENDEZVOUS_PORT = 29400
"""Of the backends c10d and dlrover, where the endpoint names none."""
STATIC_PORT = 29500
_LARGEST_PORT = 65535
_SLOW = 1.0
_REACH_SECONDS = 5.0


def check_endpoint(machine: Machine) -> Iterator[Finding]:
    """From the name to the port."""
    place = endpoint_of(machine)
    if place is None:
        for port, of in ((RENDEZVOUS_PORT, "--rdzv-endpoint"), (STATIC_PORT, "--master-port")):
            yield _port(machine, port, f"the usual port of {of}")
        return
    host, port = place
    if not 0 <= port <= _LARGEST_PORT:
        yield problem(
            "endpoint",
            f"there is no port {port}: they end with {_LARGEST_PORT}",
            why="no node can come to the rendezvous",
            fix="correct the port: --rdzv-endpoint HOST:PORT",
        )
        return
    started = time.monotonic()
    try:
        addresses = machine.look_up(host, machine.patience)
    except OSError as error:
        reason = error.strerror or f"no answer within {machine.patience:g} s"
        yield problem(
            "endpoint",
            f"{host} cannot be looked up: {reason}",
            why="no node can come to the rendezvous",
            fix="check the spelling, /etc/resolv.conf and /etc/hosts, or write its address",
        )
        return
    yield _name(host, addresses, time.monotonic() - started)
    if any(map(machine.is_own_address, addresses)):
        yield _port(machine, port, f"this machine hosts the rendezvous {host}:{port}")
    else:
        yield _reachable(machine, host, port)


def endpoint_of(machine: Machine) -> tuple[str, int] | None:
    """Where the settings say that the nodes meet; None if they say nothing."""
    settings = machine.settings
    if settings.rdzv_endpoint:
        return split_endpoint(settings.rdzv_endpoint, RENDEZVOUS_PORT)
    if settings.source_of("master_addr").where:
        return settings.master_addr, settings.master_port or STATIC_PORT
    return None


def split_endpoint(text: str, usual_port: int) -> tuple[str, int]:
    """`host`, `host:port`, `[::1]:port`; of several, as etcd takes them, the first."""
    first = text.split(",")[0].strip()
    found = re.fullmatch(r"(\[(?P<six>[^\]]+)\]|(?P<host>[^:]+))(:(?P<port>\d+))?", first)
    if found is None:
        return first, usual_port
    return found["six"] or found["host"], int(found["port"] or usual_port)


def _name(host: str, addresses: tuple[str, ...], seconds: float) -> Finding:
    shown = f"{host} is {', '.join(addresses)}"
    if addresses == (host,):
        shown = f"{host} is an address"
    if seconds > _SLOW:
        return warning(
            "endpoint",
            f"{shown}, after {seconds:.1f} s",
            why="each node waits so long at each rendezvous",
            fix="mend the name server in /etc/resolv.conf, or add the name to /etc/hosts",
        )
    return ok("endpoint", shown)


def _port(machine: Machine, port: int, role: str) -> Finding:
    if machine.is_port_free(port):
        return ok("port", f"{port} is free: {role}")
    return warning(
        "port",
        f"{port} is taken by {_who(listener_on(machine, port))}: {role}",
        why="unless that is the job's own store, the first node cannot open its store there",
        fix="end that process, or choose another port: --rdzv-endpoint HOST:PORT",
    )


def _who(listener: Listener | None) -> str:
    if listener is None:
        return "a process of somebody else"
    return f"{listener.command} (pid {listener.pid})"


def _reachable(machine: Machine, host: str, port: int) -> Finding:
    patience = min(_REACH_SECONDS, machine.patience)
    try:
        seconds = machine.reach(host, port, patience)
    except ConnectionRefusedError:
        return warning(
            "port",
            f"{host}:{port} refuses connections",
            why="the machine is there, and nothing listens on that port",
            fix="all is well if the first node has not started yet; otherwise check the port",
        )
    except OSError as error:
        reason = "does not answer" if isinstance(error, TimeoutError) else error.strerror or error
        return problem(
            "port",
            f"{host}:{port}: {reason} within {patience:g} s",
            why="this node cannot come to the rendezvous",
            fix=f"check firewalls, routes and security groups between here and port {port}",
        )
    return ok("port", f"{host}:{port} takes connections, in {span(seconds)}")
