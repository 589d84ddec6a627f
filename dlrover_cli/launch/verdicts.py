"""The verdict on a run of this launcher, from how its agent ended."""

from typing import TYPE_CHECKING

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.diagnosis.verdict import Verdict, verdict_on
from dlrover_cli.telemetry.run_dir import RunDirectory

if TYPE_CHECKING:
    from dlrover_cli.agent.ending import Ending


def verdict_of(
    ending: "Ending", failure: AgentFailureInfo, run_directory: RunDirectory, started: float
) -> Verdict:
    """What a person has to know; the logs are those of the rank if they are on this machine."""
    from dlrover_cli.agent.narration import outcome_of

    root = failure.root_cause
    logs = run_directory.path
    if root is not None:
        ranks = run_directory.logs / f"attempt_{failure.attempt}" / str(root.global_rank)
        logs = ranks if ranks.is_dir() else logs
    return verdict_on(
        failure,
        started=started,
        world_size=ending.world_size,
        alike=ending.alike,
        succeeded=ending.succeeded,
        decided=outcome_of(ending.settlement),
        logs=str(logs),
    )
