"""Registering takes a plugin that is whole, and says all that is wrong with any other at once."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dlrover_cli.contracts import (
    AbstractEngine,
    AbstractJobPlugin,
    AbstractPlatform,
    BaseJob,
    find_job_plugin,
    job_registry,
    register_engine,
    register_job_plugin,
    register_platform,
    registered_plugins,
)
from dlrover_cli.contracts.job_checks import BadJobPlugin
from dlrover_cli.contracts.job_registry import JobRegistry, registering_aside
from dlrover_cli.errors import PluginError
from tests.jobs.good_plugin import Moon, MoonRover, Rover


@pytest.fixture(autouse=True)
def registry() -> Iterator[JobRegistry]:
    """An empty one, for this test alone."""
    with registering_aside() as registry:
        yield registry


def platform_named(name: Any) -> type[AbstractPlatform]:
    return type("Mars", (AbstractPlatform,), {"platform": staticmethod(lambda: name)})


def engine_named(name: Any) -> type[AbstractEngine]:
    return type("Crawler", (AbstractEngine,), {"engine": staticmethod(lambda: name)})


def plugin_for(platform: str, engine: str) -> AbstractJobPlugin:
    members = {
        "platform": lambda self: platform_named(platform),
        "engine": lambda self: engine_named(engine),
    }
    made: AbstractJobPlugin = type("Other", (MoonRover,), members)()
    return made


# ---- what is wrong with a plugin --------------------------------------------------------------


def rover_with(**members: Any) -> type:
    """The good plugin with something else in some places."""
    return type("BadRover", (MoonRover,), members)


def rover_without(*names: str) -> type:
    members = {name: value for name, value in vars(MoonRover).items() if name not in names}
    return type("BadRover", (AbstractJobPlugin,), members)


def raises(error: BaseException) -> Callable[..., Any]:
    def method(*_args: object) -> Any:
        raise error

    return method


async def asynchronous(self: object, job: object) -> None: ...


def yielding(self: object, job: object) -> Iterator[int]:
    yield 1


class NoStaticName(AbstractPlatform):
    def platform(self) -> str:  # type: ignore[override]
        return "moon"


class NamelessEngine(AbstractEngine):
    pass


class Duck:
    """Has the methods and not the base."""

    submit_job = stop_job = cleanup_job = generate_job_resource = lambda self, job: None


class NeedsArguments(MoonRover):
    def __init__(self, endpoint: str) -> None:
        super().__init__()


BAD: dict[str, tuple[Any, str, str]] = {
    "a number": (42, "it is of type int and not a job plugin", "AbstractJobPlugin"),
    "None": (None, "it is of type NoneType", "AbstractJobPlugin"),
    "a function": (raises, "it is a function", "name the class"),
    "a module": (job_registry, "it is a module", "name the class"),
    "another class": (
        Moon,
        "must derive from AbstractJobPlugin and derives from AbstractPlatform",
        "class MyPlugin(AbstractJobPlugin)",
    ),
    "the base itself": (
        AbstractJobPlugin,
        "it does not define generate, generate_job_resource, submit_job, stop_job, cleanup_job, ",
        "def generate(self, sub_graph, project_desc)",
    ),
    "one method missing": (
        rover_without("stop_job"),
        "it does not define stop_job",
        "def stop_job(self, job)",
    ),
    "a duck": (Duck, "derives from object; it does not define generate, job_type", "class MyPlug"),
    "a constructor with arguments": (NeedsArguments, "takes (endpoint)", "def __init__(self)"),
    "a constructor that raises": (
        rover_with(__init__=raises(OSError("no cluster"))),
        "its constructor raised OSError: no cluster",
        "def __init__(self)",
    ),
    "a constructor that exits": (
        rover_with(__init__=raises(SystemExit(3))),
        "its constructor called sys.exit(3)",
        "def __init__(self)",
    ),
    "too few parameters": (
        rover_with(submit_job=lambda self: None),
        "submit_job is called with (job) and takes ()",
        "def submit_job(self, job)",
    ),
    "too many parameters": (
        rover_with(generate=lambda self, sub_graph, project_desc, more: None),
        "generate is called with (sub_graph, project_desc) and takes (sub_graph, project_desc, ",
        "def generate(self, sub_graph, project_desc)",
    ),
    "a keyword-only parameter": (
        rover_with(cleanup_job=lambda self, *, job: None),
        "cleanup_job is called with (job) and takes (*, job)",
        "def cleanup_job(self, job)",
    ),
    "no method at all": (
        rover_with(stop_job=None),
        "stop_job is of type NoneType and not a method",
        "def stop_job(self, job)",
    ),
    "a property that raises": (
        rover_with(stop_job=property(raises(KeyError("x")))),
        "looking up stop_job raised KeyError: 'x'",
        "def stop_job(self, job)",
    ),
    "an async method": (
        rover_with(submit_job=asynchronous),
        "submit_job is async, so that calling it would do nothing",
        "def submit_job(self, job)",
    ),
    "a generator": (
        rover_with(submit_job=yielding),
        "submit_job is a generator",
        "def submit_job(self, job)",
    ),
    "job_type raises": (
        rover_with(job_type=raises(ValueError())),
        "job_type() raised ValueError",
        "a subclass of BaseJob",
    ),
    "job_type of another kind": (
        rover_with(job_type=lambda self: dict),
        "job_type() is the class dict, not a subclass of BaseJob",
        "the class itself",
    ),
    "job_type is an object": (
        rover_with(job_type=lambda self: BaseJob.__new__(BaseJob)),
        "job_type() is a BaseJob object, not the class",
        "the class itself",
    ),
    "job_config_type is nothing": (
        rover_with(job_config_type=lambda self: None),
        "job_config_type() is None, not a subclass of BaseJobConfig",
        "the class itself",
    ),
    "platform is its name": (
        rover_with(platform=lambda self: "moon"),
        "platform() is 'moon', not a subclass of AbstractPlatform",
        "the class itself",
    ),
    "platform is an engine": (
        rover_with(platform=lambda self: Rover),
        "platform() is the class Rover, not a subclass of AbstractPlatform",
        "the class itself",
    ),
    "a platform that is not static": (
        rover_with(platform=lambda self: NoStaticName),
        "NoStaticName.platform() raised TypeError",
        "@staticmethod def platform() in NoStaticName",
    ),
    "an engine without a name": (
        rover_with(engine=lambda self: NamelessEngine),
        "NamelessEngine.engine() raised NotImplementedError",
        "@staticmethod def engine() in NamelessEngine",
    ),
    "an engine with an empty name": (
        rover_with(engine=lambda self: engine_named("")),
        "Crawler.engine() is empty",
        "a name such as",
    ),
    "an engine with a number": (
        rover_with(engine=lambda self: engine_named(7)),
        "Crawler.engine() is 7, not a text",
        "a name such as",
    ),
    "a platform that leaves its directory": (
        rover_with(platform=lambda self: platform_named("../moon")),
        "Mars.platform() is '../moon': a name has letters",
        "a name such as",
    ),
    "a name with a newline": (
        rover_with(platform=lambda self: platform_named("moon\n")),
        "Mars.platform() is 'moon\\n': a name has letters",
        "a name such as",
    ),
    "a name that looks like an option": (
        rover_with(engine=lambda self: engine_named("-f")),
        "Crawler.engine() is '-f'",
        "a name such as",
    ),
}


@pytest.mark.parametrize("plugin, why, hint", BAD.values(), ids=BAD.keys())
def test_a_bad_plugin_is_refused_with_what_is_wrong(
    plugin: Any, why: str, hint: str, registry: JobRegistry
) -> None:
    with pytest.raises(PluginError) as refused:
        register_job_plugin(plugin)
    assert why in refused.value.message
    assert hint in (refused.value.hint or "")
    assert "\n" not in refused.value.message
    assert refused.value.exit_code == 2
    assert isinstance(refused.value, BadJobPlugin)
    assert len(refused.value.problems) == (2 if plugin is Duck else 1)
    assert (registry.plugins, registry.platforms, registry.engines) == ({}, {}, {})


def test_everything_that_is_wrong_is_named_at_once() -> None:
    members = {
        name: value
        for name, value in vars(MoonRover).items()
        if name not in ("stop_job", "cleanup_job")
    }
    bad = type(
        "VeryBad",
        (AbstractJobPlugin,),
        members
        | {
            "submit_job": lambda self: None,
            "job_type": raises(OSError("full")),
            "platform": lambda self: platform_named(""),
            "engine": lambda self: "rover",
        },
    )
    with pytest.raises(BadJobPlugin) as refused:
        register_job_plugin(bad)
    assert [problem.message for problem in refused.value.problems] == [
        "it does not define stop_job, cleanup_job",
        "submit_job is called with (job) and takes ()",
        "job_type() raised OSError: full",
        "Mars.platform() is empty",
        "engine() is 'rover', not a subclass of AbstractEngine",
    ]
    for problem in refused.value.problems:
        assert problem.message in refused.value.message
        assert problem.hint in (refused.value.hint or "")


def test_what_does_not_need_an_object_is_checked_without_one() -> None:
    bad = rover_with(__init__=raises(OSError("no cluster")), stop_job=lambda self: None)
    with pytest.raises(BadJobPlugin) as refused:
        register_job_plugin(bad)
    assert "its constructor raised OSError" in refused.value.message
    assert "stop_job is called with (job) and takes (self)" in refused.value.message


def test_checking_starts_nothing() -> None:
    called: list[str] = []
    methods = ("generate", "generate_job_resource", "submit_job", "stop_job", "cleanup_job")
    spies = {name: lambda self, *args, name=name: called.append(name) for name in methods}
    register_job_plugin(rover_with(**spies))
    assert called == []


# ---- registering and finding ------------------------------------------------------------------


@pytest.mark.parametrize("given", [MoonRover, MoonRover()], ids=["class", "object"])
def test_a_whole_plugin_is_registered_and_found(given: Any) -> None:
    assert register_job_plugin(given) is given
    assert isinstance(find_job_plugin("moon", "rover"), MoonRover)
    assert list(registered_plugins()) == [("moon", "rover")]


def test_a_plugin_brings_its_platform_and_engine(registry: JobRegistry) -> None:
    register_job_plugin(MoonRover)
    assert registry.platforms == {"moon": Moon}
    assert registry.engines == {"rover": Rover}


def test_in_the_order_of_the_tutorial_nothing_is_a_duplicate() -> None:
    register_platform(Moon)
    register_engine(Rover)
    register_job_plugin(MoonRover())
    register_platform(Moon)


def test_a_plugin_leaves_a_platform_that_is_there_in_its_place(registry: JobRegistry) -> None:
    mine = register_platform(platform_named("moon"))
    register_job_plugin(MoonRover)
    assert registry.platforms == {"moon": mine}


@pytest.mark.parametrize(
    "register, first, second, said",
    [
        (register_platform, Moon, platform_named("moon"), "the platform 'moon'"),
        (register_engine, Rover, engine_named("rover"), "the engine 'rover'"),
        (register_job_plugin, MoonRover, rover_with(), "a job plugin for moon/rover"),
        (register_job_plugin, MoonRover, MoonRover, "a job plugin for moon/rover"),
    ],
    ids=["platform", "engine", "plugin", "the same plugin"],
)
def test_a_duplicate_is_refused_unless_it_replaces(
    register: Callable[..., Any], first: Any, second: Any, said: str, registry: JobRegistry
) -> None:
    register(first)
    before = registry.copy()
    with pytest.raises(PluginError) as refused:
        register(second)
    assert f"{said} is registered already: " in refused.value.message
    assert f"::{first.__name__}; " in refused.value.message
    assert "replace=True" in (refused.value.hint or "")
    assert vars(registry) == vars(before)
    register(second, replace=True)
    kept = [*registry.platforms.values(), *registry.engines.values()]
    kept += [type(plugin) for plugin in registry.plugins.values()]
    assert second in kept


@pytest.mark.parametrize("bad", ["moon", Moon(), Rover, platform_named("a/b"), NoStaticName])
def test_a_bad_platform_is_refused(bad: Any, registry: JobRegistry) -> None:
    with pytest.raises(BadJobPlugin, match=r"^platform "):
        register_platform(bad)
    assert registry.platforms == {}


@pytest.mark.parametrize("bad", [None, Rover(), Moon, engine_named(None), NamelessEngine])
def test_a_bad_engine_is_refused(bad: Any, registry: JobRegistry) -> None:
    with pytest.raises(BadJobPlugin, match=r"^engine "):
        register_engine(bad)
    assert registry.engines == {}


@pytest.mark.parametrize(
    "platform, engine, why, hint",
    [
        ("mon", "rover", "there is no platform 'mon';", "did you mean moon/rover?"),
        ("moon", "rovre", "there is no engine 'rovre';", "did you mean moon/rover?"),
        ("x", "y", "there is no platform 'x' and there is no engine 'y';", "module::Class"),
        ("mars", "rover", "no plugin runs engine 'rover' on platform 'mars';", "runs on: moon"),
        ("", "rover", "there is no platform '';", "the engine 'rover' runs on: moon"),
        ("moor", "crawle", "there is no platform 'moor'", "module::Class"),
        ("moon", "mars", "there is no engine 'mars'", "'mars' is a platform, and goes with the "),
    ],
)
def test_an_unknown_pair_lists_those_that_there_are(
    platform: str, engine: str, why: str, hint: str
) -> None:
    register_job_plugin(MoonRover)
    register_job_plugin(plugin_for("mars", "crawler"))
    with pytest.raises(PluginError) as refused:
        find_job_plugin(platform, engine)
    assert refused.value.message.startswith(why)
    assert refused.value.message.endswith("there are plugins for: mars/crawler, moon/rover")
    assert hint in (refused.value.hint or "")


def test_without_any_plugin_the_hint_says_how_to_get_one() -> None:
    register_platform(Moon)
    with pytest.raises(PluginError) as refused:
        find_job_plugin("moon", "rover")
    assert refused.value.message == "there is no engine 'rover'; there are plugins for: nothing"
    assert "register_job_plugin" in (refused.value.hint or "")


def test_what_is_registered_aside_is_not_registered() -> None:
    register_job_plugin(MoonRover)
    with registering_aside() as aside:
        register_job_plugin(MoonRover)
        assert list(aside.plugins) == [("moon", "rover")]
        register_job_plugin(plugin_for("mars", "crawler"))
    assert list(registered_plugins()) == [("moon", "rover")]


def test_the_mapping_of_plugins_is_for_reading() -> None:
    with pytest.raises(TypeError):
        registered_plugins()["moon", "rover"] = MoonRover()  # type: ignore[index]
