"""Plugins that installed distributions announce: looked up by group and name."""

from difflib import get_close_matches
from pathlib import Path

from importlib_metadata import EntryPoint, entry_points

from dlrover_cli.errors import PluginError
from dlrover_cli.plugins.faults import PluginFault, Subject
from dlrover_cli.plugins.reference import (
    Found,
    Reference,
    check_callable,
    check_class,
    resolve_parsed,
)

RENDEZVOUS_GROUP = "torchrun.handlers"
LOGS_SPECS_GROUP = "torchrun.logs_specs"


def entry_point_names(group: str) -> tuple[str, ...]:
    """The names that can be given for a group, sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def load_entry_point(group: str, name: str, *, option: str, base: type | None = None) -> object:
    """The object behind an entry point; with a base, a usable subclass of it.

    For `--logs-specs`: group `torchrun.logs_specs`, base torch's `LogsSpecs`.
    """
    found = resolve_entry_point(group, name, option=option)
    return check_callable(found) if base is None else check_class(found, base)


def resolve_entry_point(group: str, name: str, *, option: str) -> Found:
    """Import what the entry point names; what was found is not looked at yet."""
    entry = next(iter(entry_points(group=group, name=name)), None)
    if entry is None:
        raise _no_such_name(group, name, option)
    return resolve_entry(entry, option=option)


def resolve_entry(entry: EntryPoint, *, option: str) -> Found:
    """As `resolve_entry_point`, for an entry point that was looked up already."""
    subject = Subject(
        f"{Subject.of_option(option, entry.name).text} ({_origin(entry)})", entry.value
    )
    if not entry.attr:
        raise subject.fault(
            PluginFault.MALFORMED,
            f"{entry.value!r} names a module and no object in it",
            hint="the distribution must declare it as module:object",
        )
    reference = Reference(entry.module, entry.attr)
    try:
        return resolve_parsed(reference, subject=subject, roots=())
    except PluginError as error:
        if error.reason != PluginFault.NO_MODULE or entry.dist is None:
            raise
    # A package of the same name may hide it, as Python's own `test` hides an installed one.
    installed_to = Path(str(entry.dist.locate_file("")))
    return resolve_parsed(reference, subject=subject, roots=[installed_to])


def _no_such_name(group: str, name: str, option: str) -> PluginError:
    known = entry_point_names(group)
    near = get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif known:
        hint = f"installed are: {', '.join(known)}"
    else:
        hint = f"no installed distribution has an entry point in the group {group!r}"
    return Subject.of_option(option, name).fault(
        PluginFault.NO_ENTRY_POINT,
        f"there is no entry point of that name in the group {group!r}",
        hint=hint,
    )


def _origin(entry: EntryPoint) -> str:
    dist = entry.dist
    return f"{entry.value} of {dist.name}" if dist is not None else entry.value
