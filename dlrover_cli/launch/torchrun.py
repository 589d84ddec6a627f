"""torchrun itself: the command line that means the same, and handing a run over to it."""

from collections.abc import Iterator

from dlrover_cli.config.settings import SETTINGS, Kind, LaunchSettings, Setting
from dlrover_cli.errors import ConfigError

_NOT_FOR_TORCHRUN = (
    "rdzv_handler",
    "metrics_handler",
    "dynamic_failover_extension",
)


def torchrun_arguments(settings: LaunchSettings) -> tuple[str, ...]:
    """The arguments with which torchrun would do the same, without those that are defaults."""
    options = [
        text
        for setting in SETTINGS
        if setting.torchrun
        for text in _option(setting, getattr(settings, setting.name))
    ]
    return (*options, settings.training_script, *settings.training_script_args)


def hand_over_to_torchrun(settings: LaunchSettings) -> None:
    """Run torch's own launcher in this process; what only we can do is refused first."""
    for name in _NOT_FOR_TORCHRUN:
        if getattr(settings, name):
            raise ConfigError(
                f"{settings.origin(name).subject} has no effect under --compat=torchrun",
                setting=name,
                hint="leave out one of the two",
            )
    from torch.distributed import run

    run.main(list(torchrun_arguments(settings)))


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
