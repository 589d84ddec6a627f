"""One run of ``dlrover-run``: from resolved settings to the end of the job."""

import os
import socket
import sys
from collections.abc import Sequence

from dlrover_cli.config.derive import check_settings, parse_nproc_per_node
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.launch.advisers import Advisers
from dlrover_cli.launch.outcome import RunReport, reporting
from dlrover_cli.launch.rebuild import Resume, run_again, take_resume
from dlrover_cli.launch.script import check_script, entry_point_of, plugin_roots
from dlrover_cli.launch.session import Session, open_session
from dlrover_cli.launch.torchrun import hand_over_to_torchrun
from dlrover_cli.workers.commands import CommandStarter


def launch(settings: LaunchSettings, argv: Sequence[str]) -> None:
    """Run the job to its end. Raises torch's ChildFailedError, SignalException or DlroverError.

    The result file is written on every way out from here on.
    """
    resume = take_resume(os.environ)
    with reporting(RunReport(settings.result_file, list(argv))) as report:
        check_settings(settings)
        check_script(settings, os.environ)
        if settings.compat == "torchrun":
            hand_over_to_torchrun(settings)
            return
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


def say(line: str) -> None:
    """Narration: one line on stderr, apart from what the workers print."""
    sys.stderr.write(f"dlrover-run: {line}\n")
    sys.stderr.flush()


def _run(settings: LaunchSettings, session: Session) -> None:
    roots = plugin_roots(settings)
    # Both of these start interpreters that come up while this one imports torch.
    advisers = Advisers(settings, roots, session.events.record, session.run_directory)
    starter = None if settings.run_path else CommandStarter(say)
    try:
        _limit_threads(settings)
        from dlrover_cli.launch.compose import run_agent
        from dlrover_cli.launch.from_settings import config_of

        config = config_of(settings, session.run_directory.logs, say)
        # What the workers inherit, as under torchrun.
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = config.signals_to_handle
        entrypoint, args = entry_point_of(settings, os.environ)
        run_agent(config, entrypoint, args, session, roots, advisers, starter)
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


def _limit_threads(settings: LaunchSettings) -> None:
    """torchrun's rule: several workers on a node get one OpenMP thread each unless told otherwise.

    Has to happen before torch is imported, which reads the variable once.
    """
    workers = parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
    if workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    say("OMP_NUM_THREADS is not set; every worker gets 1 thread")
