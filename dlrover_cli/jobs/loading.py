"""A run's plugin, job and handler, read from its files: the same in every process."""

import json

from dlrover_cli.contracts.jobs import (
    AbstractJobHandler,
    AbstractJobPlugin,
    BaseJob,
    BaseJobConfig,
    JobContext,
)
from dlrover_cli.contracts.jsonable import NotJsonable, decode, encode
from dlrover_cli.errors import LaunchError
from dlrover_cli.jobs.plugins import PluginSource, find_plugin, load_plugin
from dlrover_cli.jobs.run_files import JobDocument, RunFiles
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
        job = decode(document.job)
        if not isinstance(job, plugin.job_type()):
            raise NotJsonable(f"{files.job} holds a {type(job).__name__} and not the plugin's job")
    job.job_handler = read_handler(files)
    return plugin, job


def write_handler(files: RunFiles, handler: AbstractJobHandler) -> None:
    write_json_atomically(files.handler, encode(handler, "the handler"))


def read_handler(files: RunFiles) -> AbstractJobHandler | None:
    """None if the job has none yet. Raises LaunchError if it has one that cannot be read."""
    try:
        handler = decode(json.loads(files.handler.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LaunchError(f"cannot read {files.handler}: {error}") from error
    if not isinstance(handler, AbstractJobHandler):
        raise LaunchError(f"{files.handler} holds no job handler")
    return handler


def _foreground_job(files: RunFiles, document: JobDocument) -> BaseJob:
    context = JobContext()
    context.run_id, context.run_directory = files.run_id, str(files.path)
    return BaseJob(context, BaseJobConfig(document.platform, document.engine, document.name))
