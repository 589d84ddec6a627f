"""How a run ended, as its result file says: the launcher's own, or one in the same shape."""

import json
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from dlrover_cli.contracts.jobs import JobResult
from dlrover_cli.jobs.run_files import RunFiles
from dlrover_cli.telemetry.run_dir import write_json_atomically

SCHEMA_VERSION = 1


class Outcome(StrEnum):
    """Those that a runner can tell; a launcher knows more."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SIGNALLED = "signalled"


def write_result(
    files: RunFiles,
    outcome: Outcome,
    result: JobResult,
    *,
    started: float,
    say: Callable[[str], None],
) -> None:
    """Write result.json, unless the job has done so itself: the launcher knows more than we do."""
    if files.result.exists():
        return
    document = {
        "schema_version": SCHEMA_VERSION,
        "run_id": files.run_id,
        "outcome": outcome.value,
        "exit_code": result.exit_code,
        "reason": result.reason,
        "hint": None,
        "started": started,
        "ended": time.time(),
        "run_directory": str(files.path),
    }
    try:
        write_json_atomically(files.result, document)
    except OSError as error:  # a full disk does not change how the job ended
        say(f"cannot write {files.result}: {error.strerror}")


def read_result(files: RunFiles) -> dict[str, Any]:
    """The result; empty if there is none, or none that can be read."""
    try:
        document = json.loads(files.result.read_text())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def reason_in(files: RunFiles, result: JobResult) -> str:
    """Why the run ended so, in the words of its result file, if that tells of the same end."""
    document = read_result(files)
    if document.get("exit_code") != result.exit_code:
        return ""
    return str(document.get("reason") or "")
