"""What whoever stops a run asks of the processes that end it: a file in the run's directory.

The request itself is a signal; the file says who sends it, and how long the job gets.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import write_json_atomically

STOP_REQUEST = "stop.json"


def write_stop_request(run_directory: Path, grace: float | None) -> None:
    """Say who asks, and how many seconds the job gets to end by itself. Raises OSError."""
    by = ProcessIdentity.own().to_json()
    write_json_atomically(run_directory / STOP_REQUEST, {"by": by, "grace": grace})


def read_stop_request(run_directory: Path) -> Mapping[str, Any]:
    """What was asked for; nothing is known of a request that came as a signal alone."""
    try:
        request = json.loads((run_directory / STOP_REQUEST).read_bytes())
        return {"by": request["by"], "grace": request["grace"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"by": None, "grace": None}
