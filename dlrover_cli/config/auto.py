"""Settings that follow from other settings and from the surroundings, unless somebody gave them.

`--auto-config` and `--numa-affinity` are DLRover's: they stand for settings that are there under
other names, and what a person has said about those goes before.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlrover_cli.config.derive import parse_nnodes
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import ConfigError

_NODES = "NODE_NUM"
_CHECKED_FROM = 4
"""How many nodes make a job that is checked by itself."""


def has_gpus(environ: Mapping[str, str], devices: Path = Path("/dev")) -> bool:
    """Whether there are GPUs here for torch to count; it is not loaded yet."""
    if environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    return any(devices.glob("nvidia[0-9]*")) or (devices / "kfd").exists()


def with_what_follows(
    settings: LaunchSettings,
    environ: Mapping[str, str],
    looks_for_gpus: Callable[[Mapping[str, str]], bool] = has_gpus,
) -> LaunchSettings:
    """The settings with those filled in that follow from others."""
    found: dict[str, tuple[Any, Source]] = {}
    if settings.numa_affinity:
        found["numa_binding"] = "node", _derived_from("--numa-affinity")
    if settings.auto_config:
        auto = _derived_from("--auto-config")
        nnodes, source = settings.nnodes, settings.origin("nnodes")
        if _NODES in environ and _is_default(settings, "nnodes"):
            nnodes, source = environ[_NODES], Source(SourceKind.ENV, _NODES)
            found["nnodes"] = nnodes, source
        if looks_for_gpus(environ):
            found["nproc_per_node"] = "gpu", auto
        if _least(nnodes, source) >= _CHECKED_FROM:
            found["network_check"] = True, auto
    new = {name: each for name, each in found.items() if _is_default(settings, name)}
    if not new:
        return settings
    return replace(
        settings,
        **{name: value for name, (value, _) in new.items()},
        sources={**settings.sources, **{name: source for name, (_, source) in new.items()}},
    )


def _is_default(settings: LaunchSettings, name: str) -> bool:
    return settings.source_of(name).kind is SourceKind.DEFAULT


def _derived_from(option: str) -> Source:
    return Source(SourceKind.DERIVED, option)


def _least(nnodes: str, source: Source) -> int:
    try:
        return parse_nnodes(nnodes, source)[0]
    except ConfigError:
        return 0  # said when all settings are checked
