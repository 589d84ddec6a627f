"""How a run ended, as its result file says: the launcher's own, or one in the same shape."""

import json
import time
from typing import Any

from dlrover_cli.contracts.jobs import JobResult
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.telemetry.run_dir import write_json_atomically

SCHEMA_VERSION = 1


def write_result(files: RunFiles, result: JobResult, *, started: float) -> None:
    """Write result.json, unless the job has done so itself: the launcher knows more than we do."""
    if files.result.exists():
        return
    write_json_atomically(
        files.result,
        {
            "schema_version": SCHEMA_VERSION,
            "run_id": files.run_id,
            "outcome": "succeeded" if result.is_success else "failed",
            "exit_code": result.exit_code,
            "reason": result.reason,
            "hint": None,
            "started": started,
            "ended": time.time(),
            "run_directory": str(files.path),
        },
    )


def read_result(files: RunFiles) -> dict[str, Any]:
    """The result; empty if there is none, or none that can be read."""
    try:
        document = json.loads(files.result.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def reason_in(files: RunFiles) -> str:
    """Why the run ended, in the words of its result file."""
    return str(read_result(files).get("reason") or "")
