"""Flight-recorder files: what NCCL writes down about its collectives, kept in the run directory."""

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.telemetry.run_dir import RunDirectory

# The variable that names the files' prefix, and torch's default for it; newer torch, older torch.
_PREFIXES = (
    ("TORCH_FR_DUMP_TEMP_FILE", "/tmp/nccl_trace_rank_"),
    ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/nccl_trace_rank_"),
)


def keep_flight_records(attempt: RunningAttempt, directory: RunDirectory | None) -> list[Path]:
    """Copy what the workers of an attempt have dumped so far; nothing without a place for it."""
    if directory is None:
        return []
    since = time.time() - attempt.lifetime()
    ranks = attempt.global_ranks.values()
    return collect_flight_records(os.environ, ranks, since, directory.node / "flight_records")


def collect_flight_records(
    environ: Mapping[str, str], ranks: Iterable[int], since: float, destination: Path
) -> list[Path]:
    """Copy the dumps of these ranks that were written after ``since`` (``time.time``)."""
    kept: list[Path] = []
    for rank in ranks:
        candidates = {Path(f"{environ.get(name, default)}{rank}") for name, default in _PREFIXES}
        for source in sorted(candidates):
            with suppress(OSError):
                if source.stat().st_mtime >= since:
                    destination.mkdir(parents=True, exist_ok=True, mode=0o700)
                    kept.append(Path(shutil.copy2(source, destination / source.name)))
    return kept
