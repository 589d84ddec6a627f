"""The benchmark of placement places everything, and counts what it asks."""

import subprocess
import sys

import pytest


@pytest.mark.full
def test_a_small_benchmark_prints_a_row_for_each_kind() -> None:
    command = [sys.executable, "-m", "benchmarks.placement", "--agents", "5", "--sessions", "2"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    rows = done.stdout.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == ["without", "extender"]
    # For each of five a predicate and an allocation; all else is asked once in a session.
    assert rows[1].split("|")[5].strip() == "17"
