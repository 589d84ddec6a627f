"""Events and samples become metrics; time is what they say it is."""

import json
from pathlib import Path

import pytest

from dlrover_cli.telemetry import instruments as known
from dlrover_cli.telemetry.instruments import INSTRUMENTS, Instrument, Sort
from dlrover_cli.telemetry.measurements import Measurements, Reading
from dlrover_cli.telemetry.metering import Meter
from tests.diagnosis.journals import Journals, one_restart
from tests.telemetry.recorded import RUN_ID, Journal, sample


@pytest.fixture
def measurements() -> Measurements:
    return Measurements(RUN_ID, "vm", "default")


@pytest.fixture
def journal() -> Journal:
    return Journal()


def values(readings: list[Reading], instrument: Instrument, **labels: str) -> list[float]:
    return [
        reading.value
        for reading in readings
        if reading.instrument is instrument and labels.items() <= reading.labels.items()
    ]


def test_a_life_is_measured(measurements: Measurements, journal: Journal) -> None:
    found = [reading for event in journal.life() for reading in measurements.of_event(event)]
    assert values(found, known.FAILURES, kind="exception") == [0, 1]
    assert values(found, known.RESTARTS, kind="restart_workers") == [0, 1]
    assert values(found, known.RESTARTS, kind="restart_job") == [0]
    assert values(found, known.RECOVERY, kind="restart_workers") == [2]
    assert values(found, known.RENDEZVOUS) == [0.5, 0.5]
    assert values(found, known.WORLD_SIZE) == [2, 2]
    assert values(found, known.ATTEMPT)[-1] == 1
    assert values(found, known.USEFUL)[-1] == 5 + 12
    assert values(found, known.ELAPSED)[-1] == 20
    assert values(found, known.GOODPUT)[-1] == pytest.approx(17 / 20)
    assert values(found, known.EXIT_CODE) == [0]
    assert values(found, known.WORKER_UP, rank="1") == [1, 0, 1, 0]


def test_every_metric_says_where_it_is_from(measurements: Measurements, journal: Journal) -> None:
    for event in journal.started(1, 0):
        for reading in measurements.of_event(event):
            common = {name: reading.labels[name] for name in known.COMMON}
            assert common == {"run_id": RUN_ID, "node": "0", "host": "vm", "role": "default"}
            assert set(reading.labels) == {*known.COMMON, *reading.instrument.labels}


def test_the_goodput_so_far_includes_the_time_that_runs(
    measurements: Measurements, journal: Journal
) -> None:
    measurements.of_event(journal.event(0, "run_started"))
    for event in journal.started(1, 0):
        measurements.of_event(event)
    found = measurements.of_sample(sample(4, 0, 10))
    assert values(found, known.GOODPUT) == [pytest.approx(3 / 4)]


def test_steps_go_on_counting_over_restarts(measurements: Measurements, journal: Journal) -> None:
    found: list[Reading] = []
    for event in journal.started(1, 0):
        measurements.of_event(event)
    found += measurements.of_sample(sample(2, 0, 10))
    for event in (*journal.failed(3), *journal.started(4, 1)):
        measurements.of_event(event)
    found += measurements.of_sample(sample(4, 0, 12, is_running=False))
    found += measurements.of_sample(sample(5, 1, 0))
    found += measurements.of_sample(sample(6, 1, 3))
    assert values(found, known.WORKER_STEPS, rank="0") == [10, 12, 12, 15]


def test_a_sample_tells_of_each_rank(measurements: Measurements, journal: Journal) -> None:
    for event in journal.started(1, 0):
        measurements.of_event(event)
    found = measurements.of_sample(sample(2, 0, 10))
    assert values(found, known.WORKER_CPU, rank="1") == [1.5]
    assert values(found, known.WORKER_MEMORY, rank="1") == [1_000_000]
    assert values(found, known.WORKER_STEP_RATE, rank="1") == [5]


def test_one_that_has_ended_uses_nothing(measurements: Measurements, journal: Journal) -> None:
    for event in journal.started(1, 0):
        measurements.of_event(event)
    measurements.of_sample(sample(2, 0, 10))
    found = measurements.of_event(journal.exited(3, 1))
    for instrument in (known.WORKER_CPU, known.WORKER_MEMORY, known.WORKER_STEP_RATE):
        assert values(found, instrument, rank="1") == [0]
    last = measurements.of_sample(sample(4, 0, 10, is_running=False))
    assert values(last, known.WORKER_STEP_RATE) == []


def test_a_rank_that_has_moved_away_is_forgotten(
    measurements: Measurements, journal: Journal
) -> None:
    for event in (*journal.started(1, 0, range(2)), *journal.failed(2)):
        measurements.of_event(event)
    found = [
        reading
        for event in journal.started(3, 1, range(1))
        for reading in measurements.of_event(event)
    ]
    assert [reading.labels["rank"] for reading in found if reading.is_last] == ["1"]
    late = measurements.of_sample(sample(3, 0, 10, is_running=False))
    assert values(late, known.WORKER_STEPS, rank="1") == []


def test_a_change_of_members_is_a_restart_and_no_failure(
    measurements: Measurements, journal: Journal
) -> None:
    for event in journal.started(1, 0):
        measurements.of_event(event)
    decided = journal.event(5, "decision", action="admit", trigger="membership")
    found = measurements.of_event(decided)
    found += [
        reading for event in journal.started(6, 1) for reading in measurements.of_event(event)
    ]
    assert values(found, known.RESTARTS, kind="admit") == [1]
    assert values(found, known.RECOVERY, kind="admit") == [1]
    assert set(values(found, known.FAILURES)) <= {0}


def test_a_failure_that_ends_the_job_is_no_restart(
    measurements: Measurements, journal: Journal
) -> None:
    events = [*journal.started(1, 0), *journal.failed(2, action="fail")]
    found = [reading for event in events for reading in measurements.of_event(event)]
    assert set(values(found, known.RESTARTS)) == {0}


def test_a_meter_counts_what_was_before_it(journal: Journal) -> None:
    *past, last = journal.life()
    found: list[Reading] = []
    meter = Meter(Measurements(RUN_ID, "vm", "default"), found.append, [{}, *past])
    meter.put(last)
    meter.put({"kind": "worker_exited"})  # of no use, and no reason to stop
    meter.close(10)
    assert values([reading for reading in found if reading.is_past], known.RESTARTS)[-1] == 1
    now = [reading for reading in found if not reading.is_past]
    assert values(now, known.EXIT_CODE) == [0]
    assert values(now, known.USEFUL) == [17]


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda each: each.name)
def test_names_follow_the_rules_of_prometheus(instrument: Instrument) -> None:
    assert instrument.name.endswith("_total") == (instrument.sort is Sort.COUNTER)
    if instrument.sort is Sort.HISTOGRAM:
        assert instrument.name.endswith("_seconds")
    assert instrument.about.endswith(".")


def test_the_useful_time_is_what_why_says(measurements: Measurements, tmp_path: Path) -> None:
    journals = Journals(tmp_path)
    one_restart(journals)
    [journal] = tmp_path.glob("nodes/*/events.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    found = [reading for event in events for reading in measurements.of_event(event)]
    # The one that reads all papers knows when a rank failed, the other when that was noticed.
    useful = journals.story(ended=12).costs.useful
    assert values(found, known.USEFUL)[-1] == pytest.approx(useful, abs=0.1)
