"""What the end of an agent means for its job. Pure: codes and last words in, a meaning out."""

from dataclasses import dataclass
from enum import Enum, auto

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.failover.decide import Action

_LARGEST_OWN_CODE = 128


class Meaning(Enum):
    """What follows for the job."""

    SUCCESS = auto()
    """Every worker of every node has succeeded."""
    FAILURE = auto()
    """The agents have agreed that the job fails; or this one can never take part in it."""
    REPLACE = auto()
    """A verdict wants this node to be replaced."""
    LOST = auto()
    """The agent, or its node, is gone without a word; or was told to go by somebody else."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """What an agent said when it was about to go."""

    action: Action | None = None
    reason: str = ""


def meaning_of(exit_code: int | None, words: LastWords | None) -> Meaning:
    """``words`` is None if the agent did not come to say anything."""
    if exit_code == ExitCode.SUCCESS:
        return Meaning.SUCCESS
    if words is not None and words.action in (Action.FAIL, Action.ABORT):
        return Meaning.FAILURE
    if words is not None and words.action is Action.REPLACE_NODE:
        return Meaning.REPLACE
    if exit_code is None or exit_code < 0 or exit_code > _LARGEST_OWN_CODE:
        return Meaning.LOST
    if exit_code == ExitCode.REPLACE_NODE:
        return Meaning.REPLACE
    return Meaning.FAILURE


def job_exit_code(exit_code: int | None) -> int:
    """The exit code of a job that fails with this agent."""
    if exit_code is None:
        return ExitCode.FAILURE
    return from_signal(-exit_code) if exit_code < 0 else exit_code
