"""One run of ``dlrover-run``: from resolved settings to the end of the job."""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from dlrover_cli.config.derive import check_settings, parse_nproc_per_node, parse_signals
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.launch.advisers import Advisers
from dlrover_cli.launch.error_file import handing_on_errors
from dlrover_cli.launch.interrupted import interruptible
from dlrover_cli.launch.outcome import RunReport, reporting
from dlrover_cli.launch.rebuild import Resume, run_again, take_resume
from dlrover_cli.launch.script import check_script, entry_point_of, plugin_roots
from dlrover_cli.launch.session import Session, open_session
from dlrover_cli.launch.torchrun import check_compat, hand_over_to_torchrun
from dlrover_cli.workers.commands import CommandStarter
from dlrover_cli.workers.streams import fill_standard_descriptors


def launch(settings: LaunchSettings, argv: Sequence[str]) -> None:
    """Run the job to its end. Raises torch's ChildFailedError, SignalException or DlroverError.

    The result file is written on every way out from here on.
    """
    fill_standard_descriptors()
    resume = take_resume(os.environ)
    with reporting(RunReport(settings.result_file, list(argv), say)) as report:
        check_settings(settings)
        check_compat(settings)
        if settings.compat == "torchrun":
            check_script(settings, os.environ)
            hand_over_to_torchrun(settings)
            return
        signals = parse_signals(settings.signals_to_handle, settings.origin("signals_to_handle"))
        with handing_on_errors(report, os.environ), interruptible(signals):
            check_script(settings, os.environ)
            _run_in_session(settings, argv, report, resume)


def say(line: str) -> None:
    """Narration: one line on stderr, apart from what the workers print."""
    # Closed, full, or a pipe that nobody reads any more: no reason to end a training.
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"dlrover-run: {line}\n")
        sys.stderr.flush()


def _run_in_session(
    settings: LaunchSettings, argv: Sequence[str], report: RunReport, resume: Resume | None
) -> None:
    session = open_session(report, os.environ, say, {"argv": list(argv)}, resume)
    try:
        _run(settings, session)
    except BaseException as error:
        _replace_this_node(session, argv)
        session.close(error)
        if report.ending is not None:
            say(f"logs, events and result: {session.run_directory.path}")
        raise
    session.close(None)


def _run(settings: LaunchSettings, session: Session) -> None:
    roots = plugin_roots(settings)
    # Both of these start interpreters that come up while this one imports torch.
    advisers = Advisers(settings, roots, session.events.record, session.run_directory)
    starter = None if settings.run_path else CommandStarter(say)
    try:
        asked = parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
        limited = _limit_threads(asked)
        from dlrover_cli.launch.compose import run_agent
        from dlrover_cli.launch.from_settings import config_of
        from dlrover_cli.launch.hosting import host_of_stores

        config = config_of(settings, session.run_directory.logs, say)
        if limited or _limit_threads(config.nproc_per_node):
            say("OMP_NUM_THREADS is not set; every worker gets 1 thread")
        # What the workers inherit, as under torchrun.
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle
        entrypoint, args = entry_point_of(settings, os.environ)
        with host_of_stores(config) as make_host:
            run_agent(config, entrypoint, args, session, roots, advisers, starter, make_host)
    finally:
        advisers.chain.close()
        if starter is not None:
            starter.close(leave_survivors=False)


def _replace_this_node(session: Session, argv: Sequence[str]) -> None:
    """On a single node a NODE verdict means a new launcher; nobody else could start one."""
    report = session.report
    if report.ending is None or not report.ending.replaces_itself:
        return
    session.events.record("node_replaced", host=socket.gethostname())
    session.events.close()
    directory = session.run_directory
    run_again(
        argv,
        Resume(
            directory.run_id,
            str(directory.path),
            directory.agent,
            report.started,
            report.ending.settlement.counters,
        ),
    )


def _limit_threads(workers: int | str) -> bool:
    """torchrun's rule: several workers on a node get one OpenMP thread each unless told otherwise.

    torch reads the variable once, when it is imported: a number is known before that. How many a
    word such as ``gpu`` means is not, but then it is still in time for the workers.
    """
    if not isinstance(workers, int) or workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return False
    os.environ["OMP_NUM_THREADS"] = "1"
    return True
