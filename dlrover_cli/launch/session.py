"""What surrounds one agent: its run directory, its journals, and its voice on stderr.

A run that this launcher began has a journal of its life beside that of the node: `dlrover-job`
reads there in which state the run is, and whose it is.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli import __version__
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.failover.decide import Counters
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.launch.notifying import Notify
from dlrover_cli.launch.outcome import RunReport
from dlrover_cli.launch.rebuild import Resume
from dlrover_cli.telemetry.events import EventLog
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import (
    SCHEMA_VERSION,
    RunDirectory,
    create_run_directory,
    join_run_directory,
)


@dataclass(frozen=True, slots=True)
class Session:
    """Opened for one launch; closed on every way out by whoever opened it."""

    run_directory: RunDirectory
    events: EventLog
    say: Callable[[str], None]
    report: RunReport
    life: EventLog | None
    """The journal of the run's life; None if somebody else keeps it."""
    counters: Counters = field(default_factory=Counters)
    """Where the counting goes on."""
    at_end: list[Callable[[bool], None]] = field(default_factory=list)
    """Who listens to the events; called after the last one, with whether the run is over."""

    @property
    def is_given(self) -> bool:
        """Whether somebody else has set up this run."""
        return self.life is None

    def close(self, error: BaseException | None) -> None:
        """Record the end and close the journals."""
        self.record_end(error)
        self.close_journals(is_over=True)

    def record_end(self, error: BaseException | None) -> None:
        """Record how it ended. Closing may take a while: listeners get time to tell of it."""
        document = self.report.document(error)
        self.events.record(
            "run_finished", **{key: document[key] for key in ("outcome", "exit_code", "reason")}
        )
        if self.life is not None:
            before = RunState.RUNNING
            for state in _last_states(document["outcome"]):
                _move(self.life, before, state, document)
                before = state

    def close_journals(self, *, is_over: bool = False) -> None:
        """Close them, by default without an end: the run goes on in another incarnation."""
        while self.at_end:
            # A signal ends the waiting; how the run has ended stands already.
            with suppress(KeyboardInterrupt):
                self.at_end.pop()(is_over)
        self.events.close()
        if self.life is not None:
            self.life.close()


def open_session(
    report: RunReport,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    name: str,
    *,
    resume: Resume | None = None,
    given: GivenRun | None = None,
    agent: str | None = None,
    platform: str = "local",
    notify: Notify | None = None,
) -> Session:
    """Make the run directory and start the journals, or go on with those of a run that is there.

    ``name`` is what `dlrover-job list` shows; ``agent`` what our directory in the run is called.
    """
    if resume is not None:
        return _reopen(report, say, resume, notify)
    life = None
    if given is None:
        directory = create_run_directory(environ, say, agent)
        life = _begin_life(directory, report, name, platform)
    else:
        path = Path(given.run_directory)
        directory = join_run_directory(path, given.run_id, agent or given.agent, say)
        report.result_name = given.result_name
        if given.keeps_life:
            life = EventLog(directory.life, directory.run_id, say)
            life.record("owned", owner=ProcessIdentity.own().to_json())
    report.run_directory = directory
    events = EventLog(directory.events, directory.run_id, say)
    counters = None if given is None else given.counters
    session = Session(directory, events, say, report, life, counters or Counters())
    _begin_telling(session, notify, tells_of_run=given is None or given.agent is None)
    events.record("run_started", argv=report.argv, pid=os.getpid(), host=socket.gethostname())
    return session


def _begin_telling(session: Session, notify: Notify | None, *, tells_of_run: bool) -> None:
    """Notify from the first event on; of the run as a whole only who is not one of several."""
    if notify is None:
        return
    notifier = notify.begin(session.run_directory, session.say, tells_of_run=tells_of_run)
    session.events.subscribe(notifier.put)
    session.at_end.append(lambda is_over: notifier.close(is_over=is_over))


def _reopen(
    report: RunReport, say: Callable[[str], None], resume: Resume, notify: Notify | None
) -> Session:
    directory = RunDirectory(Path(resume.run_directory), resume.run_id, resume.agent, say)
    report.run_directory, report.started = directory, resume.started
    life = None if resume.is_given else EventLog(directory.life, directory.run_id, say)
    events = EventLog(directory.events, directory.run_id, say)
    session = Session(directory, events, say, report, life, resume.counters)
    _begin_telling(session, notify, tells_of_run=True)
    events.record("run_resumed", argv=report.argv, pid=os.getpid(), host=socket.gethostname())
    return session


def _begin_life(
    directory: RunDirectory,
    report: RunReport,
    name: str,
    platform: str,
) -> EventLog:
    """The same documents and events as those of a submitted job, whose life has more states."""
    directory.write_document(
        "job.json",
        {
            "schema_version": SCHEMA_VERSION,
            "run_id": directory.run_id,
            "name": name,
            "platform": platform,
            "engine": "torch",
            "submission": directory.run_id,
            "submitted": report.started,
            "after": [],
            "queue": None,
            "priority": 0,
            "host": socket.gethostname(),
            "cwd": os.getcwd(),
            "plugin": None,
            "job": None,
            "argv": list(report.argv),
            "version": __version__,
        },
    )
    life = EventLog(directory.life, directory.run_id, report.say)
    owner = ProcessIdentity.own().to_json()
    life.record("submitted", by=owner)
    life.record("owned", owner=owner)
    # It began to load before it could tell anything, and that is part of its time.
    _move(life, RunState.PENDING, RunState.STARTING, since=report.started)
    _move(life, RunState.STARTING, RunState.RUNNING)
    return life


def _move(
    life: EventLog,
    before: RunState,
    after: RunState,
    result: Mapping[str, Any] | None = None,
    **more: float,
) -> None:
    words = {"reason": "", "exit_code": None} if result is None else result
    life.record(
        "state",
        **{"from": before.value, "to": after.value},
        reason=words["reason"],
        exit_code=words["exit_code"],
        **more,
    )


def _last_states(outcome: str) -> tuple[RunState, ...]:
    match outcome:
        case "succeeded":
            return (RunState.FINISHED,)
        case "signalled":
            return (RunState.STOPPING, RunState.KILLED)
        case _:
            return (RunState.FAILED,)
