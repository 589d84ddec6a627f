"""Which plugin runs jobs of which engine on which platform: registered here, found here.

    register_platform(MyPlatform)
    register_engine(MyEngine)
    register_job_plugin(MyPlugin())

A plugin brings its platform and engine along, so the last line alone will do. Each may also stand
above the class as a decorator.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeVar

from dlrover_cli.contracts.job_checks import (
    CheckedPlugin,
    check_job_plugin,
    check_named,
    reference_of,
)
from dlrover_cli.contracts.jobs import AbstractEngine, AbstractJobPlugin, AbstractPlatform
from dlrover_cli.errors import PluginError

Pair = tuple[str, str]
"""The names of a platform and of an engine."""

PlatformType = TypeVar("PlatformType", bound=type[AbstractPlatform])
EngineType = TypeVar("EngineType", bound=type[AbstractEngine])
PluginOrType = TypeVar("PluginOrType", bound=AbstractJobPlugin | type[AbstractJobPlugin])


def register_platform(platform: PlatformType, *, replace: bool = False) -> PlatformType:
    """Make a platform known by its name. Raises PluginError."""
    name = check_named(platform, AbstractPlatform, "platform")
    _registry.add_platform(name, platform, replace=replace)
    return platform


def register_engine(engine: EngineType, *, replace: bool = False) -> EngineType:
    """Make an engine known by its name. Raises PluginError."""
    name = check_named(engine, AbstractEngine, "engine")
    _registry.add_engine(name, engine, replace=replace)
    return engine


def register_job_plugin(plugin: PluginOrType, *, replace: bool = False) -> PluginOrType:
    """Make a plugin, or the class of one, known for its platform and engine. Raises PluginError."""
    _registry.add_plugin(check_job_plugin(plugin), replace=replace)
    return plugin


def find_job_plugin(platform: str, engine: str) -> AbstractJobPlugin:
    """The registered plugin. Raises PluginError, which lists those that there are."""
    return _registry.find(platform, engine)


def registered_plugins() -> Mapping[Pair, AbstractJobPlugin]:
    return MappingProxyType(_registry.plugins)


def pair_text(pair: Pair) -> str:
    """`local/torch`."""
    return "/".join(pair)


class JobRegistry:
    """Platforms and engines by name, plugins by both names."""

    def __init__(self) -> None:
        self.platforms: dict[str, type[AbstractPlatform]] = {}
        self.engines: dict[str, type[AbstractEngine]] = {}
        self.plugins: dict[Pair, AbstractJobPlugin] = {}

    def copy(self) -> "JobRegistry":
        other = JobRegistry()
        other.platforms |= self.platforms
        other.engines |= self.engines
        other.plugins |= self.plugins
        return other

    def add_platform(self, name: str, platform: type[AbstractPlatform], *, replace: bool) -> None:
        present = self.platforms.get(name)
        if present not in (None, platform) and not replace:
            raise _duplicate(f"the platform {name!r}", present, platform)
        self.platforms[name] = platform

    def add_engine(self, name: str, engine: type[AbstractEngine], *, replace: bool) -> None:
        present = self.engines.get(name)
        if present not in (None, engine) and not replace:
            raise _duplicate(f"the engine {name!r}", present, engine)
        self.engines[name] = engine

    def add_plugin(self, checked: CheckedPlugin, *, replace: bool) -> None:
        platform, engine = pair = checked.pair
        if pair in self.plugins and not replace:
            what = f"a job plugin for {pair_text(pair)}"
            raise _duplicate(what, self.plugins[pair], checked.plugin)
        self.platforms.setdefault(platform, checked.platform)
        self.engines.setdefault(engine, checked.engine)
        self.plugins[pair] = checked.plugin

    def find(self, platform: str, engine: str) -> AbstractJobPlugin:
        plugin = self.plugins.get((platform, engine))
        if plugin is None:
            raise self.not_found(platform, engine)
        return plugin

    def not_found(self, platform: str, engine: str) -> PluginError:
        """The error that says what is unknown about this pair, and what there is."""
        unknown = [
            f"there is no {kind} {name!r}"
            for kind, name, known in (
                ("platform", platform, self.platforms),
                ("engine", engine, self.engines),
            )
            if name not in known
        ]
        why = " and ".join(unknown) or f"no plugin runs engine {engine!r} on platform {platform!r}"
        pairs = sorted(pair_text(pair) for pair in self.plugins)
        wanted = pair_text((platform, engine))
        return PluginError(
            f"{why}; there are plugins for: {', '.join(pairs) or 'nothing'}",
            reference=wanted,
            reason="unknown-pair",
            hint=self._what_else(platform, engine),
        )

    def _what_else(self, platform: str, engine: str) -> str:
        pairs = sorted(self.plugins)
        if not pairs:
            return "register one with register_job_plugin, or install a package that brings one"
        for pair in pairs:
            # Of each half by itself: the other one alone would make strangers look alike.
            if _is_near(platform, pair[0]) and _is_near(engine, pair[1]):
                return f"did you mean {pair_text(pair)}?"
        if engine in self.platforms and engine not in self.engines:
            engines = [pair[1] for pair in pairs if pair[0] == engine]
            return f"{engine!r} is a platform, and goes with the engine {' or '.join(engines)}"
        on = [pair[0] for pair in pairs if pair[1] == engine]
        if on:
            return f"the engine {engine!r} runs on: {', '.join(on)}"
        return "name one of these, or the class of your own plugin as module::Class"


def _is_near(given: str, known: str) -> bool:
    return bool(get_close_matches(given, [known]))


@contextmanager
def registering_aside() -> Iterator[JobRegistry]:
    """What is registered within the block goes into a registry of its own, which is yielded.

    For modules that register what is in them when they are imported, while somebody else decides
    what it is to be used for.
    """
    global _registry
    kept, _registry = _registry, JobRegistry()
    try:
        yield _registry
    finally:
        _registry = kept


def current_registry() -> JobRegistry:
    return _registry


def _duplicate(what: str, present: object, new: object) -> PluginError:
    return PluginError(
        f"{what} is registered already: {reference_of(present)}; {reference_of(new)} would hide it",
        reference=reference_of(new),
        reason="duplicate",
        hint="give it another name, or register it with replace=True",
    )


_registry = JobRegistry()
