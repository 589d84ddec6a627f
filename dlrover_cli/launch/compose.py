"""Putting an agent together from a configuration, running it, and taking it apart again."""

import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.elastic import events, metrics
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.events.handlers import get_logging_handler
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler

from dlrover_cli.agent.agent import LocalElasticAgent
from dlrover_cli.agent.calls import Call
from dlrover_cli.agent.logs import RunLogsSpecs, Shown
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.progress import HangSettings
from dlrover_cli.config.derive import parse_signals
from dlrover_cli.errors import ConfigError, NodeUnfit
from dlrover_cli.failover.budget import parse_budget_reset
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.decide import Action, Counters
from dlrover_cli.launch.advisers import Advisers
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.launch.failed import EndedOnRequest, JobFailed
from dlrover_cli.launch.failover import (
    decision_timeout_of,
    hosts_control_store,
    limits_of,
    terms_of,
)
from dlrover_cli.launch.measuring import measuring
from dlrover_cli.launch.preflight import preflight_of
from dlrover_cli.launch.rendezvous import (
    close_rendezvous,
    join_timeout,
    make_handler,
    record_arrivals,
    store_address,
)
from dlrover_cli.launch.session import Session
from dlrover_cli.leash.client import Leash
from dlrover_cli.plugins.shims import install_import_shims
from dlrover_cli.rendezvous.departure import depart
from dlrover_cli.rendezvous.store_host import StoreHost
from dlrover_cli.telemetry.live import SampleListener
from dlrover_cli.telemetry.metrics_loading import NamedHandler, load_metrics_handlers
from dlrover_cli.workers.api import WorkerStarter
from dlrover_cli.workers.inbox import Inbox, SignalReceived

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
    on_sample: Sequence[SampleListener] = (),
    place_again: Callable[[Counters], None] | None = None,
) -> dict[int, Any]:
    """Run one agent to its end and return the workers' values by global rank.

    Raises JobFailed (torch's ChildFailedError), SignalException, RendezvousFailed, LaunchError,
    PluginError or ConfigError. The rendezvous is shut down unless a signal ended us, so that the
    other nodes may go on.
    """
    check_event_log_handler(config.event_log_handler)
    plugins = load_plugins(config, roots)
    signals = parse_signals(config.signals_to_handle)
    measure = _interruptible(signals, lambda: measuring(plugins.metrics, session, config.role))
    _interruptible(signals, advisers.ready)
    handler = _interruptible(signals, lambda: make_handler(config, roots, session.say, store_host))
    record_arrivals(handler, session)
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
        (*on_sample, *measure),
        place_again,
    )
    others_go_on = False
    try:
        return _run_to_its_end(agent, config, entrypoint, args)
    except (SignalException, NodeUnfit):
        others_go_on = True
        depart(handler)
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    except (JobFailed, EndedOnRequest) as failed:
        if failed.ending.decision.action is Action.REPLACE_NODE:
            others_go_on = True
            depart(handler)
        raise
    except Exception:
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    finally:
        session.report.counters = agent.counters
        session.report.ending = agent.ending
        close_rendezvous(config, session, handler, others_go_on=others_go_on)


def check_event_log_handler(name: str) -> None:
    """torch looks this up only after the rendezvous; a wrong name is refused here."""
    try:
        get_logging_handler(name)
    except KeyError:
        from torch.distributed.elastic.events import handlers

        known = ", ".join(sorted(handlers._log_handlers))
        raise ConfigError(
            f"--event-log-handler={name}: there is no event log handler of that name",
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
    on_sample: Sequence[SampleListener],
    place_again: Callable[[Counters], None] | None,
) -> LocalElasticAgent:
    _, store_port = store_address(config)
    spec = _spec_of(config, entrypoint, args, handler)
    hosts_store = partial(hosts_control_store, config, handler, store_port)
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
            join_timeout=join_timeout(config),
            limits=limits_of(config),
            chain=chain,
            decision_timeout=decision_timeout_of(config),
            hosts_control_store=hosts_store,
            budget_reset=parse_budget_reset(config.restart_budget_reset),
            hang=HangSettings(config.hang_timeout, config.hang_start_grace),
            # Another interpreter may be too old for what we would run inside it.
            python_workers=entrypoint == sys.executable,
            frame_locals=config.interactive,
            shown=Shown(config.log_prefix, ranks=config.ranks_filter),
            debugging=config.debugging,
            counters=session.counters,
            terms=terms_of(config),
            on_round=note_round,
            on_sample=tuple(on_sample),
            store_host=store_host,
            leash=leash,
            place_again=place_again,
            check=preflight_of(config, session, hosts_store, store_host),
        ),
    )


def _spec_of(
    config: LaunchConfig,
    entrypoint: str | Callable[..., Any],
    args: Sequence[Any],
    handler: RendezvousHandler,
) -> WorkerSpec:
    """As much of it as the installed torch knows."""
    static = config.rdzv_backend == "static" and config.rdzv_handler is None
    addr, port = store_address(config) if static else (None, None)
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
    return WorkerSpec(**{name: value for name, value in offered.items() if name in known})


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


def _run_to_its_end(
    agent: LocalElasticAgent,
    config: LaunchConfig,
    entrypoint: str | Callable[..., Any],
    args: Sequence[Any],
) -> dict[int, Any]:
    metrics.initialize_metrics(metrics.MetricsConfig(config.metrics_cfg))
    result = agent.run(config.role)
    events.record(agent.get_event_succeeded(), config.event_log_handler)
    if agent.ending is not None and agent.ending.failure is None:
        raise EndedOnRequest(agent.ending)
    if result.is_failed() and agent.ending is not None:
        raise JobFailed(_name_of(entrypoint, args), result.failures, agent.ending)
    return dict(result.return_values)


def _name_of(entrypoint: str | Callable[..., Any], args: Sequence[Any]) -> str:
    """What a failed job is called: the script rather than the interpreter."""
    if callable(entrypoint):
        return str(entrypoint.__name__)
    if entrypoint == sys.executable:
        return next((str(arg) for arg in args if not str(arg).startswith("-")), entrypoint)
    return entrypoint
