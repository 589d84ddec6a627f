"""What an agent can observe of an attempt, besides what workers and peers post."""

from dataclasses import dataclass
from typing import Any

from dlrover_cli.agent.agreement import Report
from dlrover_cli.agent.requests import OperatorRequest
from dlrover_cli.agent.rounds import Round


@dataclass(frozen=True, slots=True)
class Succeeded:
    return_values: dict[int, Any]


@dataclass(frozen=True, slots=True)
class LostPeer:
    """A node is gone; of interest to the round that was the last one when it was told."""

    round_: Round | None
    host: str


@dataclass(frozen=True, slots=True)
class Reported:
    """Something that the whole job has to decide on; no report if a peer noticed it."""

    report: Report | None
    request: OperatorRequest | None = None
    """If somebody has asked for it."""
