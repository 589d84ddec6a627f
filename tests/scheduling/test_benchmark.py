"""The benchmark of placement places everything, and counts what it asks."""

import pytest

from benchmarks import placement


@pytest.mark.full
def test_a_small_benchmark_prints_a_row_for_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    placement.main(["--agents", "5", "--sessions", "2"])

    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["without", "extender"]
    # 5 predicates, 5 allocations, one prioritize; open, close, enqueueable, enqueued, overused, ready.
    assert rows[1].split("|")[5].strip() == "17"
