"""Runs with files that nobody of us has written so: the others are listed, and nothing crashes."""

import copy
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.errors import DlroverError
from dlrover_cli.jobs.run_files import RunFiles
from tests.cli.runs import Runs, dead_process

ODD: list[Any] = [None, 10**30, float("inf"), "\ud800", [[]]]
NUMBERS = [10**30, float("inf")]


def test_a_list_shows_the_others(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    good = runs.add("good")
    of = runs.add("bad", RunState.RUNNING, owner=dead_process())
    for number, (name, content) in enumerate(damaged(of, ODD)):
        copied(of, number, name, content)

    main(["list", "--all", "-o", "json"])

    listed = json.loads(capsys.readouterr().out)["runs"]
    assert len(listed) > 100
    assert good.run_id in [each["run_id"] for each in listed]


@pytest.mark.full
@pytest.mark.parametrize("command", ["show", "why", "stop", "cleanup"])
def test_a_run_is_looked_at_and_ended_as_far_as_it_can_be(
    runs: Runs, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    of = runs.add("bad", RunState.RUNNING, owner=dead_process())
    result = {"schema_version": 1, "hint": "", "reason": "", "exit_code": 1}
    of.result.write_text(json.dumps(result))
    for number, (name, content) in enumerate(damaged(of, NUMBERS)):
        files = copied(of, number, name, content)
        with suppress(DlroverError):
            main([command, files.run_id])
        shutil.rmtree(files.path, ignore_errors=True)


def damaged(files: RunFiles, values: list[Any]) -> Iterator[tuple[str, str]]:
    """A file's name, and what it may hold: one value of it is another."""
    events = [json.loads(line) for line in files.events.read_text().splitlines()]
    for place in places(events):
        for value in values:
            lines = changed(events, place, value)
            yield files.events.name, "".join(f"{json.dumps(line)}\n" for line in lines)
    for path in filter(Path.exists, (files.job, files.result)):
        document = json.loads(path.read_text())
        for place in places(document):
            for value in values:
                yield path.name, json.dumps(changed(document, place, value))


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in below:
        yield (*above, key)
        if isinstance(item, dict | list):
            yield from places(item, (*above, key))


def changed(value: Any, place: tuple[Any, ...], to: Any) -> Any:
    value = within = copy.deepcopy(value)
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = to
    return value


def copied(of: RunFiles, number: int, name: str, content: str) -> RunFiles:
    """Another run, of which one file holds this."""
    files = RunFiles(of.path.with_name(f"{of.run_id}-{number}"))
    shutil.copytree(of.path, files.path)
    for path in (files.job, files.events):
        path.write_text(path.read_text().replace(of.run_id, files.run_id))
    (files.path / name).write_text(content.replace(of.run_id, files.run_id))
    return files
