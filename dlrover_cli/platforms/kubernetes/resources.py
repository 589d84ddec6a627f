"""What each pod asks for, from `--resources` to the names and quantities of Kubernetes."""

import re
from difflib import get_close_matches

from dlrover_cli.config.derive import parse_nproc_per_node
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError

_ALIASES = {"gpu": "nvidia.com/gpu", "CPU": "cpu", "GPU": "nvidia.com/gpu"}
_KNOWN = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_EXTENDED = re.compile(
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_HUGE_PAGES = re.compile(r"hugepages-[1-9][0-9]*[KMG]i")


def resources_of(settings: LaunchSettings) -> dict[str, str]:
    """Quantities by name; by default a CPU for each worker. Raises ConfigError."""
    wanted: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in settings.resources.split(","))):
        name, equals, quantity = (text.strip() for text in part.partition("="))
        if not equals or not name or not quantity:
            raise _wrong(settings, f"takes NAME=QUANTITY, not {part!r}")
        name = _checked_name(settings, _ALIASES.get(name, name))
        if name in wanted:
            raise _wrong(settings, f"names {name} twice")
        wanted[name] = _checked_quantity(settings, name, quantity)
    if not wanted:
        workers = parse_nproc_per_node(settings.nproc_per_node, settings.origin("nproc_per_node"))
        wanted["cpu"] = str(workers) if isinstance(workers, int) else "1"
    return wanted


def container_resources(resources: dict[str, str]) -> dict[str, dict[str, str]]:
    """Requests and limits. CPUs have no limit: a worker that is throttled holds up all others."""
    limits = {name: quantity for name, quantity in resources.items() if name != "cpu"}
    return {"requests": dict(resources), **({"limits": limits} if limits else {})}


def _checked_name(settings: LaunchSettings, name: str) -> str:
    if name in _KNOWN or _EXTENDED.fullmatch(name) or _HUGE_PAGES.fullmatch(name):
        return name
    near = get_close_matches(name.lower(), [*_KNOWN, *_ALIASES], n=1)
    hint = f"Did you mean {_ALIASES.get(near[0], near[0])}?" if near else None
    raise _wrong(settings, f"names {name!r}, which is no resource of Kubernetes", hint)


def _checked_quantity(settings: LaunchSettings, name: str, quantity: str) -> str:
    if not _QUANTITY.fullmatch(quantity):
        raise _wrong(settings, f"takes a quantity such as 8 or 16Gi for {name}, not {quantity!r}")
    if not float(re.match(r"[0-9.]+", quantity).group()):  # type: ignore[union-attr]
        raise _wrong(settings, f"asks for no {name} at all", f"Leave {name} out.")
    if "/" in name and not quantity.isdigit():
        raise _wrong(settings, f"takes a whole number for {name}, not {quantity!r}")
    return quantity


def _wrong(settings: LaunchSettings, what: str, hint: str | None = None) -> ConfigError:
    return ConfigError(
        f"{settings.origin('resources').subject} {what}",
        setting="resources",
        hint=hint or "Write --resources=cpu=4,memory=16Gi,nvidia.com/gpu=1",
    )
