"""The endpoint of the rendezvous `dlrover`: who hosts the store there, and how others reach it."""

import socket
import time
from collections.abc import Callable
from datetime import timedelta
from difflib import get_close_matches

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.utils import _matches_machine_hostname

from dlrover_cli.errors import ConfigError, LaunchError, RendezvousFailed
from dlrover_cli.rendezvous.connecting import connect
from dlrover_cli.rendezvous.elastic import ElasticRendezvous
from dlrover_cli.rendezvous.faults import accepts_connections, wait_until_resolvable
from dlrover_cli.rendezvous.forming import Rules
from dlrover_cli.rendezvous.no_lookups import spare_torch_its_lookups
from dlrover_cli.rendezvous.store_host import PortTaken, StoreHost

_KEYS = (
    "join_timeout",
    "last_call_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "read_timeout",
    "is_host",
    "node_unit",
)
_TORCHS_OWN = "timeout"  # torch's LaunchConfig adds it to every configuration
_READ_TIMEOUT = 60.0
_TRY_SECONDS = 2.0
_TRY_AGAIN_SECONDS = 0.1
_STORE_TIMEOUT = timedelta(seconds=60)


def create_elastic_rendezvous(
    params: RendezvousParameters,
    host: str,
    port: int,
    say: Callable[[str], None] = lambda line: None,
    make_host: Callable[[], StoreHost] = StoreHost.spawn,
) -> ElasticRendezvous:
    """Host the store or connect to it. Blocks until it is there; raises DlroverError if not."""
    rules, patience = rules_of(params), _number(params, "read_timeout", _READ_TIMEOUT)
    if port == 0:
        raise ConfigError(
            "--rdzv-endpoint: several nodes cannot guess which free port the first one would get",
            setting="rdzv_endpoint",
            hint="write HOST:PORT, with a port that is free on that host",
        )
    store_host = make_host() if _should_host(params, host, port) else None
    try:
        hosts_store = store_host is not None and _opens(store_host, port)
        if hosts_store:
            address = "127.0.0.1"
        else:
            wait_until_resolvable(host, patience, say)
            address = _reachable(host, port, patience)
        store = connect(lambda: _client(address, port), address, port, patience)
    except BaseException:
        if store_host is not None:
            store_host.close()
        raise
    handler = ElasticRendezvous(
        store, params.run_id, rules, f"{host}:{port}", params.local_addr, store_host, make_host
    )
    handler.hosts_store = hosts_store
    return handler


def rules_of(params: RendezvousParameters) -> Rules:
    """What --nnodes and --rdzv-conf say. Raises ConfigError."""
    for key in params.config:
        if key not in (*_KEYS, _TORCHS_OWN):
            near = get_close_matches(key, _KEYS, n=1)
            raise ConfigError(
                f"--rdzv-conf: the backend dlrover has no setting {key!r}",
                setting="rdzv_conf",
                hint=f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(_KEYS)}",
            )
    usual = Rules(params.min_nodes, params.max_nodes)
    join_timeout = _number(params, _TORCHS_OWN, usual.join_timeout)
    unit = round(_number(params, "node_unit", usual.node_unit, least=1))
    least, most = -(-params.min_nodes // unit) * unit, params.max_nodes // unit * unit
    if most < least:
        raise ConfigError(
            f"--rdzv-conf: no multiple of node_unit={unit} lies within "
            f"--nnodes={params.min_nodes}:{params.max_nodes}",
            setting="rdzv_conf",
            hint="choose bounds with such a multiple between them",
        )
    return Rules(
        least,
        most,
        _number(params, "join_timeout", join_timeout),
        _number(params, "last_call_timeout", usual.last_call_timeout, least=0),
        _number(params, "keep_alive_interval", usual.keep_alive_interval),
        round(_number(params, "keep_alive_max_attempt", usual.keep_alive_max_attempt, least=1)),
        unit,
    )


def _number(params: RendezvousParameters, key: str, usual: float, *, least: float = 0.001) -> float:
    text = params.get(key, usual)
    try:
        value = float(text)
        if least <= value < float("inf"):
            return value
    except (TypeError, ValueError):
        pass
    raise ConfigError(
        f"--rdzv-conf: {key} takes a number above zero, not {text!r}",
        setting="rdzv_conf",
        hint=f"write {key}={usual:g}",
    )


def _should_host(params: RendezvousParameters, host: str, port: int) -> bool:
    """Whoever is first on the machine that the endpoint names hosts the store."""
    try:
        is_host = params.get_as_bool("is_host")
    except ValueError as error:
        raise ConfigError(
            "--rdzv-conf: is_host takes 0 or 1", setting="rdzv_conf", hint="write is_host=0"
        ) from error
    if is_host is None:
        is_host = _matches_machine_hostname(host)
    return is_host and not accepts_connections("127.0.0.1", port)


def _opens(store_host: StoreHost, port: int) -> bool:
    try:
        store_host.open(port)
    except PortTaken:  # another node of this machine was faster; or it is no store, and found out
        return False
    except LaunchError as error:
        raise RendezvousFailed(error.message, hint=error.hint) from error
    return True


def _reachable(host: str, port: int, patience: float) -> str:
    """An address of the host at which somebody answers; the node that hosts may be late."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((host, port), _TRY_SECONDS) as connection:
                return str(connection.getpeername()[0])
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() >= deadline:
            raise RendezvousFailed(
                f"nobody answers at the rendezvous endpoint {host}:{port}: {reason}",
                hint="check that the node that hosts it is up, and that nothing blocks the port",
            )
        time.sleep(_TRY_AGAIN_SECONDS)


def _client(address: str, port: int) -> TCPStore:
    clients: list[TCPStore] = []

    def make() -> None:
        clients.append(TCPStore(address, port, timeout=_STORE_TIMEOUT, wait_for_workers=False))

    spare_torch_its_lookups(make)
    if not clients:  # no such filter here, or a trouble to be told
        make()
    return clients[0]
