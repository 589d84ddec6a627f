"""One run of ``dlrover-run``: from resolved settings to the end of the job."""

import gc
import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_cli.config.derive import check_settings, parse_nproc_per_node, parse_signals
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.telling_sources import telling_sources
from dlrover_cli.errors import ConfigError
from dlrover_cli.failover.decide import Counters
from dlrover_cli.launch.debugging import check_debugging, tell_debugging
from dlrover_cli.launch.error_file import handing_on_errors
from dlrover_cli.launch.given_run import GivenRun, take_given_run
from dlrover_cli.launch.helpers import Helpers
from dlrover_cli.launch.interrupted import interruptible
from dlrover_cli.launch.notifying import Notify, notify_of, shown_argv
from dlrover_cli.launch.outcome import RunReport, reporting, reporting_failure
from dlrover_cli.launch.place import FreePlace, Place
from dlrover_cli.launch.rebuild import Resume, run_again, take_resume
from dlrover_cli.launch.script import (
    check_script,
    entry_point_of,
    name_of_script,
    plugin_roots,
)
from dlrover_cli.launch.session import Session, open_session
from dlrover_cli.launch.status.showing import showing_status
from dlrover_cli.launch.torchrun import check_compat, hand_over_to_torchrun, without_effect
from dlrover_cli.launch.voice import be_quiet, insist, say
from dlrover_cli.launch.worker_start import WorkerStart, plan_worker_start
from dlrover_cli.leash.client import Leash
from dlrover_cli.leash.wire import LeashAddress, take_leash_address
from dlrover_cli.telemetry.run_dir import RunDirectory
from dlrover_cli.workers.commands import CommandStarter, NurseryClient
from dlrover_cli.workers.streams import fill_standard_descriptors

if TYPE_CHECKING:
    from dlrover_cli.telemetry.live import SampleListener


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that has been checked and is ready to go; torch is loaded."""

    settings: LaunchSettings
    argv: Sequence[str]
    report: RunReport
    signals: tuple[signal.Signals, ...]
    resume: Resume | None
    given: GivenRun | None
    leash: LeashAddress | None
    worker_start: WorkerStart
    notify: Notify | None = None


def prepare(settings: LaunchSettings, argv: Sequence[str]) -> Launch | None:
    """Check everything that can be checked without starting anything, and load torch.

    None if another launcher has run the job (``--compat``). Leaves no thread behind.
    """
    fill_standard_descriptors()
    be_quiet(settings.quiet)
    resume, given = take_resume(os.environ), take_given_run(os.environ)
    leash = take_leash_address(os.environ)
    report = RunReport(settings.result_file, shown_argv(settings, argv), say)
    if given is not None and given.agent is None and settings.compat == "none":
        # Whoever submitted the job reads there why it was refused.
        directory = Path(given.run_directory)
        report.run_directory = RunDirectory(directory, given.run_id, "", say)
    with reporting_failure(report), telling_sources(settings):
        check_settings(settings)
        check_compat(settings)
        notify = _notify(settings, given)
        signals = parse_signals(settings.signals_to_handle, settings.origin("signals_to_handle"))
        if settings.compat == "none":
            check_debugging(settings)
            tell_debugging(settings, say)
    if settings.compat == "torchrun":
        with reporting(report):
            check_script(settings, os.environ)
            if idle := without_effect(settings):
                say(f"without effect under --compat=torchrun: {', '.join(idle)}")
            hand_over_to_torchrun(settings)
        return None
    watched = _watched(report, signals)
    with reporting_failure(report), watched as raise_swallowed, telling_sources(settings):
        check_script(settings, os.environ)
        worker_start = plan_worker_start(settings, os.environ)
        asked = parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
        _limit_threads(asked)
        _load_torch()
        raise_swallowed()
    return Launch(settings, argv, report, signals, resume, given, leash, worker_start, notify)


def _notify(settings: LaunchSettings, given: GivenRun | None) -> Notify | None:
    """On other machines the files of secrets need not be: one of several agents goes without."""
    if given is None or given.agent is None:
        return notify_of(settings)
    try:
        return notify_of(settings)
    except ConfigError as error:
        say(f"this node notifies nobody: {error.message}")
        return None


def _load_torch() -> None:
    """What is forked from this process shares all of it; the rest is loaded beside them."""
    collects = gc.isenabled()
    gc.disable()  # imports make next to no garbage
    try:
        import torch.distributed  # noqa: F401
    finally:
        if collects:
            gc.enable()


def run(prepared: Launch, helpers: Helpers, place: Place | None = None) -> None:
    """Run the job to its end. Raises torch's ChildFailedError, SignalException or DlroverError.

    The result file is written on every way out, the helpers are ended, and the place is free.
    """
    watched = _watched(prepared.report, prepared.signals)
    with reporting(prepared.report), watched as raise_swallowed, helpers:
        _run_in_session(prepared, helpers, raise_swallowed, place or FreePlace())


@contextmanager
def _watched(report: RunReport, signals: Iterable[signal.Signals]) -> Iterator[Callable[[], None]]:
    with handing_on_errors(report, os.environ), interruptible(signals) as raise_swallowed:
        yield raise_swallowed


def _run_in_session(
    prepared: Launch, helpers: Helpers, raise_swallowed: Callable[[], None], place: Place
) -> None:
    report, argv = prepared.report, prepared.argv
    name = name_of_script(prepared.settings.training_script)
    session = open_session(
        report,
        os.environ,
        say,
        name,
        resume=prepared.resume,
        given=prepared.given,
        notify=prepared.notify,
    )
    try:
        with showing_status(prepared.settings, session.events) as on_sample:
            place.take(session.run_directory.run_id, name)
            with telling_sources(prepared.settings):
                _run(prepared, session, helpers, raise_swallowed, place, on_sample)
    except BaseException as error:
        place.give_back()
        _replace_this_node(session, argv, helpers)
        session.record_end(error)
        _tell_verdict(report, session.run_directory.path)
        session.close_journals(is_over=True)
        raise
    place.give_back()
    session.close(None)


def _tell_verdict(report: RunReport, run_directory: Path) -> None:
    verdict = report.verdict
    if verdict is not None:
        from dlrover_cli.diagnosis.verdict import lines_of

        insist("\n".join(lines_of(verdict)))
    if report.ending is not None:
        insist(f"logs, events and result: {run_directory}")


def _run(
    prepared: Launch,
    session: Session,
    helpers: Helpers,
    raise_swallowed: Callable[[], None],
    place: Place,
    on_sample: "Sequence[SampleListener]",
) -> None:
    # Loaded while the zygote loads what the workers need.
    from dlrover_cli.launch.advisers import Advisers
    from dlrover_cli.launch.compose import run_agent
    from dlrover_cli.launch.from_settings import config_of

    settings = prepared.settings
    roots = plugin_roots(settings)
    advisers = Advisers(settings, roots, session.events.record, session.run_directory)
    starter = None if settings.run_path else _starter(prepared.worker_start, helpers.zygote)
    try:
        config = config_of(settings, session.run_directory.logs, say)
        _limit_threads(config.nproc_per_node)
        # What the workers inherit, as under torchrun.
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle
        entrypoint, args = entry_point_of(settings, os.environ)
        raise_swallowed()
        leash = None if prepared.leash is None else Leash(prepared.leash)
        run_agent(
            config,
            entrypoint,
            args,
            session,
            roots,
            advisers,
            starter,
            helpers.store_host,
            leash,
            on_sample,
            _place_again(leash, place),
        )
    finally:
        advisers.chain.close()
        if starter is not None:
            starter.close(leave_survivors=False)


def _place_again(leash: Leash | None, place: Place) -> Callable[[Counters], None] | None:
    """Who is asked for the place again when the whole job starts afresh; None for nobody."""
    if leash is not None and leash.asks_again:
        return lambda counters: leash.ask_for_place(asdict(counters))
    return None if isinstance(place, FreePlace) else lambda counters: place.take_again()


def _starter(worker_start: WorkerStart, zygote: NurseryClient | None) -> CommandStarter:
    if worker_start.reason is not None:
        say(f"workers are started fresh: {worker_start.reason}")
    if not worker_start.warm:
        return CommandStarter(say)
    if zygote is None:
        zygote = NurseryClient.start_warm(
            worker_start.preloads, worker_start.beside, learns=worker_start.learns
        )
    return CommandStarter(say, zygote)


def _replace_this_node(session: Session, argv: Sequence[str], helpers: Helpers) -> None:
    """On a single node a NODE verdict means a new launcher; nobody else could start one."""
    report = session.report
    if report.ending is None or not report.ending.replaces_itself:
        return
    session.events.record("node_replaced", host=socket.gethostname())
    session.close_journals()
    helpers.close()  # its process would stay ours, and nobody would wait for it
    directory = session.run_directory
    run_again(
        argv,
        Resume(
            directory.run_id,
            str(directory.path),
            directory.agent,
            report.started,
            report.ending.settlement.counters,
            session.is_given,
        ),
    )


def _limit_threads(workers: int | str) -> None:
    """torchrun's rule: several workers on a node get one OpenMP thread each unless told otherwise.

    torch reads the variable once, when it is imported: a number is known before that. How many a
    word such as ``gpu`` means is not, but then it is still in time for the workers.
    """
    if workers == "cpu":
        workers = os.cpu_count() or 1
    if not isinstance(workers, int) or workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    say("OMP_NUM_THREADS is not set; every worker gets 1 thread")
