"""Flight-recorder files of the ranks that were asked for, and of this attempt alone."""

import os
from pathlib import Path

import pytest

from dlrover_cli.agent.flight_recorder import collect_flight_records

SINCE = 1_000_000.0


@pytest.mark.parametrize("variable", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_what_was_dumped_since_then_is_copied(tmp_path: Path, variable: str) -> None:
    environ = {"TORCH_FR_DUMP_TEMP_FILE": "/nowhere/", variable: str(tmp_path / "trace_")}
    for rank, age in ((0, 5), (1, -5), (2, 5)):
        dump = tmp_path / f"trace_{rank}"
        dump.write_text(f"of rank {rank}")
        os.utime(dump, (SINCE + age, SINCE + age))
    kept = collect_flight_records(environ, [0, 1, 3], SINCE, tmp_path / "kept")
    assert kept == [tmp_path / "kept" / "trace_0"]
    assert kept[0].read_text() == "of rank 0"


def test_nothing_is_made_where_nothing_was_dumped(tmp_path: Path) -> None:
    environ = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "trace_")}
    environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = environ["TORCH_FR_DUMP_TEMP_FILE"]
    assert collect_flight_records(environ, [0, 1], SINCE, tmp_path / "kept") == []
    assert not (tmp_path / "kept").exists()
