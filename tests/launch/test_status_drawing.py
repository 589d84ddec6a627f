"""Who draws the status line when: on change, not too often, and not while others need the row."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from dlrover_cli.contracts import WorkerPhase
from dlrover_cli.launch.status.line import StatusLine
from dlrover_cli.telemetry.live import NodeSample, RankSample, RankState
from tests.harness.waiting import eventually

RANK = RankSample(0, 0, 7, RankState.RUNNING, WorkerPhase.TRAINING, 5, 1.0, None, None, None)
SAMPLE = NodeSample(1.0, "run", "here", 0, 1, 1, 0, 0, 0, False, (RANK,))
STARTED = {"kind": "workers_started", "time": 1.0, "attempt": 0, "data": {}}


class Row:
    """A row that keeps what it shows; None while it is given back."""

    def __init__(self) -> None:
        self.room: int | None = 100
        self.text: str | None = None
        self.is_closed = False

    def width(self) -> int | None:
        return self.room

    def show(self, text: str) -> None:
        self.text = text

    def release(self) -> None:
        self.text = None

    def close(self) -> None:
        self.text, self.is_closed = None, True


@pytest.fixture
def row() -> Row:
    return Row()


@pytest.fixture
def line(row: Row) -> Iterator[StatusLine]:
    made = StatusLine(row, delay=0.0)  # type: ignore[arg-type]
    made.start()
    yield made
    made.close()
    assert row.is_closed


def shows(row: Row, part: str) -> Callable[[], bool]:
    return lambda: part in (row.text or "")


def test_events_and_samples_change_it(row: Row, line: StatusLine) -> None:
    eventually(shows(row, "starting"))
    line.note_event(STARTED)
    line.note_sample(SAMPLE)
    eventually(shows(row, "attempt 0 · 1 rank · step 5"))


def test_a_debuggers_prompt_has_the_terminal_to_itself(row: Row, line: StatusLine) -> None:
    eventually(shows(row, "starting"))
    line.note_sample(replace(SAMPLE, ranks=(replace(RANK, at_prompt=True),)))
    eventually(lambda: row.text is None)
    line.note_sample(SAMPLE)
    eventually(shows(row, "attempt 0"))


def test_whoever_is_asked_about_a_failure_has_the_terminal(row: Row) -> None:
    line = StatusLine(row, asks=True, delay=0.0)  # type: ignore[arg-type]
    line.start()
    eventually(shows(row, "starting"))
    line.note_event({"kind": "failure", "time": 1.0, "attempt": 0, "data": {}})
    eventually(lambda: row.text is None)
    decided = {"action": "restart_workers", "backoff": 0.0, "cause": "rank 0 failed"}
    line.note_event({"kind": "decision", "time": 1.0, "attempt": 0, "data": decided})
    eventually(shows(row, "restarting the workers"))
    line.close()


def test_a_screen_that_becomes_too_small_gets_the_row_back(row: Row, line: StatusLine) -> None:
    eventually(shows(row, "starting"))
    row.room = None
    eventually(lambda: row.text is None)
    row.room = 60
    eventually(shows(row, "starting"))


def test_an_event_that_it_does_not_understand_costs_nothing(row: Row, line: StatusLine) -> None:
    eventually(shows(row, "starting"))
    with pytest.raises(KeyError):  # which the journal that calls it suppresses
        line.note_event({"kind": "decision", "time": 1.0, "attempt": 0, "data": {}})
    line.note_event(STARTED)
    eventually(shows(row, "attempt 0"))
