"""torchrun itself: the command line that means the same, and handing a run over to it."""

import os
from collections.abc import Iterator, MutableMapping

from dlrover_cli.config.declaring import Kind, Setting
from dlrover_cli.config.settings import SETTINGS, LaunchSettings
from dlrover_cli.errors import ConfigError
from dlrover_cli.exit_codes import ExitCode

_NOT_FOR_TORCHRUN = (
    "rdzv_handler",
    "metrics_handler",
    "dynamic_failover_extension",
)
_NOT_ABOUT_THE_RUN = ("dry_run", "json_output", "result_file", "quiet", "compat")


def torchrun_arguments(settings: LaunchSettings) -> tuple[str, ...]:
    """The arguments with which torchrun would do the same, without those that are defaults."""
    options = [
        text
        for setting in SETTINGS
        if setting.torchrun
        for text in _option(setting, _torchruns_value(setting, settings))
    ]
    # torchrun takes the first "--" for its own.
    if settings.training_script.startswith("-") or "--" in settings.training_script_args:
        options.append("--")
    return (*options, settings.training_script, *settings.training_script_args)


def check_compat(settings: LaunchSettings) -> None:
    """Refuse what only we can do together with ``--compat=torchrun``."""
    if settings.compat != "torchrun":
        return
    for name in _NOT_FOR_TORCHRUN:
        if getattr(settings, name):
            raise ConfigError(
                f"{settings.origin(name).subject} has no effect under --compat=torchrun",
                setting=name,
                hint="leave out one of the two",
            )


def without_effect(settings: LaunchSettings) -> list[str]:
    """What was asked for and is not in torchrun's power, each as fit to start a sentence."""
    return [
        settings.origin(setting.name).subject
        for setting in SETTINGS
        if not setting.torchrun
        and setting.name not in _NOT_ABOUT_THE_RUN
        and getattr(settings, setting.name) != setting.default
    ]


def hand_over_to_torchrun(settings: LaunchSettings) -> None:
    """Run torch's own launcher in this process."""
    from torch.distributed import run

    try:
        run.main(_unambiguous_arguments(settings, os.environ))
    except Exception as error:
        # torchrun ends in a traceback and 1, whatever the cause was.
        error.exit_code = ExitCode.FAILURE  # type: ignore[attr-defined]
        raise


def _unambiguous_arguments(
    settings: LaunchSettings, environ: MutableMapping[str, str]
) -> list[str]:
    """What to tell torchrun, which reads its PET variables itself.

    A default that won over such a variable has to be spelt out; a flag cannot be denied on the
    command line, so there the variable has to go.
    """
    overruled = []
    for setting in SETTINGS:
        variable = f"PET_{setting.name.upper()}"
        value = getattr(settings, setting.name)
        if not setting.torchrun or variable not in environ or value != setting.default:
            continue
        if setting.kind is Kind.FLAG or value is None or value == ():
            del environ[variable]
        else:
            overruled.append(f"{setting.option}={value}")
    return [*overruled, *torchrun_arguments(settings)]


def _torchruns_value(setting: Setting, settings: LaunchSettings) -> object:
    """torchrun does not have our rendezvous; its own c10d takes the same settings."""
    value: object = getattr(settings, setting.name)
    return "c10d" if setting.name == "rdzv_backend" and value == "dlrover" else value


def _option(setting: Setting, value: object) -> Iterator[str]:
    if value == setting.default:
        return
    match setting.kind:
        case Kind.FLAG:
            yield setting.option
        case Kind.TEXTS if isinstance(value, tuple):
            yield f"{setting.option}={','.join(text.replace(',', ',,') for text in value)}"
        case _:
            yield f"{setting.option}={value}"
