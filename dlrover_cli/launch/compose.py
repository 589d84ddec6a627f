"""Putting an agent together from a configuration, running it, and taking it apart again."""

import signal
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.elastic import events, metrics
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.events.handlers import get_logging_handler
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.rendezvous.utils import (
    _matches_machine_hostname,
    parse_rendezvous_endpoint,
)

from dlrover_cli.agent.agent import LocalElasticAgent
from dlrover_cli.agent.calls import Call
from dlrover_cli.agent.logs import RunLogsSpecs
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.progress import HangSettings
from dlrover_cli.config.derive import parse_signals
from dlrover_cli.errors import ConfigError, DlroverError
from dlrover_cli.failover.budget import parse_budget_reset
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.decide import Action
from dlrover_cli.launch.advisers import Advisers
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.launch.failed import JobFailed
from dlrover_cli.launch.failover import decision_timeout_of, hosts_control_store, limits_of
from dlrover_cli.launch.session import Session
from dlrover_cli.leash.client import Leash
from dlrover_cli.plugins.shims import install_import_shims
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
from dlrover_cli.telemetry.metrics import (
    MetricsFanOut,
    NamedHandler,
    install,
    load_metrics_handlers,
)
from dlrover_cli.workers.api import WorkerStarter
from dlrover_cli.workers.inbox import Inbox, SignalReceived

_METRICS_CLOSE_SECONDS = 5.0
_SHUTDOWN_SECONDS = 5.0
_RESOLVE_SECONDS = 60.0
_DEFAULT_PORT = 29400
# Handlers that are not torch's wait as long as they like, for a cluster to grow perhaps.
_PATIENCE_WITH_OTHERS = 86_400.0
_BACKEND_HINTS = {
    "etcd": "pip install python-etcd, or use --rdzv-backend=c10d, which needs no service",
    "etcd-v2": "pip install python-etcd, or use --rdzv-backend=c10d, which needs no service",
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Plugins:
    """The user's code of one run, loaded and constructed."""

    metrics: tuple[NamedHandler, ...]


def load_plugins(config: LaunchConfig, roots: Sequence[Path]) -> Plugins:
    """Load everything that the configuration names, or raise PluginError before anything starts."""
    install_import_shims()
    return Plugins(
        metrics=tuple(
            load_metrics_handlers(config.metrics_handlers, config.metrics_settings, roots)
        ),
    )


def run_agent(
    config: LaunchConfig,
    entrypoint: str | Callable[..., Any],
    args: Sequence[Any],
    session: Session,
    roots: Sequence[Path],
    advisers: Advisers,
    starter: WorkerStarter | None = None,
    store_host: StoreHost | None = None,
    leash: Leash | None = None,
) -> dict[int, Any]:
    """Run one agent to its end and return the workers' values by global rank.

    Raises JobFailed (torch's ChildFailedError), SignalException, RendezvousFailed, LaunchError,
    PluginError or ConfigError. The rendezvous is shut down unless a signal ended us, so that the
    other nodes may go on.
    """
    check_event_log_handler(config.event_log_handler)
    plugins = load_plugins(config, roots)
    signals = parse_signals(config.signals_to_handle)
    _interruptible(signals, advisers.ready)
    handler = _interruptible(signals, lambda: make_handler(config, roots, session.say, store_host))
    agent = _make_agent(
        config,
        entrypoint,
        args,
        session,
        handler,
        signals,
        starter,
        advisers.chain,
        store_host,
        leash,
    )
    fan_out = (
        MetricsFanOut(plugins.metrics, recorder=session.events.record) if plugins.metrics else None
    )
    undo = install(fan_out) if fan_out is not None else None
    shut_down = True
    try:
        metrics.initialize_metrics(metrics.MetricsConfig(config.metrics_cfg))
        result = agent.run(config.role)
        events.record(agent.get_event_succeeded(), config.event_log_handler)
        if result.is_failed() and agent.ending is not None:
            raise JobFailed(_name_of(entrypoint, args), result.failures, agent.ending)
        return dict(result.return_values)
    except SignalException:
        shut_down = False
        depart(handler)
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    except JobFailed as failed:
        if failed.ending.decision.action is Action.REPLACE_NODE:
            shut_down = False
            depart(handler)
        raise
    except Exception:
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    finally:
        session.report.counters = agent.counters
        session.report.ending = agent.ending
        if shut_down and _is_ours_to_close(config, session, handler):
            _shut_down(handler, session)
        else:
            fall_silent(handler)
        if fan_out is not None and undo is not None:
            undo()
            fan_out.close(_METRICS_CLOSE_SECONDS)


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


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """Host and port, or a ConfigError that says what an endpoint looks like."""
    try:
        host, port = parse_rendezvous_endpoint(endpoint.strip(), default_port=_DEFAULT_PORT)
    except ValueError as error:
        raise ConfigError(
            f"--rdzv-endpoint: {error}", setting="rdzv_endpoint", hint="write HOST:PORT"
        ) from error
    return host, port


def _store_address(config: LaunchConfig) -> tuple[str | None, int | None]:
    """Where torch's own backends keep the store over which the agents meet."""
    if config.rdzv_handler is not None or config.rdzv_backend not in ("c10d", "static"):
        return None, None
    if config.is_local or config.rdzv_configs.get("store_type") == "file":
        return None, None
    return split_endpoint(config.rdzv_endpoint)


def check_event_log_handler(name: str) -> None:
    """torch looks this up only after the rendezvous; a wrong name is refused here."""
    try:
        get_logging_handler(name)
    except KeyError:
        from torch.distributed.elastic.events import handlers

        known = ", ".join(sorted(handlers._log_handlers))
        raise ConfigError(
            f"there is no event log handler {name!r}",
            setting="event_log_handler",
            hint=f"known ones: {known}",
        ) from None


def _make_agent(
    config: LaunchConfig,
    entrypoint: str | Callable[..., Any],
    args: Sequence[Any],
    session: Session,
    handler: RendezvousHandler,
    signals: tuple[signal.Signals, ...],
    starter: WorkerStarter | None,
    chain: Chain,
    store_host: StoreHost | None,
    leash: Leash | None,
) -> LocalElasticAgent:
    store_addr, store_port = _store_address(config)
    static = config.rdzv_backend == "static" and config.rdzv_handler is None
    addr, port = (store_addr, store_port) if static else (None, None)
    offered: dict[str, Any] = {
        "role": config.role,
        "local_world_size": config.nproc_per_node,
        "entrypoint": entrypoint,
        "args": tuple(args),
        "rdzv_handler": handler,
        "max_restarts": config.max_restarts,
        "monitor_interval": config.monitor_interval,
        "master_addr": addr,
        "master_port": port,
        "local_addr": config.local_addr,
        "event_log_handler": config.event_log_handler,
        "numa_options": getattr(config, "numa_options", None),
        "duplicate_stdout_filters": getattr(config, "duplicate_stdout_filters", None),
        "duplicate_stderr_filters": getattr(config, "duplicate_stderr_filters", None),
        "virtual_local_rank": getattr(config, "virtual_local_rank", False),
    }
    known = {field.name for field in fields(WorkerSpec)}
    spec = WorkerSpec(**{name: value for name, value in offered.items() if name in known})
    logs_specs = (
        RunLogsSpecs(str(session.run_directory.logs))
        if config.logs_in_run_directory
        else config.logs_specs
    )

    def note_round(node_rank: int, attempt: int) -> None:
        session.events.node_rank, session.events.attempt = node_rank, attempt

    return LocalElasticAgent(
        spec,
        logs_specs,
        config.start_method,
        config.exit_barrier_timeout,
        config.log_line_prefix_template,
        int(config.shutdown_timeout or 0),
        starter=starter,
        options=AgentOptions(
            record=session.events.record,
            say=session.say,
            run_directory=session.run_directory,
            signals=signals,
            join_timeout=_join_timeout(config),
            limits=limits_of(config),
            chain=chain,
            decision_timeout=decision_timeout_of(config),
            hosts_control_store=lambda: hosts_control_store(config, handler, store_port),
            budget_reset=parse_budget_reset(config.restart_budget_reset),
            hang=HangSettings(config.hang_timeout, config.hang_start_grace),
            # Another interpreter may be too old for what we would run inside it.
            python_workers=entrypoint == sys.executable,
            frame_locals=config.interactive,
            counters=session.counters,
            on_round=note_round,
            store_host=store_host,
            leash=leash,
        ),
    )


def _join_timeout(config: LaunchConfig) -> float:
    """How long a rendezvous may take: the timeouts of torch's backends, added up."""
    if config.rdzv_handler is not None or config.rdzv_backend not in ("c10d", "static"):
        return _PATIENCE_WITH_OTHERS
    conf = config.rdzv_configs
    join = float(conf.get("join_timeout", conf.get("timeout", 900)))
    return join + float(conf.get("last_call_timeout", 30))


def _interruptible(signals: tuple[signal.Signals, ...], function: Callable[[], _T]) -> _T:
    """Run something that may block off the main thread, so that a signal ends the wait."""
    inbox = Inbox()
    with inbox.receiving_signals(signals):
        call = Call(inbox, "make-rendezvous", function)
        while not call.done:
            observation = inbox.next()
            if isinstance(observation, SignalReceived):
                name = observation.signum.name
                raise SignalException(f"the launcher received {name}", sigval=observation.signum)
    inbox.close()
    value: _T = call.result()
    return value


def _name_of(entrypoint: str | Callable[..., Any], args: Sequence[Any]) -> str:
    """What a failed job is called: the script rather than the interpreter."""
    if callable(entrypoint):
        return str(entrypoint.__name__)
    if entrypoint == sys.executable:
        return next((str(arg) for arg in args if not str(arg).startswith("-")), entrypoint)
    return entrypoint


def _is_ours_to_close(config: LaunchConfig, session: Session, handler: RendezvousHandler) -> bool:
    """Whether this node closes the rendezvous behind the job.

    Closing torch's c10d rendezvous once is enough. Its store goes with the agent that hosts it;
    whoever else tried to reach it then would fill stderr with complaints.
    """
    host, port = _store_address(config)
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
