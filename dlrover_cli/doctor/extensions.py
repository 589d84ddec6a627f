"""Extensions: those that settings name and those that packages announce, loaded in other processes.

User code may hang, exit or crash at import; it does so there, and within a deadline.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from dlrover_cli.doctor.answers import answer_in
from dlrover_cli.doctor.commands import Ran
from dlrover_cli.doctor.finding import Finding, ok, problem
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.words import one_line, signal_name, span

_LOADER = [sys.executable, "-m", "dlrover_cli.doctor.load_one"]
_PLUGINS = "from dlrover_cli.cli.job import console; console()"
_WHY = "a run that names it ends with exit code 2 before it starts"
_FIELDS = ("dynamic_failover_extension", "rdzv_handler", "metrics_handler")


def check_extensions(machine: Machine) -> Iterator[Finding]:
    """Each that is named, then all that are installed."""
    named = list(_named(machine))
    with ThreadPoolExecutor(len(named) + 1, thread_name_prefix="doctor-load") as pool:
        loading = [pool.submit(_load, machine, *each) for each in named]
        installed = pool.submit(_check_installed, machine)
        for each in loading:
            yield each.result()
        yield from installed.result()


def _named(machine: Machine) -> Iterator[tuple[str, str]]:
    """Field and reference; a handler that is called by a bare name comes with this package."""
    for field in _FIELDS:
        value = getattr(machine.settings, field)
        for reference in [value] if isinstance(value, str) else value or ():
            if "::" in reference or field == "dynamic_failover_extension":
                yield field, reference


def _load(machine: Machine, field: str, reference: str) -> Finding:
    source = machine.settings.origin(field)
    about = f"{reference} ({source})"
    command = [*_LOADER, field, str(source), reference]
    ran = machine.run(command, machine.environ, machine.patience)
    answer = answer_in(ran.out)
    if answer is None:
        return problem(
            "extension", f"{about}: {_end(ran, machine)}", why=_WHY, fix=_how_to_see(reference)
        )
    if answer["error"] is not None:
        return problem(
            "extension",
            one_line(answer["error"]),
            why=_WHY,
            fix=one_line(answer["hint"] or _how_to_see(reference)),
        )
    return ok("extension", f"{about} loads, in {span(answer['seconds'])}")


def _check_installed(machine: Machine) -> list[Finding]:
    command = [sys.executable, "-c", _PLUGINS, "plugins", "check", "--output", "json"]
    ran = machine.run(command, machine.environ, machine.patience)
    try:
        checked = json.loads(ran.out)["checked"]
    except (ValueError, KeyError):
        return [
            problem(
                "extensions",
                f"the installed ones: {_end(ran, machine)}",
                why="one of them hangs or ends the process that imports it",
                fix="see which one: dlrover-job plugins check",
            )
        ]
    broken = [each for each in checked if each["error"] is not None]
    if not broken:
        return [ok("extensions", f"{len(checked)} installed, all of which load")]
    return [
        problem(
            "extensions",
            one_line(each["error"]),
            why="jobs that need it are refused",
            fix=one_line(each["hint"] or "dlrover-job plugins check"),
        )
        for each in broken
    ]


def _end(ran: Ran, machine: Machine) -> str:
    if ran.status is None:
        return f"not loaded within {machine.patience:g} s, and ended"
    how = signal_name(-ran.status) if ran.status < 0 else f"exit code {ran.status}"
    last = f" ({ran.last_words})" if ran.last_words else ""
    return f"ended the process that loaded it, with {how}{last}"


def _how_to_see(reference: str) -> str:
    module = reference.partition("::")[0]
    return f"see where it is: {sys.executable} -X faulthandler -X importtime -c 'import {module}'"
