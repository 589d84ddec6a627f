"""From an entry of a job file to the objects that a job's plugin works with.

A configuration keeps its class's own defaults wherever the file says nothing.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dlrover_cli.contracts.jobs import AISubGraph, BaseJobConfig, BaseNode
from dlrover_cli.jobs.job_entry import JobEntry
from dlrover_cli.jobs.job_values import READERS, suggestion
from dlrover_cli.plugins.faults import describe, must_propagate, user_frame

_NOT_IN_CONFIG = frozenset({"plugin"})
_PLACES = "_property_places"


def make_config(entry: JobEntry, config_type: type[BaseJobConfig]) -> BaseJobConfig:
    """The configuration of a job. Raises UsageError for a key that the class does not know.

    The constructor gets those keys that it has parameters for. Properties are laid over those that
    it sets by itself.
    """
    taken = _parameters(config_type)
    _refuse_unknown_keys(entry, taken)
    named = {key: value for key, value in entry.values.items() if key not in _NOT_IN_CONFIG}
    named |= {"platform": entry.platform, "engine": entry.engine, "job_name": entry.name}
    if entry.after:
        named["after"] = list(entry.after)
    own = {key: item for key, item in named.pop("properties", {}).items() if item is not None}
    arguments = {key: value for key, value in named.items() if key in taken}
    _refuse_missing_keys(entry, config_type, taken, arguments.keys() | {"properties"})
    if "properties" in taken:
        defaults = _defaults(entry, config_type, taken, arguments)
        arguments["properties"] = {**defaults, **own}
    config = _constructed(entry, config_type, arguments)
    config.properties = {**(getattr(config, "properties", None) or {}), **own}
    for key, value in named.items():
        if key not in taken:
            setattr(config, key, value)
    setattr(config, _PLACES, lambda key: entry.where("properties", key))
    return config


def make_sub_graph(entry: JobEntry, config: BaseJobConfig) -> AISubGraph:
    """The part of the file's graph that is this job, for its plugin's `generate`."""
    node = BaseNode(instance_id=entry.name, name=entry.name, properties=config.properties)
    return AISubGraph(config, nodes={entry.name: node}, edges={entry.name: entry.after})


def property_places(config: BaseJobConfig) -> Callable[[str], str]:
    """For complaints about a property: from its key to its place in the file, `train.yaml:12`.

    Known in the process that has read the file; elsewhere the job's name stands for it.
    """
    places: Callable[[str], str] | None = getattr(config, _PLACES, None)
    return places or (lambda _: f"job {config.job_name!r}")


def _parameters(config_type: type[BaseJobConfig]) -> Mapping[str, inspect.Parameter]:
    """What the constructor takes by name, and what it hands on with ``**kwargs``."""
    found: dict[str, inspect.Parameter] = {}
    for cls in config_type.__mro__:
        if "__init__" not in vars(cls):
            continue
        parameters = list(inspect.signature(vars(cls)["__init__"]).parameters.values())[1:]
        for each in parameters:
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                found.setdefault(each.name, each)
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            break
    return found


def _refuse_unknown_keys(entry: JobEntry, taken: Mapping[str, inspect.Parameter]) -> None:
    known = tuple(dict.fromkeys([*READERS, *taken]))
    for key in entry.document.value[entry.name]:
        if key not in known:
            what = f"there is no key {key!r} in a job of engine {entry.engine!r}"
            raise entry.wrong(what, suggestion(key, known), key)


def _refuse_missing_keys(
    entry: JobEntry,
    config_type: type[BaseJobConfig],
    taken: Mapping[str, inspect.Parameter],
    given: "set[str]",
) -> None:
    for name, parameter in taken.items():
        if parameter.default is parameter.empty and name not in given:
            what = f"job {entry.name!r} has no {name}, and {config_type.__name__} needs it"
            raise entry.wrong(what, f"Add {entry.document.example(name, '...')}")


def _defaults(
    entry: JobEntry,
    config_type: type[BaseJobConfig],
    taken: Mapping[str, inspect.Parameter],
    arguments: Mapping[str, Any],
) -> Mapping[str, Any]:
    if taken["properties"].default is inspect.Parameter.empty:
        return {}
    return getattr(_constructed(entry, config_type, arguments), "properties", None) or {}


def _constructed(
    entry: JobEntry, config_type: type[BaseJobConfig], arguments: Mapping[str, Any]
) -> BaseJobConfig:
    try:
        return config_type(**arguments)
    except BaseException as error:  # the boundary to the author's constructor, whatever it raises
        if must_propagate(error):
            raise
        name = f"{config_type.__module__}::{config_type.__qualname__}"
        raise entry.wrong(
            f"the configuration of job {entry.name!r}, a {name}, cannot be made: "
            f"{describe(error)}{user_frame(error)}",
            "Mend the job file or the class; nothing was started.",
        ) from error
