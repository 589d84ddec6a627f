"""A run that somebody else has set up, and keeps: the launcher only takes part in it.

Whoever submits a job has made its run directory and records its life. The launcher puts its node's
logs and events, and the result, into that directory.
"""

import json
from collections.abc import MutableMapping
from dataclasses import dataclass

VARIABLE = "DLROVER_RUN"


@dataclass(frozen=True, slots=True)
class GivenRun:
    """Which run, and where it is kept."""

    run_id: str
    run_directory: str


def take_given_run(environ: MutableMapping[str, str]) -> GivenRun | None:
    """What the environment says; taken out of it, since workers inherit it and may launch too."""
    text = environ.pop(VARIABLE, None)
    if text is None:
        return None
    data = json.loads(text)
    return GivenRun(data["run_id"], data["run_directory"])
