"""Submitting a job file: all of it is checked, then each job gets a run and a runner of its own.

Nothing is written before every job of the file has been generated and found to be data. A run
exists from the moment its ``job.json`` does; that of the first job is renamed into place first, and
decides for all. Runners are started before that and wait for our end of a pipe to close: if we are
killed on the way, they see how far we came, and finish or undo it.
"""

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli import __version__
from dlrover_cli.contracts.jobs import AbstractJobPlugin, AISubGraph, BaseJob
from dlrover_cli.contracts.jsonable import check_round_trip, encode
from dlrover_cli.errors import LaunchError, PluginError, UsageError
from dlrover_cli.jobs.admission import Admittance
from dlrover_cli.jobs.job_file import (
    JobEntry,
    JobFile,
    make_config,
    make_sub_graph,
    project_of,
    read_job_file,
)
from dlrover_cli.jobs.ledger import Ledger
from dlrover_cli.jobs.plugins import PluginSource, find_plugin
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import JobDocument, RunFiles
from dlrover_cli.jobs.staging import claimed, commit, stage, tell
from dlrover_cli.jobs.stop_requests import held_back
from dlrover_cli.plugins.faults import describe, must_propagate, user_frame
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import state_directory

RUNNER = "dlrover_cli.jobs.runner"


@dataclass(frozen=True, slots=True)
class SubmittedRun:
    """One job of the file, under way."""

    run_id: str
    name: str
    directory: Path


@dataclass(frozen=True, slots=True)
class Submission:
    """All runs of one file, each after those that it waits for."""

    submission_id: str
    runs: tuple[SubmittedRun, ...]


@dataclass(frozen=True, slots=True)
class _Planned:
    """A job that was generated; nothing is written yet."""

    entry: JobEntry
    source: PluginSource
    plugin: AbstractJobPlugin
    job: BaseJob
    waits_at_gate: bool


def submit(
    path: Path,
    environ: Mapping[str, str],
    on_problem: Callable[[str], None],
    admittance: Admittance | None = None,
) -> Submission:
    """Submit every job of a file and return at once. A file with a fault leaves nothing behind.

    ``admittance`` decides when each may start; without it nothing but ``after`` does.
    """
    job_file = read_job_file(path)
    planned = [_plan(entry, job_file, admittance) for entry in job_file.jobs]
    _refuse_to_wait_for_ever(planned)
    for each in planned:
        if not each.waits_at_gate:
            _tell_what_has_no_effect(each, on_problem, has_extender=admittance is not None)
    state = state_directory(environ)
    submission_id = secrets.token_hex(4)
    try:
        with (
            Ledger.open(state, on_problem) as ledger,
            claimed(state, len(planned)) as files,
        ):
            documents = _documents(planned, files, submission_id, admittance)
            gated = RUNNER if admittance is None else admittance.runner
            modules = [gated if each.waits_at_gate else RUNNER for each in planned]
            _begin(documents, files, ledger, environ, on_problem, modules)
    except OSError as error:
        raise LaunchError(
            f"the runs cannot be kept under {state}: {error.strerror}",
            hint="set XDG_STATE_HOME to a directory that can be written and has free space",
        ) from error
    runs = zip(documents, files, strict=True)
    return Submission(
        submission_id, tuple(SubmittedRun(run.run_id, run.name, each.path) for run, each in runs)
    )


def _plan(entry: JobEntry, job_file: JobFile, admittance: Admittance | None) -> _Planned:
    plugin, source = _plugin_of(entry, job_file)
    config = make_config(entry, plugin.job_config_type())
    if config.periodic_config is not None and not plugin.honours_periodic_config:
        raise UsageError(
            f"{entry.where('periodic_config')}: the platform {entry.platform!r} cannot run a job "
            "periodically",
            hint="take periodic_config out, and let a scheduler of that platform submit the job",
        )
    waits_at_gate = admittance is not None and admittance.admit(config, entry.where())
    job = _generated(plugin, entry, make_sub_graph(entry, config), job_file)
    check_round_trip(job, f"the job {entry.name!r}")
    return _Planned(entry, source, plugin, job, waits_at_gate)


def _tell_what_has_no_effect(
    planned: _Planned, on_problem: Callable[[str], None], *, has_extender: bool
) -> None:
    """Of a job that waits at no gate: what nobody acts on."""
    config, plugin, entry = planned.job.job_config, planned.plugin, planned.entry
    why = f"on platform {entry.platform!r}" if has_extender else "without --extender"
    if config.queue is not None and not plugin.honours_queue:
        on_problem(
            f"{entry.where('queue')}: {why}, the job does not wait in queue {config.queue!r}"
        )
    if config.priority and not plugin.honours_priority:
        on_problem(
            f"{entry.where('priority')}: {why}, priority {config.priority} has no effect: "
            "the job waits for no other"
        )
    if config.resources and not plugin.honours_resources:
        on_problem(
            f"{entry.where('resources')}: {why}, resources have no effect: "
            "the job starts whether they are free or not"
        )


def _plugin_of(entry: JobEntry, job_file: JobFile) -> tuple[AbstractJobPlugin, PluginSource]:
    roots = (job_file.path.parent,)
    try:
        return find_plugin(entry.platform, entry.engine, reference=entry.plugin, roots=roots)
    except PluginError as error:
        place = entry.where("engine" if entry.plugin is None else "plugin")
        raise UsageError(f"{place}: {error.message}", hint=error.hint) from error


def _generated(
    plugin: AbstractJobPlugin, entry: JobEntry, sub_graph: AISubGraph, job_file: JobFile
) -> BaseJob:
    place = entry.where()
    try:
        job = plugin.generate(sub_graph, project_of(job_file))
    except UsageError:
        raise
    except BaseException as error:  # the boundary to the plugin, whatever it raises
        if must_propagate(error):
            raise
        raise UsageError(
            f"{place}: generate of the plugin for {entry.name!r} raised "
            f"{describe(error)}{user_frame(error)}",
            hint="nothing was submitted; the plugin is "
            f"{type(plugin).__module__}::{type(plugin).__qualname__}",
        ) from error
    if not isinstance(job, plugin.job_type()):
        raise UsageError(
            f"{place}: generate of the plugin for {entry.name!r} returned a {type(job).__name__} "
            f"and not a {plugin.job_type().__name__}",
            hint="nothing was submitted; return what job_type() promises",
        )
    return job


def _refuse_to_wait_for_ever(planned: Sequence[_Planned]) -> None:
    """A periodic job ends only when it is stopped, and then it has not succeeded."""
    periodic = {each.entry.name for each in planned if each.job.job_config.periodic_config}
    for entry in (each.entry for each in planned):
        for position, name in enumerate(entry.after):
            if name in periodic:
                raise entry.wrong(
                    f"{entry.name!r} could never start: {name!r}, which it comes after, is "
                    "periodic and runs until it is stopped",
                    f"Take {name!r} out of after, or periodic_config out of {name!r}.",
                    *("after", position),
                )


def _documents(
    planned: Sequence[_Planned],
    files: Sequence[RunFiles],
    submission_id: str,
    admittance: Admittance | None,
) -> list[JobDocument]:
    run_ids = {each.entry.name: run.run_id for each, run in zip(planned, files, strict=True)}
    return [
        _document(each, run, run_ids, submission_id, admittance)
        for each, run in zip(planned, files, strict=True)
    ]


def _document(
    planned: _Planned,
    files: RunFiles,
    run_ids: Mapping[str, str],
    submission_id: str,
    admittance: Admittance | None,
) -> JobDocument:
    entry, job, config = planned.entry, planned.job, planned.job.job_config
    job.job_context.run_id = files.run_id
    job.job_context.run_directory = str(files.path)
    return JobDocument(
        run_id=files.run_id,
        name=entry.name,
        platform=entry.platform,
        engine=entry.engine,
        submission=submission_id,
        submitted=time.time(),
        host=socket.gethostname(),
        cwd=os.getcwd(),
        version=__version__,
        after=tuple(run_ids[name] for name in entry.after),
        queue=config.queue,
        priority=config.priority,
        plugin=planned.source.to_json(),
        job=encode(job, f"the job {entry.name!r}"),
        admission=admittance.file if admittance and planned.waits_at_gate else None,
    )


def _begin(
    documents: Sequence[JobDocument],
    files: Sequence[RunFiles],
    ledger: Ledger,
    environ: Mapping[str, str],
    on_problem: Callable[[str], None],
    modules: Sequence[str],
) -> None:
    """Start the runners, make the runs exist, and let the runners go, by closing their pipes."""
    runners: list[subprocess.Popen[bytes]] = []
    try:
        for document, each, module in zip(documents, files, modules, strict=True):
            stage(each, document)
            runners.append(_spawn(each, files[0], environ, module))
            tell(each, "owned", owner=ProcessIdentity.of(runners[-1].pid))
        for each in files:
            commit(each)
        for each in files:
            RunRecord.open(each, ledger, on_problem).close()  # brings the ledger up to date
    finally:
        for runner in runners:
            assert runner.stdin is not None
            runner.stdin.close()


def _spawn(
    files: RunFiles, leader: RunFiles, environ: Mapping[str, str], module: str
) -> "subprocess.Popen[bytes]":
    with open(files.runner_log, "ab", opener=_private) as log, held_back():
        return subprocess.Popen(
            # -P: the current directory must not be able to shadow the runner's own modules.
            [sys.executable, "-P", "-m", module, str(files.path), str(leader.path)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**environ, "DLROVER_RUN_ID": files.run_id},
            start_new_session=True,
        )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
