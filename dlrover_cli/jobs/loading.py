"""A run's plugin, job and handler, read from its files: the same in every process."""

import json
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.jobs import (
    AbstractJobHandler,
    AbstractJobPlugin,
    BaseJob,
    BaseJobConfig,
    JobContext,
)
from dlrover_cli.contracts.jsonable import NotJsonable, decode, encode
from dlrover_cli.errors import DlroverError, LaunchError
from dlrover_cli.jobs.plugins import PluginSource, find_plugin, load_plugin
from dlrover_cli.jobs.run_files import JobDocument, RunFiles
from dlrover_cli.jobs.story import Story
from dlrover_cli.plugins.faults import describe
from dlrover_cli.telemetry.run_dir import write_json_atomically


def load_job(files: RunFiles, document: JobDocument) -> tuple[AbstractJobPlugin, BaseJob]:
    """The plugin, and the job with its handler, if it was submitted. Raises DlroverError.

    A run in the foreground names no plugin; that of its platform and engine can stop it.
    """
    if document.plugin is None:
        plugin, _ = find_plugin(document.platform, document.engine, reference=None, roots=())
        job = _foreground_job(files, document)
    else:
        plugin = load_plugin(PluginSource.from_json(document.plugin))
        job = _decoded(files.job, document.job)
        if not isinstance(job, plugin.job_type()):
            raise NotJsonable(f"{files.job} holds a {type(job).__name__} and not the plugin's job")
    job.job_handler = read_handler(files)
    return plugin, job


def load_what_was_started(
    files: RunFiles, document: JobDocument, story: Story
) -> tuple[AbstractJobPlugin, BaseJob] | None:
    """As `load_job`; None if that fails and the job was never started, so that nothing is left."""
    try:
        return load_job(files, document)
    except DlroverError:
        if story.started is None:
            return None
        raise


def write_handler(files: RunFiles, handler: AbstractJobHandler) -> None:
    write_json_atomically(files.handler, encode(handler, "the handler"))


def read_handler(files: RunFiles) -> AbstractJobHandler | None:
    """None if the job has none yet. Raises LaunchError if it has one that cannot be read."""
    try:
        written = json.loads(files.handler.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LaunchError(f"cannot read {files.handler}: {error}") from error
    handler = _decoded(files.handler, written)
    if not isinstance(handler, AbstractJobHandler):
        raise LaunchError(f"{files.handler} holds no job handler")
    return handler


def _decoded(path: Path, written: object) -> Any:
    try:
        return decode(written)
    except DlroverError:
        raise
    except Exception as error:  # the boundary to the author's from_json and setters
        raise LaunchError(f"cannot read {path}: {describe(error)}") from error


def _foreground_job(files: RunFiles, document: JobDocument) -> BaseJob:
    context = JobContext()
    context.run_id, context.run_directory = files.run_id, str(files.path)
    return BaseJob(context, BaseJobConfig(document.platform, document.engine, document.name))
