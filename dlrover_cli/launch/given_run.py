"""A run that somebody else has set up, and keeps: the launcher only takes part in it.

Whoever submits a job has made its run directory and records its life. The launcher puts its node's
logs and events, and the result, into that directory.
"""

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass
from typing import Self

from dlrover_cli.failover.decide import Counters

VARIABLE = "DLROVER_RUN"


@dataclass(frozen=True, slots=True)
class GivenRun:
    """Which run, where it is kept, and what our part in it is."""

    run_id: str
    run_directory: str
    agent: str | None = None
    """What this node's directory is called, if it is one of several; the result is then there."""
    counters: Counters | None = None
    """Where the counting goes on."""
    keeps_life: bool = False
    """Whether whoever takes part also keeps the journal of the run's life."""

    @property
    def result_name(self) -> str:
        return "result.json" if self.agent is None else f"nodes/{self.agent}/result.json"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        data: Mapping[str, object] = json.loads(text)
        counters = data.get("counters")
        return cls(
            str(data["run_id"]),
            str(data["run_directory"]),
            None if data.get("agent") is None else str(data["agent"]),
            Counters(**counters) if isinstance(counters, dict) else None,
        )


def take_given_run(environ: MutableMapping[str, str]) -> GivenRun | None:
    """What the environment says; taken out of it, since workers inherit it and may launch too."""
    text = environ.pop(VARIABLE, None)
    return None if text is None else GivenRun.from_json(text)
