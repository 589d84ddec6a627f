"""`module::Class`: from what a user typed to the class it names, or to one sentence why not.

`parse_reference` reads the text, `resolve` imports the module and looks the name up, `check_class`
and `check_callable` judge what was found. `load_reference` does all of it.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.faults import (
    PluginFault,
    Subject,
    describe,
    must_propagate,
    user_frame,
)
from dlrover_cli.plugins.importing import file_of, hidden_candidates, import_module, is_package

SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class Reference:
    """The two halves of `pkg.module::Outer.Inner`."""

    module: str
    qualname: str

    def __str__(self) -> str:
        return f"{self.module}{SEPARATOR}{self.qualname}"


@dataclass(frozen=True, slots=True)
class Found:
    """What a reference led to; `subject` is what a complaint about it begins with."""

    subject: Subject
    value: Any


def parse_reference(text: str, *, option: str = "plugin reference") -> Reference:
    """Split `module::Class`, or say what is wrong with the text and what to type instead."""
    stripped = text.strip()
    subject = Subject.of_option(option, stripped)
    if SEPARATOR not in stripped:
        raise subject.fault(
            PluginFault.NO_SEPARATOR,
            "the module and the class must be joined by '::'",
            hint=_with_separator(stripped),
        )
    module, _, qualname = (part.strip() for part in stripped.partition(SEPARATOR))
    if SEPARATOR in qualname:
        raise subject.fault(
            PluginFault.MALFORMED,
            "there is more than one '::' in it",
            hint=f"a class inside a class is {module}::{qualname.replace(SEPARATOR, '.')}",
        )
    if "/" in module or module.endswith(".py"):
        raise subject.fault(
            PluginFault.MALFORMED,
            "before the '::' stands a file and not a module",
            hint=f"write it as for `import`: {_as_module(module)}::{qualname or 'Class'}",
        )
    if not all(module.split(".")) or not all(qualname.split(".")):
        raise _empty_part(subject, module, qualname)
    return Reference(module, qualname)


def load_reference(
    text: str, *, option: str, base: type | None, roots: Sequence[Path]
) -> type | Callable[..., Any]:
    """The class that `text` names, a usable subclass of `base`; without a base, any callable."""
    found = resolve(text, option=option, roots=roots)
    return check_callable(found) if base is None else check_class(found, base)


def resolve(text: str, *, option: str, roots: Sequence[Path]) -> Found:
    """Import the module and look the name up in it; what was found is not looked at yet."""
    reference = parse_reference(text, option=option)
    return resolve_parsed(reference, subject=Subject.of_option(option, str(reference)), roots=roots)


def resolve_parsed(reference: Reference, *, subject: Subject, roots: Sequence[Path]) -> Found:
    """As `resolve`, for a reference that was not typed by the user, e.g. an entry point's."""
    module = import_module(reference.module, roots=roots, subject=subject)
    value: Any = module
    for name in reference.qualname.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise _no_attribute(subject, reference, module, value, name, roots) from None
        except BaseException as error:  # a module's __getattr__ is the user's code too
            if must_propagate(error):
                raise
            raise subject.fault(
                PluginFault.IMPORT_RAISED,
                f"looking up {name!r} raised {describe(error)}{user_frame(error)}",
                hint=f"see for yourself: python -c 'import {reference.module} as m; m.{name}'",
            ) from error
    return Found(subject, value)


def check_class(found: Found, base: type, *, also_named: Collection[str] = ()) -> type:
    """A class below `base` (or below one with a name in `also_named`) with nothing left abstract.

    Names are for bases of a package that may or may not be installed.
    """
    value = found.value
    if not isinstance(value, type):
        raise found.subject.fault(
            PluginFault.NOT_A_CLASS,
            f"it is {_what_it_is(value)} and not a class",
            hint=_class_hint(found, base),
        )
    if not issubclass(value, base) and not any(cls.__name__ in also_named for cls in value.__mro__):
        bases = ", ".join(cls.__name__ for cls in value.__bases__)
        raise found.subject.fault(
            PluginFault.WRONG_BASE,
            f"the class must derive from {base.__name__} and derives from {bases}",
            hint=f"class {value.__name__}({base.__name__}), with {base.__name__} imported from "
            f"{_public_home(base)}",
        )
    missing = sorted(getattr(value, "__abstractmethods__", ()))
    if missing:
        raise found.subject.fault(
            PluginFault.ABSTRACT_METHODS,
            f"the class leaves abstract: {', '.join(missing)}",
            hint=f"define {'it' if len(missing) == 1 else 'them'} in {value.__name__}, with the "
            f"parameters that {base.__name__} has",
        )
    return value


def check_callable(found: Found) -> Callable[..., Any]:
    """A class or a function; whatever can be called."""
    if not callable(found.value):
        raise found.subject.fault(
            PluginFault.NOT_CALLABLE,
            f"it is {_what_it_is(found.value)}, neither a class nor a function",
            hint=_class_hint(found, None),
        )
    value: Callable[..., Any] = found.value
    return value


def loaded_from(value: object) -> str:
    """The file in which a loaded class or function (or an object's class) is defined."""
    owner = value if hasattr(value, "__qualname__") else type(value)
    module = inspect.getmodule(owner)
    return "?" if module is None else file_of(module)


def _with_separator(text: str) -> str:
    if text.count(":") == 1:
        return f"write two colons: {text.replace(':', SEPARATOR)}"
    module, dot, name = text.rpartition(".")
    if dot and module and name != "py":
        return f"is it {module}{SEPARATOR}{name}?"
    return f"write module{SEPARATOR}Class, e.g. {_as_module(text) or 'module'}{SEPARATOR}MyClass"


def _empty_part(subject: Subject, module: str, qualname: str) -> PluginError:
    if not module:
        message, hint = "there is no module before the '::'", f"write module::{qualname or 'Class'}"
    elif not qualname:
        message, hint = "there is no class after the '::'", f"write {module}::Class"
    elif module.startswith("."):
        message = "the module must not begin with a dot"
        hint = f"name it from the folder you start in: {module.lstrip('.')}::{qualname}"
    else:
        message, hint = "there is nothing between two of its dots", "write pkg.module::Class"
    return subject.fault(PluginFault.EMPTY_PART, message, hint=hint)


def _as_module(path: str) -> str:
    return path.removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")


def _no_attribute(
    subject: Subject,
    reference: Reference,
    module: ModuleType,
    owner: object,
    name: str,
    roots: Sequence[Path],
) -> PluginError:
    where = (
        f"module {reference.module!r} ({file_of(module)})"
        if owner is module
        else f"{getattr(owner, '__qualname__', None) or _what_it_is(owner)}"
    )
    classes = _classes_in(owner)
    near = get_close_matches(name, classes, n=1)
    hidden = hidden_candidates(reference.module, module, roots)
    submodule = f"{reference.module}.{name}"
    if owner is module and is_package(module) and find_spec(submodule) is not None:
        hint = f"{name!r} is a module of its own: write {submodule}::Class"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    elif hidden:
        hint = f"{hidden[0]} is hidden by the module of that name that was loaded: rename it"
    elif classes:
        hint = f"the classes in it are: {', '.join(classes[:5])}"
    else:
        hint = "there is no class in it; is it the right module?"
    return subject.fault(PluginFault.NO_ATTRIBUTE, f"there is no {name!r} in {where}", hint=hint)


def _classes_in(owner: object) -> list[str]:
    """Names of the classes in a module or class; those defined in it before imported ones."""
    home = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", None)
    classes = [
        (value.__module__ != home, name)
        for name, value in getattr(owner, "__dict__", {}).items()
        if isinstance(value, type) and not name.startswith("_")
    ]
    return [name for _, name in sorted(classes)]


def _class_hint(found: Found, base: type | None) -> str:
    value = found.value
    if base is not None and isinstance(value, base):
        return f"name the class itself: {type(value).__module__}::{type(value).__qualname__}"
    if isinstance(value, ModuleType):
        return f"name the class in it: {value.__name__}::Class"
    return "name a class" if base is not None else "name a class, or a function that makes one"


def _what_it_is(value: object) -> str:
    if isinstance(value, ModuleType):
        return "a module"
    if inspect.isroutine(value):
        return "a function"
    name = type(value).__name__
    return f"an object of type {name}"


def _public_home(base: type) -> str:
    """Where a reader would import `base` from: the shortest package that exports it."""
    parts = base.__module__.split(".")
    for depth in range(2, len(parts)):
        package = ".".join(parts[:depth])
        if getattr(sys.modules.get(package), base.__name__, None) is base:
            return package
    return base.__module__
