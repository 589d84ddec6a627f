"""What the settings of a launch say about scheduling: a file, or one service by options."""

from collections.abc import Callable
from pathlib import Path

from dlrover_cli.config.quantities import parse_quantity
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError
from dlrover_cli.scheduling.options import from_options
from dlrover_cli.scheduling.reading import read_extender_file
from dlrover_cli.scheduling.settings import DEFAULT_ACTIONS, SchedulingConfig


def scheduling_of(settings: LaunchSettings, say: Callable[[str], None]) -> SchedulingConfig | None:
    """None if nobody is to be asked. Raises UsageError."""
    if settings.extender:
        config = read_extender_file(Path(settings.extender))
        if config.skipped:
            say(f"{settings.extender}: has no meaning here: {', '.join(config.skipped)}")
        return config
    if not settings.extender_url:
        return None
    extender = from_options(
        settings.extender_url,
        timeout=settings.extender_timeout,
        verbs=settings.extender_verbs,
        ignorable=settings.extender_ignorable,
        managed_resources=settings.extender_managed_resources,
        token_file=settings.extender_token_file,
        ca_file=settings.extender_ca_file,
    )
    return SchedulingConfig(DEFAULT_ACTIONS, (extender,))


def resources_of(settings: LaunchSettings) -> dict[str, float]:
    """What `--resources` asks for, in base units. Raises ConfigError."""
    wanted: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in settings.resources.split(","))):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        try:
            if not name or not equals:
                raise ValueError(f"write NAME=QUANTITY, not {part!r}")
            wanted[name] = parse_quantity(text)
        except ValueError as error:
            raise ConfigError(
                f"{settings.origin('resources').subject}: {error}",
                setting="resources",
                hint="Write --resources=cpu=4,memory=8Gi,nvidia.com/gpu=1",
            ) from None
    return wanted
