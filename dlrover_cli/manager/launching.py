"""One managed run from its settings to its end: store, leashes, manager, result.

A platform brings a cluster. All else is the same wherever the job runs, and as on one machine: the
run directory, the result file, the exit codes.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli.config.derive import parse_nnodes
from dlrover_cli.config.properties import options_of
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.contracts.manager import Deployment, NodeInfo
from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover.decide import Counters
from dlrover_cli.launch import given_run
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.launch.notifying import notify_of, shown_argv
from dlrover_cli.launch.outcome import RunReport, reporting
from dlrover_cli.launch.script import name_of_script
from dlrover_cli.launch.session import Session, open_session
from dlrover_cli.launch.status.nodes import samples_of_run
from dlrover_cli.launch.status.showing import showing_status
from dlrover_cli.launch.voice import insist, say
from dlrover_cli.leash import wire
from dlrover_cli.leash.server import LeashServer
from dlrover_cli.leash.wire import LeashAddress
from dlrover_cli.manager.asking import Asking
from dlrover_cli.manager.cluster import Cluster, Explain, Node
from dlrover_cli.manager.extensions import compose, installed_extensions
from dlrover_cli.manager.job import JobOutcome, ManagerOptions
from dlrover_cli.manager.manager import Manager
from dlrover_cli.manager.placer import Placer
from dlrover_cli.manager.placing import Demand
from dlrover_cli.manager.relaunching import ExtensionReplacer, info_of
from dlrover_cli.manager.replacing import NoReplacer, Replacer
from dlrover_cli.rendezvous.store_host import StoreHost
from dlrover_cli.workers.inbox import Inbox

AGENT = "manager"
_MARGIN_SECONDS = 15.0
_FROM_AGENTS = (
    *("attempts", "restart_count", "generation"),
    *("decision", "strategy", "decided_by", "failure", "verdict"),
)


class ManagedJobFailed(DlroverError):
    """The job has ended, and not with success; all is told already."""

    def __init__(self, outcome: JobOutcome) -> None:
        super().__init__(outcome.reason)
        self.exit_code = outcome.exit_code
        self.goes_on = outcome.goes_on
        if outcome.signum is not None:
            self.sigval = outcome.signum


@dataclass(frozen=True, slots=True)
class Place:
    """What a platform knows about where the manager and the agents are."""

    cluster: Cluster
    address: str
    """Where agents reach this process."""
    deployment: Deployment = field(default_factory=Deployment)
    resources: Mapping[str, float] = field(default_factory=dict)
    """What each agent needs."""
    command: Sequence[str] = field(default_factory=launcher_command)
    """What starts a launcher on the nodes."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """What agents get besides this process's own environment."""
    lease: float = 5.0
    replacer: Replacer = field(default_factory=NoReplacer)
    """Who is asked for new nodes if no extension is there for that."""
    relaunches: int = 0
    """How many nodes were replaced in this run before this manager."""
    explain: Explain | None = None
    """What the platform knows about signals; those of its own are in ``more_signals``."""
    more_signals: tuple[signal.Signals, ...] = ()
    resource_names: Mapping[str, str] = field(default_factory=dict)
    """What extenders call the engine's resources, where that is something else."""


def run_managed(
    settings: LaunchSettings,
    argv: Sequence[str],
    make_place: Callable[[Session], Place],
    *,
    given: GivenRun | None = None,
) -> None:
    """Run the job to its end. Raises ManagedJobFailed, or what keeps it from starting.

    ``given`` is a run that somebody else keeps; its counters go on. The result file is written on
    every way out.
    """
    report = RunReport(settings.result_file, shown_argv(settings, argv), say)
    name = name_of_script(settings.training_script)
    with reporting(report):
        session = open_session(
            report,
            os.environ,
            say,
            name,
            given=given,
            notify=notify_of(settings),
            agent=AGENT,
            platform=settings.platform,
        )
        try:
            with showing_status(settings, session.events, samples=samples_of_run(session)):
                _run(settings, session, make_place, given)
        except BaseException as error:
            report.details = details_of(session.run_directory.path, error)
            if getattr(error, "goes_on", False):
                session.close_journals()
                raise
            session.close(error)
            _tell_verdict(report.details)
            insist(f"logs, events and result: {session.run_directory.path}")
            raise
        report.details = details_of(session.run_directory.path, None)
        session.close(None)


def _run(
    settings: LaunchSettings,
    session: Session,
    make_place: Callable[[Session], Place],
    given: GivenRun | None,
) -> None:
    stores = StoreHost.spawn()  # it loads torch while the platform is looked at
    try:
        _run_at(settings, session, make_place(session), given, stores)
    finally:
        stores.close()


def _run_at(
    settings: LaunchSettings,
    session: Session,
    place: Place,
    given: GivenRun | None,
    stores: StoreHost,
) -> None:
    inbox = Inbox()
    try:
        asking = Asking(inbox.post, session.events.record)
        asks_again = bool(settings.extender or settings.extender_url)
        leashes = LeashServer(place.address, asking.hear, lease=place.lease, asks_again=asks_again)
        try:
            endpoint = f"{place.address}:{stores.open()}"
            commands = AgentCommands(settings, session, place, endpoint, given)
            view = _View(session.run_directory.run_id, place.deployment)
            options = options_for(settings, place)
            with _placer(settings, session, place, options.demand) as placer:
                manager = Manager(
                    inbox,
                    place.cluster,
                    leashes,
                    _replacer(view, session, place.replacer),
                    commands,
                    options,
                    session.events.record,
                    session.say,
                    placer,
                )
                view.current = manager.nodes
                with asking.opened(leashes, manager.hosts, session.run_directory):
                    outcome = manager.run()
        finally:
            leashes.close()
    finally:
        inbox.close()
    if outcome.exit_code != ExitCode.SUCCESS:
        raise ManagedJobFailed(outcome)


@dataclass(slots=True)
class _View:
    """The manager as its extensions see it."""

    run_id: str
    deployment: Deployment
    current: Callable[[], Sequence[Node]] = tuple

    @property
    def nodes(self) -> list[NodeInfo]:
        return [info_of(node) for node in self.current()]


def _replacer(view: _View, session: Session, otherwise: Replacer) -> Replacer:
    """What the installed extensions make of a lost node; what is wrong with them is said."""
    composition = compose(installed_extensions(), view)
    for problem in composition.problems:
        session.say(problem)
    session.events.record(
        "extensions",
        members=[f"{cls.__module__}:{cls.__qualname__}" for cls in composition.members],
        problems=list(composition.problems),
        deployment=asdict(view.deployment),
    )
    if composition.extension is None or not composition.replaces_nodes:
        return otherwise
    return ExtensionReplacer(composition.extension)


@contextmanager
def _placer(
    settings: LaunchSettings, session: Session, place: Place, demand: Demand
) -> Iterator[Placer | None]:
    """Who decides where agents run, if the user has named somebody. Raises UsageError."""
    if not settings.extender and not settings.extender_url:
        yield None
        return
    from dlrover_cli.manager.session_placer import PlacedJob, SessionPlacer
    from dlrover_cli.scheduling.of_settings import scheduling_of
    from dlrover_cli.telemetry.run_dir import state_directory

    config = scheduling_of(settings, session.say)
    assert config is not None
    name = name_of_script(settings.training_script)
    run_id = session.run_directory.run_id
    job = PlacedJob(run_id, name, demand, place.resource_names)
    placer = SessionPlacer(config, job, session.say, state_directory(os.environ))
    try:
        yield placer
    finally:
        placer.close()


def options_for(settings: LaunchSettings, place: Place) -> ManagerOptions:
    """What the settings say about the job as a whole."""
    least, most = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    grace = 30.0 if settings.shutdown_timeout is None else float(settings.shutdown_timeout)
    return ManagerOptions(
        Demand(least, most, place.resources),
        max_node_relaunches=settings.max_node_relaunches,
        end_together=grace + _MARGIN_SECONDS,
        lease=place.lease,
        relaunches=place.relaunches,
        explain=place.explain,
        more_signals=place.more_signals,
    )


@dataclass(frozen=True, slots=True)
class AgentCommands:
    """Makes the command line and environment of each agent: the user's settings, and our place."""

    settings: LaunchSettings
    session: Session
    place: Place
    endpoint: str
    given: GivenRun | None

    def __call__(
        self, agent: str, node: Node, leash: LeashAddress, counters: Counters | None = None
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        directory = self.session.run_directory
        if counters is None and self.given is not None:
            counters = self.given.counters
        part = GivenRun(directory.run_id, str(directory.path), agent, counters)
        environ = {
            **{key: text for key, text in os.environ.items() if key not in _OF_THE_MANAGER},
            **self.place.environ,
            given_run.VARIABLE: part.to_json(),
            wire.VARIABLE: leash.to_json(),
            "DLROVER_RUN_ID": directory.run_id,
        }
        return [*self.place.command, *self._arguments(node)], environ

    def _arguments(self, node: Node) -> list[str]:
        settings = self.settings
        least, most = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
        ours: dict[str, Any] = {
            "nnodes": f"{least}:{most}",
            "rdzv_backend": "dlrover",
            "rdzv_endpoint": self.endpoint,
            "rdzv_id": self.session.run_directory.run_id,
            "rdzv_conf": ",".join(filter(None, (settings.rdzv_conf, "is_host=0"))),
            "local_addr": settings.local_addr or node.address,
        }
        options = [
            option
            for setting in SETTINGS
            if setting.name not in _NOT_FOR_AGENTS
            and (value := ours.get(setting.name, getattr(settings, setting.name)))
            != setting.default
            and value is not None
            for option in options_of(setting, value)
        ]
        return [*options, "--", settings.training_script, *settings.training_script_args]


def _tell_verdict(details: Mapping[str, Any]) -> None:
    """What the node knows on which the job failed."""
    from dlrover_cli.diagnosis.verdict import lines_of, verdict_from

    with suppress(KeyError, TypeError, ValueError):
        insist("\n".join(lines_of(verdict_from(details["verdict"]))))


def details_of(run_directory: Path, error: BaseException | None) -> dict[str, Any]:
    """What the nodes know about the end: of one that ended as the job did."""
    wanted = ExitCode.SUCCESS if error is None else getattr(error, "exit_code", None)
    found: dict[str, Any] = {}
    for path in sorted(run_directory.glob("nodes/*/result.json")):
        with suppress(OSError, ValueError):
            document = json.loads(path.read_text())
            if document.get("exit_code") == wanted and len(document) > len(found):
                found = document
    return {key: found[key] for key in _FROM_AGENTS if key in found}


_NOT_FOR_AGENTS = frozenset(
    {"dry_run", "json_output", "result_file", "standalone", "platform"}
    | {setting.name for setting in SETTINGS if setting.name.startswith("extender")}
)
_OF_THE_MANAGER = frozenset({given_run.VARIABLE, wire.VARIABLE})
