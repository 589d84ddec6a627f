"""`dlrover-job failover`: try what decides about failures, without a job."""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from dlrover_cli.cli.failover_view import Outcome, explain, view_for
from dlrover_cli.cli.job_group import command, command_group
from dlrover_cli.config.files import read_config_file
from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.errors import UsageError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover import rule_values
from dlrover_cli.failover.advice import Adviser
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.extension import ExtensionAdviser, OnError
from dlrover_cli.failover.replay import RecordedFailure, read_failures, replay
from dlrover_cli.failover.rules import RulesAdviser, RuleSet, load_rules, rules_from_table

app = command_group("Try extensions and rules on recorded failures.", name="failover")


@command(app, "test")
def replay_failures(
    failures: Annotated[
        list[Path],
        typer.Argument(
            metavar="FAILURE",
            help="Files with one failure each, or the directory of a run: all of its failures.",
        ),
    ],
    extension: Annotated[
        str | None,
        typer.Option(metavar="MODULE::CLASS", help="The failover extension to ask."),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rules for what the extension has no opinion on."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STRATEGY",
            help="Exit with 1 unless this is decided: normal, node, global or abort, for every "
            "failure, or once per failure.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--failover-timeout",
            "--failover_timeout",
            metavar="SECONDS",
            help="How long the extension may take, to be constructed and for each answer.",
        ),
    ] = 30.0,
    on_error: Annotated[
        OnError,
        typer.Option(
            "--failover-on-error",
            "--failover_on_error",
            help="What an extension that fails stands for.",
        ),
    ] = "normal",
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead.")
    ] = False,
) -> int:
    """Ask about recorded failures as a run would.

    First the extension is asked, then the rules, those in the current directory's dlrover.toml or
    pyproject.toml included; NORMAL is the last word.

    Exits with 1 if another strategy was decided than expected, or, where nothing is expected, if
    the extension failed; with 2 if something cannot be read or used.
    """
    if timeout <= 0:
        raise UsageError(f"--failover-timeout must be more than 0 and is {timeout:g}")
    recorded = read_failures(failures)
    expected = _expected(expect or [], recorded)
    advisers: list[Adviser] = [RulesAdviser(_all_rules(rules))]
    view = view_for(sys.stdout, as_json=json_output)
    outcomes = []
    with _running(extension, timeout, on_error) as (adviser, load_seconds):
        if adviser is not None:
            advisers.insert(0, adviser)
        decided = replay(recorded, Chain(advisers))
        with view.showing(extension, load_seconds, rules):
            for each, wanted in zip(decided, expected, strict=True):
                outcomes.append(Outcome(each, wanted))
                view.add(outcomes[-1])
        explain(outcomes)
    return ExitCode.SUCCESS if all(each.is_well for each in outcomes) else ExitCode.FAILURE


def _expected(
    names: Sequence[str], failures: Sequence[RecordedFailure]
) -> list[FailoverStrategy | None]:
    """What is expected of each failure; None where nothing is."""
    if len(names) not in (0, 1, len(failures)):
        raise UsageError(
            f"there are {len(failures)} failures and {len(names)} times --expect",
            hint="give it once for all, or once for each in their order",
        )
    if len(names) < 2:
        names = [*names] * len(failures)
    return [_strategy(name) for name in names] or [None] * len(failures)


def _strategy(name: str) -> FailoverStrategy:
    """The full name in any case, or the short one of a rules file."""
    try:
        return rule_values.strategy(name)
    except rule_values.BadValue as error:
        known = ", ".join(FailoverStrategy.__members__)
        raise UsageError(f"--expect={name} is no strategy", hint=f"there are: {known}") from error


def _all_rules(path: Path | None) -> RuleSet:
    """Those of the file, then those of the current directory's settings, as for a run."""
    rules = RuleSet() if path is None else load_rules(path)
    settings = read_config_file(Path())
    if not settings.failover_table:
        return rules
    where = settings.sources["failover_table"].where
    return rules.followed_by(rules_from_table(settings.failover_table, where))


@contextmanager
def _running(
    extension: str | None, timeout: float, on_error: OnError
) -> Iterator[tuple[ExtensionAdviser | None, float]]:
    """The extension in its process, and how long it took to load; its output follows on stderr."""
    if extension is None:
        yield None, 0.0
        return
    with tempfile.TemporaryDirectory(prefix="dlrover-") as directory:
        log = Path(directory, "extension.log")
        adviser = ExtensionAdviser(
            extension,
            [Path.cwd()],
            timeout=timeout,
            on_error=on_error,
            log_path=log,
            log_shown_as="its output",
            option="--extension",
        )
        started = time.monotonic()
        try:
            adviser.start()
            yield adviser, time.monotonic() - started
        finally:
            adviser.close()
            _show_output(log)


def _show_output(log: Path) -> None:
    output = log.read_text(errors="replace") if log.exists() else ""
    if output:
        print("output of the extension:", file=sys.stderr)
        for line in output.splitlines():
            print(f"  {line}", file=sys.stderr)
