"""`dlrover-job extender`: try the services that decide about placement, and see what they get."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlrover_cli.cli.job_group import command, command_group
from dlrover_cli.cli.output import Output, print_document, remark
from dlrover_cli.contracts.extender_verbs import Verb
from dlrover_cli.errors import UsageError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.words import one_line

if TYPE_CHECKING:
    from dlrover_cli.scheduling.checking import CheckedVerb
    from dlrover_cli.scheduling.settings import ExtenderSettings, SchedulingConfig

app = command_group("Try the services that decide about placement.", name="extender")

Checked = tuple["ExtenderSettings", tuple["CheckedVerb", ...]]


@command(app, "check")
def check(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="An extender file, such as extender.yaml.")
    ],
    output: Output = None,
) -> int:
    """Ask every configured verb about a sample, and show how each answer is understood.

    The names in the sample begin with dlrover-check. What is allocated is deallocated again.

    Exits with 1 if an answer could not be used, or an extender has no verb, and with 2 if the file
    cannot be read.
    """
    # Not needed to show the help page or to complete a name.
    from dlrover_cli.scheduling.checking import check_extender
    from dlrover_cli.scheduling.reading import read_extender_file

    config = read_extender_file(Path(file))
    if output is None:
        _tell_of_file(config)
    checked: list[Checked] = []
    for settings in config.extenders:
        checked.append((settings, check_extender(settings)))
        if output is None:
            _tell(*checked[-1])
    if output is not None:
        print_document(_document(config, checked), output)
    is_well = all(verbs and all(each.is_well for each in verbs) for _, verbs in checked)
    return ExitCode.SUCCESS if is_well else ExitCode.FAILURE


@command(app, "schema")
def schema(
    verb: Annotated[
        str | None, typer.Argument(metavar="VERB", help="Only this one, such as predicate.")
    ] = None,
) -> None:
    """Print the JSON Schema of the request and the answer of every verb."""
    from dlrover_cli.contracts.extender import json_schemas

    schemas = json_schemas()
    if verb is not None and verb not in schemas:
        raise UsageError(f"there is no verb {verb!r}", hint=f"There are {', '.join(Verb)}.")
    print(json.dumps(schemas if verb is None else schemas[verb], indent=2))


def _tell_of_file(config: "SchedulingConfig") -> None:
    if config.skipped:
        remark(f"skipped: {', '.join(config.skipped)}")
    if not config.extenders:
        remark("the file names no extender")


def _tell(settings: "ExtenderSettings", verbs: "tuple[CheckedVerb, ...]") -> None:
    print(f"{settings.name}: {_conditions(settings)}")
    if not verbs:
        print(f"failed  no verb is configured: it is never asked; see {Verb.PREDICATE.setting}")
    width = max((len(each.verb) for each in verbs), default=0)
    for each in verbs:
        verb, took = each.verb.ljust(width), f"({each.seconds * 1000:.0f} ms)"
        if each.is_well:
            print(f"ok      {verb}  {one_line(each.understood)} {took}")
            continue
        print(f"failed  {verb}  {one_line(each.error)} {took}")
    if settings.ignorable and not all(each.is_well for each in verbs):
        print("note    errors are ignored in a session, as if the verb were not configured")


def _conditions(settings: "ExtenderSettings") -> str:
    words = [
        f"{settings.http_timeout:g} s for an answer",
        "errors are ignored" if settings.ignorable else "errors fail the decision",
    ]
    if settings.managed_resources:
        words.append(f"for tasks with {' or '.join(sorted(settings.managed_resources))}")
    return ", ".join(words)


def _document(config: "SchedulingConfig", checked: list[Checked]) -> dict[str, Any]:
    return {
        "actions": [action.value for action in config.actions],
        "skipped": list(config.skipped),
        "extenders": [
            {
                "url": str(settings.address),
                "timeout": settings.http_timeout,
                "ignorable": settings.ignorable,
                "managed_resources": sorted(settings.managed_resources),
                "verbs": [
                    {
                        "verb": each.verb.value,
                        "path": each.path,
                        "understood": each.understood or None,
                        "error": each.error or None,
                        "seconds": round(each.seconds, 6),
                    }
                    for each in verbs
                ],
            }
            for settings, verbs in checked
        ],
        "queues": {
            name: {
                "capacity": dict(queue.capacity),
                "weight": queue.weight,
                "reclaimable": queue.reclaimable,
            }
            for name, queue in config.queues.items()
        },
    }
