"""`dlrover-job show`: all about one run."""

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlrover_cli import words
from dlrover_cli.cli.job_group import command, commands
from dlrover_cli.cli.output import Output, print_document, styled
from dlrover_cli.cli.run_details import configuration_of, details_of
from dlrover_cli.cli.run_ids import RunArgument, find_run, opened_ledger
from dlrover_cli.cli.run_view import STYLES, result, took
from dlrover_cli.config.byte_sizes import show_bytes
from dlrover_cli.jobs.ledger import RunRow

MOST_FILES = 40
"""Of a run with many ranks and attempts, the directory is the better place to look."""

app = commands()


@command(app, "show")
def show_run(run: RunArgument = None, output: Output = None) -> None:
    """Show all about one run.

    Its states and their reasons, its job, the process that runs it, its attempts, its files.
    """
    with opened_ledger() as (ledger, _):
        row = find_run(ledger, run)
    details = details_of(row)
    if output is not None:
        print_document(details, output)
        return
    _print_facts(_facts(row, details))
    _print_section("History", map(_event_line, details["history"]))
    _print_section("Attempts", map(_attempt_line, details["attempts"]))
    _print_section("Job", _job_lines(details["job"] or {}))
    _print_section("Files", _file_lines(details["files"]))


def _print_facts(facts: Sequence[tuple[str, str]]) -> None:
    for name, value in facts:
        if value:
            print(f"{styled(name.ljust(10), 'bold')} {value}")


def _print_section(heading: str, lines: Iterable[str]) -> None:
    shown = list(lines)
    if shown:
        print(f"\n{styled(heading, 'bold')}")
        for line in shown:
            print(f"  {line}")


def _facts(row: RunRow, details: Mapping[str, Any]) -> list[tuple[str, str]]:
    now = time.time()
    hint = words.one_line(str((details["result"] or {}).get("hint") or ""))
    return [
        ("Run", row.run_id),
        ("Job", row.name),
        ("Runs on", f"{row.platform}, engine {row.engine}"),
        ("State", styled(row.state.value, STYLES[row.state])),
        ("Result", result(row)),
        ("Hint", hint),
        ("Submitted", f"{words.moment(row.submitted)} ({words.age(row.submitted, now)} ago)"),
        ("Started", "" if row.started is None else words.moment(row.started)),
        ("Ended", "" if row.ended is None else words.moment(row.ended)),
        ("Took", took(row, now)),
        ("Submission", "" if row.submission == row.run_id else row.submission),
        ("After", ", ".join(row.after)),
        ("Queue", row.queue or ""),
        ("Priority", str(row.priority or "")),
        ("Owner", _owner(row)),
        ("Size", show_bytes(sum(file["size"] for file in details["files"]))),
        ("Directory", str(row.directory)),
    ]


def _owner(row: RunRow) -> str:
    if row.owner is None:
        return "nobody yet"
    where = f"process {row.owner.pid} on {row.owner.host}"
    if not row.owner.is_here:
        return where
    return f"{where} ({'alive' if row.owner.is_alive() else 'ended'})"


def _event_line(event: Mapping[str, Any]) -> str:
    when, data = event["time"], event["data"]
    at = "?" if when is None else words.moment(when)
    told = [words.one_line(str(data.get("reason") or ""))]
    match event["kind"]:
        case "state":
            what = str(data.get("to"))
            code = data.get("exit_code")
            told.insert(0, "" if code is None else f"exit {code}")
        case "owned":
            given = data.get("owner")
            owner = given if isinstance(given, dict) else {}
            what = f"owned by process {owner.get('pid')} on {owner.get('host')}"
        case "occurrence":
            what = f"time {data.get('number')}: exit {data.get('exit_code')}"
        case _:
            what = str(event["kind"]).replace("_", " ")
    return "  ".join(filter(None, (at, what, ": ".join(filter(None, told)))))


def _attempt_line(attempt: Mapping[str, Any]) -> str:
    started = attempt["started"]
    parts = [
        str(attempt["attempt"]),
        "" if started is None else words.moment(started),
        words.counted(attempt["workers"], "worker"),
    ]
    failures, decision = attempt["failures"], attempt["decision"] or {}
    if failures:
        rank, kind = failures[0].get("rank"), failures[0].get("failure_kind")
        parts.append(f"rank {rank} failed ({kind})")
    if decision:
        parts.append(f"{str(decision.get('action')).replace('_', ' ')}: {decision.get('reason')}")
    return "  ".join(filter(None, parts))


def _job_lines(job: Mapping[str, Any]) -> Iterator[str]:
    if job.get("argv") is not None:
        yield f"dlrover-run {shlex.join(job['argv'])}"
    if job.get("cwd"):
        yield f"submitted in {job['cwd']} on {job.get('host')}"
    configuration = configuration_of(job)
    if configuration:
        import yaml

        yield from yaml.safe_dump(configuration, sort_keys=False, allow_unicode=True).splitlines()


def _file_lines(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    filled = [file for file in files if file["size"]]
    for file in filled[:MOST_FILES]:
        yield f"{show_bytes(file['size']).rjust(8)}  {file['path']}"
    if len(filled) > MOST_FILES:
        yield f"and {words.counted(len(filled) - MOST_FILES, 'more file')}"
