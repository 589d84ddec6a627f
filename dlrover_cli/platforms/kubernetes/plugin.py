"""kubernetes × torch: a job file's torch job as a Job, a CronJob, or a Job of Volcano."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlrover_cli.config.properties import launch_arguments
from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.contracts.jobs import (
    AbstractJob,
    AbstractJobPlugin,
    AbstractPlatform,
    AISubGraph,
    BaseJob,
    BaseJobConfig,
    JobContext,
    ProjectDesc,
)
from dlrover_cli.errors import ConfigError, LaunchError
from dlrover_cli.exit_codes import from_signal
from dlrover_cli.jobs.job_config import property_places
from dlrover_cli.platforms.engines import TorchEngine, properties_of
from dlrover_cli.platforms.kubernetes.connecting import connect
from dlrover_cli.platforms.kubernetes.ending import Ending, ending_of, pod_end
from dlrover_cli.platforms.kubernetes.handler import (
    KubernetesHandler,
    read_ending,
    write_ending,
)
from dlrover_cli.platforms.kubernetes.names import stem_of
from dlrover_cli.platforms.kubernetes.objects import RunObjects, delete_command
from dlrover_cli.platforms.kubernetes.request import Request, request_of
from dlrover_cli.platforms.kubernetes.schedule import cron_of

Places = Callable[[str], str]
"""From a property to where it stands, for complaints."""


class KubernetesPlatform(AbstractPlatform):
    """The cluster that kubectl would use."""

    @staticmethod
    def platform() -> str:
        return "kubernetes"


class KubernetesTorchConfig(BaseJobConfig):
    """Properties: the settings of `dlrover-run`, `script`, `args` and `env`."""


class KubernetesJob(BaseJob):
    """What is asked of Kubernetes."""

    def __init__(self, job_context: JobContext, job_config: BaseJobConfig) -> None:
        super().__init__(job_context, job_config)
        self.request: dict[str, Any] = {}


class KubernetesTorchPlugin(AbstractJobPlugin):
    """Submits to the cluster at hand. A periodic job becomes a CronJob, which repeats it."""

    honours_periodic_config = True
    honours_resources = True
    platform_repeats = True

    def generate(self, sub_graph: AISubGraph, project_desc: ProjectDesc) -> KubernetesJob:
        config = sub_graph.config
        job = KubernetesJob(JobContext(project_desc), config)
        where = property_places(config)
        settings = _settings_of(config, Path(project_desc.project_path), where)
        request = replace(
            request_of(settings, _variables(config, where)),
            stem=stem_of(config.job_name or settings.training_script),
        )
        if config.periodic_config is not None:
            if request.kind != "job":
                raise ConfigError(
                    f"{where('k8s_kind')}: a periodic job is a CronJob, which makes Jobs of "
                    "Kubernetes itself and none of Volcano",
                    setting="k8s_kind",
                    hint="Leave out k8s_kind, or periodic_config.",
                )
            request = replace(request, schedule=cron_of(config.periodic_config, where))
        job.request = request.to_json()
        return job

    def generate_job_resource(self, job: AbstractJob) -> None:
        """Nothing is needed but what `submit_job` makes."""

    def submit_job(self, job: AbstractJob) -> KubernetesHandler:
        objects = _objects_of(job)
        objects.create()
        context = job.job_context
        handler = KubernetesHandler(objects.request, context.run_id, context.run_directory)
        handler.keep_logs()
        return handler

    def stop_job(self, job: AbstractJob) -> None:
        """Delete its objects, and wait until its pods have ended. Raises LaunchError."""
        objects, directory = _objects_of(job), job.job_context.run_directory
        main = objects.main()
        if main is not None and read_ending(directory) is None:
            ends = filter(None, map(pod_end, objects.pods()))
            stopped = Ending(from_signal(15), "stopped")
            write_ending(directory, ending_of(main, ends) or stopped)
        _delete(objects, job.job_context.stop_grace)

    def cleanup_job(self, job: AbstractJob) -> None:
        """Delete what is left of its objects. Its logs stay for as long as the run is kept."""
        _delete(_objects_of(job), None)

    def job_type(self) -> type[KubernetesJob]:
        return KubernetesJob

    def job_config_type(self) -> type[KubernetesTorchConfig]:
        return KubernetesTorchConfig

    def platform(self) -> type[KubernetesPlatform]:
        return KubernetesPlatform

    def engine(self) -> type[TorchEngine]:
        return TorchEngine


def _objects_of(job: AbstractJob) -> RunObjects:
    assert isinstance(job, KubernetesJob)
    request = Request.from_json(job.request)
    return RunObjects(connect(os.environ), request, job.job_context.run_id)


def _delete(objects: RunObjects, grace: float | None) -> None:
    left = objects.delete(grace)
    if left:
        raise LaunchError(
            f"pods that do not end: {', '.join(left)}",
            hint=f"their nodes may not answer; try: {delete_command(objects.manifests)} --force",
        )


def _settings_of(config: BaseJobConfig, directory: Path, where: Places) -> LaunchSettings:
    """What the job says, and for all else the environment, a config file there, and defaults."""
    properties = {key: each for key, each in properties_of(config).items() if key != "env"}
    arguments = launch_arguments(properties, where)
    end = arguments.index("--")
    flags: dict[str, object] = {
        "training_script": arguments[end + 1],
        "training_script_args": arguments[end + 2 :],
        **_flags_of(arguments[:end]),
    }
    return resolve_settings(flags, os.environ, directory)


def _flags_of(options: tuple[str, ...]) -> dict[str, object]:
    """Options as `launch_arguments` writes them, by the names of their settings."""
    by_option = {setting.option: setting for setting in SETTINGS}
    found: dict[str, object] = {}
    for option in options:
        name, equals, text = option.partition("=")
        setting = by_option[name]
        if not equals:
            found[setting.name] = True
        elif setting.repeatable:
            earlier = found.get(setting.name, [])
            assert isinstance(earlier, list)
            found[setting.name] = [*earlier, text]
        else:
            found[setting.name] = text
    return found


def _variables(config: BaseJobConfig, where: Places) -> dict[str, str]:
    given = config.properties.get("env") or {}
    hint = 'Write it like this: env: {NAME: "value"}'
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where('env')}: env takes a mapping", setting="env", hint=hint)
    for name, value in given.items():
        if not isinstance(name, str) or not name.replace("_", "a").isalnum() or name[0].isdigit():
            message = f"{where('env')}: env cannot have {name!r}, no variable is called so"
            raise ConfigError(message, setting="env", hint=hint)
        if not isinstance(value, str):
            message = f"{where('env')}: env.{name} takes a text, not {value!r}"
            raise ConfigError(
                message, setting="env", hint="Put it in quotes, just as you wrote it."
            )
        if name in _OURS:
            message = f"{where('env')}: env cannot set {name}, which is set for each pod"
            raise ConfigError(message, setting="env", hint="Leave it out.")
    return dict(given)


_OURS = frozenset(
    {
        *("XDG_STATE_HOME", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        *("DLROVER_LOCAL_ADDR", "DLROVER_NODE_NAME", "DLROVER_RUN", "DLROVER_RUN_ID"),
        *("DLROVER_SUBMITTED_RUN_ID", "DLROVER_KUBERNETES_JOB", "DLROVER_LEASH"),
    }
)
