"""The rendezvous of one launch: its handler from the configuration, and closing it at the end."""

import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.rendezvous.utils import (
    _matches_machine_hostname,
    parse_rendezvous_endpoint,
)

from dlrover_cli.errors import ConfigError, DlroverError
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.launch.session import Session
from dlrover_cli.rendezvous.connecting import connect
from dlrover_cli.rendezvous.departure import depart, fall_silent
from dlrover_cli.rendezvous.elastic import ElasticRendezvous
from dlrover_cli.rendezvous.endpoint import create_elastic_rendezvous
from dlrover_cli.rendezvous.faults import (
    accepts_connections,
    explain,
    hosts_port,
    wait_until_resolvable,
)
from dlrover_cli.rendezvous.loading import (
    OUR_BACKEND,
    check_rendezvous_backend,
    create_rendezvous_handler,
)
from dlrover_cli.rendezvous.local import LocalRendezvous
from dlrover_cli.rendezvous.store_host import StoreHost

_SHUTDOWN_SECONDS = 5.0
_RESOLVE_SECONDS = 60.0
_DEFAULT_PORT = 29400
# Handlers that are not torch's wait as long as they like, for a cluster to grow perhaps.
_PATIENCE_WITH_OTHERS = 86_400.0
_BACKEND_HINTS = {
    "etcd": "pip install python-etcd, or use --rdzv-backend=c10d, which needs no service",
    "etcd-v2": "pip install python-etcd, or use --rdzv-backend=c10d, which needs no service",
}


def make_handler(
    config: LaunchConfig,
    roots: Sequence[Path],
    say: Callable[[str], None],
    store_host: StoreHost | None = None,
) -> RendezvousHandler:
    """The rendezvous handler of the configuration. May block while it connects.

    ``store_host`` is a process that is there for stores; without one, our own backend starts one.
    """
    run_id = config.run_id or str(uuid.uuid4())
    if config.is_local:
        return LocalRendezvous(run_id, config.local_addr, store_host)
    params = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    if config.rdzv_handler is not None:
        return create_rendezvous_handler(config.rdzv_handler, params, roots)
    check_rendezvous_backend(config.rdzv_backend)
    try:
        if config.rdzv_backend == OUR_BACKEND:
            endpoint = split_endpoint(params.endpoint)
            make_host = StoreHost.spawn if store_host is None else lambda: store_host
            return create_elastic_rendezvous(params, *endpoint, say, make_host)
        return _connected(params, say)
    except DlroverError:
        raise
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(
            f"--rdzv-backend={config.rdzv_backend}: {error}",
            setting="rdzv_backend",
            hint=_BACKEND_HINTS.get(config.rdzv_backend, "check --rdzv-endpoint and --rdzv-conf"),
        ) from error
    except Exception as error:
        raise explain(error, config.rdzv_backend, config.rdzv_endpoint) from error


def record_arrivals(handler: RendezvousHandler, session: Session) -> None:
    """Have the journal tell how many nodes are there, where the handler knows."""
    if isinstance(handler, ElasticRendezvous):
        handler.tell_arrivals(
            lambda nodes, wanted: session.events.record(
                "rendezvous_arrivals", nodes=nodes, wanted=wanted
            )
        )


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port, or a ConfigError that says what an endpoint looks like."""
    try:
        host, port = parse_rendezvous_endpoint(endpoint.strip(), default_port=_DEFAULT_PORT)
    except ValueError as error:
        raise ConfigError(
            f"--rdzv-endpoint: {error}", setting="rdzv_endpoint", hint="write HOST:PORT"
        ) from error
    return host, port


def store_address(config: LaunchConfig) -> tuple[str | None, int | None]:
    """Where torch's own backends keep the store over which the agents meet."""
    if config.rdzv_handler is not None or config.rdzv_backend not in ("c10d", "static"):
        return None, None
    if config.is_local or config.rdzv_configs.get("store_type") == "file":
        return None, None
    return split_endpoint(config.rdzv_endpoint)


def join_timeout(config: LaunchConfig) -> float:
    """How long a rendezvous may take: the timeouts of torch's backends, added up."""
    if config.rdzv_handler is not None or config.rdzv_backend not in ("c10d", "static"):
        return _PATIENCE_WITH_OTHERS
    conf = config.rdzv_configs
    join = float(conf.get("join_timeout", conf.get("timeout", 900)))
    return join + float(conf.get("last_call_timeout", 30))


def close_rendezvous(
    config: LaunchConfig, session: Session, handler: RendezvousHandler, *, others_go_on: bool
) -> None:
    """Leave it for good; it is closed for everybody if the job has ended and that is ours to do."""
    if not others_go_on and _is_ours_to_close(config, session, handler):
        _shut_down(handler, session)
    else:
        fall_silent(handler)


def _connected(params: RendezvousParameters, say: Callable[[str], None]) -> RendezvousHandler:
    """torch's handler of these parameters; names resolve late, and a port may be anybody's."""
    if params.backend not in ("c10d", "static") or params.get("store_type") == "file":
        return get_rendezvous_handler(params)
    host, port = split_endpoint(params.endpoint)
    key, default = ("read_timeout", 60) if params.backend == "c10d" else ("timeout", 900)
    patience = float(params.get_as_int(key, default) or default)
    wait_until_resolvable(host, min(patience, _RESOLVE_SECONDS), say)
    if params.backend == "static":  # connects in its first round
        return get_rendezvous_handler(params)
    return connect(lambda: get_rendezvous_handler(params), host, port, patience)


def _is_ours_to_close(config: LaunchConfig, session: Session, handler: RendezvousHandler) -> bool:
    """Whether this node closes the rendezvous behind the job.

    Closing torch's c10d rendezvous once is enough. Its store goes with the agent that hosts it;
    whoever else tried to reach it then would fill stderr with complaints.
    """
    host, port = store_address(config)
    ends_for_all = session.report.ending is not None or sys.exc_info()[0] is None
    if isinstance(handler, ElasticRendezvous):
        if not ends_for_all:  # a trouble of this node alone
            depart(handler)
        return ends_for_all
    if config.rdzv_backend != "c10d" or host is None or port is None or not ends_for_all:
        return True
    if hosts_port(port):
        return True
    is_first = session.events.node_rank == 0
    if config.rdzv_configs.get("is_host") is not None:  # the store may be nobody's of us
        return is_first
    # On this machine another agent hosts it, since each of us tried to.
    return is_first and not _matches_machine_hostname(host) and accepts_connections(host, port)


def _shut_down(handler: RendezvousHandler, session: Session) -> None:
    """Close the rendezvous. A store behind a cut link would block us for minutes: not waited on."""
    thread = threading.Thread(
        target=_shut_down_fenced, args=(handler, session), name="rendezvous-shutdown", daemon=True
    )
    thread.start()
    thread.join(_SHUTDOWN_SECONDS)
    if thread.is_alive():
        session.events.record("rendezvous_handler_slow", method="shutdown")


def _shut_down_fenced(handler: RendezvousHandler, session: Session) -> None:
    try:
        handler.shutdown()
    except Exception as error:  # noqa: BLE001 - the fence around a user's handler
        session.events.record("rendezvous_handler_error", method="shutdown", error=repr(error))
        session.say(f"the rendezvous handler raised in shutdown: {type(error).__name__}: {error}")
