"""A job plugin judged whole: all that is missing or wrong in it, in one error.

What can be looked at is looked at, also when something else is wrong already: its author mends
everything at once.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dlrover_cli.contracts.jobs import (
    AbstractEngine,
    AbstractJobPlugin,
    AbstractPlatform,
    BaseJob,
    BaseJobConfig,
)
from dlrover_cli.errors import PluginError

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

# What each method is called with, by position.
_CALLS = {
    "generate": ("sub_graph", "project_desc"),
    "generate_job_resource": ("job",),
    "submit_job": ("job",),
    "stop_job": ("job",),
    "cleanup_job": ("job",),
    "job_type": (),
    "job_config_type": (),
    "platform": (),
    "engine": (),
}
# The class of which the answer has to be a subclass.
_ANSWERS = {
    "job_type": BaseJob,
    "job_config_type": BaseJobConfig,
    "platform": AbstractPlatform,
    "engine": AbstractEngine,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and what to write instead."""

    message: str
    hint: str


class BadJobPlugin(PluginError):
    """A plugin, platform or engine that cannot be used; `problems` are all that were found."""

    def __init__(self, called: str, reference: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            f"{called}: {'; '.join(problem.message for problem in self.problems)}",
            reference=reference,
            reason="bad-job-plugin",
            hint="; ".join(dict.fromkeys(problem.hint for problem in self.problems)),
        )


@dataclass(frozen=True, slots=True)
class CheckedPlugin:
    """A plugin that is whole, and what it said about itself."""

    plugin: AbstractJobPlugin
    platform: type[AbstractPlatform]
    engine: type[AbstractEngine]

    @property
    def pair(self) -> tuple[str, str]:
        return self.platform.platform(), self.engine.engine()


def check_job_plugin(plugin: object, *, called: str | None = None) -> CheckedPlugin:
    """The plugin, constructed if it is a class. Raises BadJobPlugin, which begins with `called`."""
    problems, made, answers = _look_at(plugin)
    if problems or made is None:
        raise BadJobPlugin(
            called or f"job plugin {reference_of(plugin)}", reference_of(plugin), problems
        )
    return CheckedPlugin(made, answers["platform"], answers["engine"])


def check_named(cls: object, base: type, method: str) -> str:
    """The name that a platform or engine gives itself. Raises BadJobPlugin."""
    problems = list(_class_problems(cls, base, "it")) or list(_name_problems(cls, method))
    if problems:
        raise BadJobPlugin(f"{method} {reference_of(cls)}", reference_of(cls), problems)
    name: str = getattr(cls, method)()
    return name


def reference_of(value: object) -> str:
    """`module::Class` of a class or of an object's class; the value itself if it is plain data."""
    cls = value if isinstance(value, type) else type(value)
    if cls.__module__ == "builtins" and cls is not value:
        return repr(value)
    return f"{cls.__module__}::{cls.__qualname__}"


def _look_at(plugin: object) -> tuple[list[Problem], AbstractJobPlugin | None, dict[str, Any]]:
    """Everything that is wrong; the object itself; and what it answers about its types."""
    cls = plugin if isinstance(plugin, type) else type(plugin)
    problems = list(_base_problems(plugin, cls))
    if problems and not hasattr(cls, "submit_job"):
        return problems, None, {}  # not meant to be one: a list of its methods would not help
    abstract: frozenset[str] = getattr(cls, "__abstractmethods__", frozenset())
    present = [name for name in _CALLS if hasattr(cls, name) and name not in abstract]
    problems += _missing_problems([*_CALLS, *sorted(abstract - _CALLS.keys())], present)
    made: Any = plugin
    if isinstance(plugin, type):
        made, more = _constructed(plugin, abstract)
        problems += more
    answers: dict[str, Any] = {}
    for name in present:
        wrong = _method_problem(cls if made is None else made, name, is_bound=made is not None)
        if wrong is not None:
            problems.append(wrong)
        elif made is not None and name in _ANSWERS:
            answers[name], more = _answer(made, name)
            problems += more
    return problems, made, answers


def _base_problems(plugin: object, cls: type) -> Iterator[Problem]:
    if issubclass(cls, AbstractJobPlugin):
        return
    if inspect.isroutine(plugin) or inspect.ismodule(plugin):
        what = "a module" if inspect.ismodule(plugin) else "a function"
        yield Problem(f"it is {what} and not a job plugin", "name the class, or an object of it")
        return
    bases = ", ".join(base.__name__ for base in cls.__bases__)
    yield Problem(
        f"the class must derive from AbstractJobPlugin and derives from {bases}"
        if cls.__module__ != "builtins"
        else f"it is of type {cls.__name__} and not a job plugin",
        "class MyPlugin(AbstractJobPlugin), with AbstractJobPlugin imported from "
        "dlrover_cli.contracts",
    )


def _missing_problems(wanted: Sequence[str], present: Sequence[str]) -> Iterator[Problem]:
    missing = [name for name in wanted if name not in present]
    if missing:
        yield Problem(
            f"it does not define {', '.join(missing)}",
            f"define {', '.join(_definition(name) for name in missing)}",
        )


def _definition(name: str) -> str:
    return f"def {name}({', '.join(('self', *_CALLS.get(name, ())))})"


def _constructed(cls: type, abstract: Collection[str]) -> tuple[Any, list[Problem]]:
    """An object of the class, so that it can be asked, even if methods are left abstract."""
    hint = "let it be constructed without arguments: def __init__(self)"
    if not _takes(cls):
        return None, [Problem(f"its constructor takes {_parameters(cls)} and is given none", hint)]
    stubs: dict[str, Any] = {name: lambda self, *args: None for name in abstract}
    made, raised = _asked(lambda: (type(cls.__name__, (cls,), stubs) if stubs else cls)())
    return made, [Problem(f"its constructor {raised}", hint)] if raised else []


def _method_problem(owner: Any, name: str, *, is_bound: bool) -> Problem | None:
    hint = f"define {_definition(name)}"
    method, raised = _asked(lambda: getattr(owner, name))
    if raised:
        return Problem(f"looking up {name} {raised}", hint)
    if not callable(method):
        return Problem(f"{name} is of type {type(method).__name__} and not a method", hint)
    if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
        kind = "async" if inspect.iscoroutinefunction(method) else "a generator"
        return Problem(f"{name} is {kind}, so that calling it would do nothing", hint)
    arguments = _CALLS[name] if is_bound else ("self", *_CALLS[name])
    if not _takes(method, *arguments):
        given = ", ".join(_CALLS[name])
        return Problem(f"{name} is called with ({given}) and takes {_parameters(method)}", hint)
    return None


def _answer(made: Any, name: str) -> tuple[Any, list[Problem]]:
    base = _ANSWERS[name]
    answer, raised = _asked(getattr(made, name))
    if raised:
        hint = f"let {name}() return a subclass of {base.__name__}"
        return None, [Problem(f"{name}() {raised}", hint)]
    problems = list(_class_problems(answer, base, f"{name}()"))
    if not problems and name in ("platform", "engine"):
        problems += _name_problems(answer, name)
    return answer, problems


def _class_problems(answer: object, base: type, what: str) -> Iterator[Problem]:
    if isinstance(answer, type) and issubclass(answer, base):
        return
    if isinstance(answer, type):
        found = f"the class {answer.__name__}, not a subclass of {base.__name__}"
    elif isinstance(answer, base):
        found = f"a {type(answer).__name__} object, not the class"
    else:
        found = f"{answer!r}, not a subclass of {base.__name__}"
    yield Problem(f"{what} is {found}", f"give the class itself, a subclass of {base.__name__}")


def _name_problems(cls: Any, method: str) -> Iterator[Problem]:
    where = f"{cls.__name__}.{method}()"
    hint = f"@staticmethod def {method}() in {cls.__name__}, with a name such as 'my-{method}'"
    name, raised = _asked(getattr(cls, method))
    if raised:
        yield Problem(f"{where} {raised}", hint)
    elif not isinstance(name, str):
        yield Problem(f"{where} is {name!r}, not a text", hint)
    elif not PLAIN_NAME.fullmatch(name):
        rule = "a name has letters, digits, '.', '_' and '-' and begins with a letter or a digit"
        yield Problem(f"{where} is {name!r}: {rule}" if name else f"{where} is empty", hint)


def _takes(target: Callable[..., Any], *args: Any) -> bool:
    """Whether a call with these arguments fits; True where Python cannot tell beforehand."""
    try:
        inspect.signature(target).bind(*args)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _parameters(target: Callable[..., Any]) -> str:
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(target).parameters.values()
    ]
    return str(inspect.Signature(parameters))


def _asked(call: Callable[[], Any]) -> tuple[Any, str]:
    """What the author's code answers, or the words for what it raised."""
    try:
        return call(), ""
    except SystemExit as error:
        return None, f"called sys.exit({error.code!r})"
    except Exception as error:  # noqa: BLE001 - the boundary to the author's code
        text = " ".join(str(error).split())
        return None, f"raised {type(error).__name__}: {text}".removesuffix(": ")
