"""What an agent needs, from `--resources` to the names that Ray has for it."""

from collections.abc import Mapping
from typing import Any

from dlrover_cli.config.derive import parse_nproc_per_node
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError

_NAMES = {"cpu": "CPU", "gpu": "GPU", "nvidia.com/gpu": "GPU", "amd.com/gpu": "GPU"}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_DECIMAL = {"m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNITS = _BINARY | _DECIMAL


def resources_of(settings: LaunchSettings) -> dict[str, float]:
    """Ray's names and numbers; by default a CPU for each worker. Raises ConfigError."""
    wanted: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in settings.resources.split(","))):
        name, equals, text = part.partition("=")
        amount = _amount(text.strip())
        if not equals or not name.strip() or amount is None:
            raise ConfigError(
                f"{settings.origin('resources').subject} takes NAME=QUANTITY, not {part!r}",
                setting="resources",
                hint="Write --resources=cpu=4,memory=8Gi,nvidia.com/gpu=1",
            )
        name = name.strip()
        wanted[_NAMES.get(name.lower(), name)] = amount
    if "CPU" not in wanted:
        asked = parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
        wanted["CPU"] = float(asked) if isinstance(asked, int) else 1.0
    return wanted


def actor_options(resources: Mapping[str, float]) -> dict[str, Any]:
    """How an actor asks for these."""
    others = {key: each for key, each in resources.items() if key not in ("CPU", "GPU", "memory")}
    options: dict[str, Any] = {
        "num_cpus": resources.get("CPU", 0.0),
        "num_gpus": resources.get("GPU", 0.0),
        "resources": others,
    }
    if "memory" in resources:
        options["memory"] = resources["memory"]
    return options


def _amount(text: str) -> float | None:
    for unit in sorted(_UNITS, key=len, reverse=True):
        if text.endswith(unit):
            number = _number(text.removesuffix(unit))
            return None if number is None else number * _UNITS[unit]
    return _number(text)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
