"""Reports: what one node has to say to the job, written down on the node as well."""

import json
import time
from collections.abc import Mapping, Sequence

from dlrover_cli.agent.agreement import (
    WEIGHT_CAUSE,
    WEIGHT_COLLATERAL,
    WEIGHT_MEMBERSHIP,
    WEIGHT_REQUEST,
    Report,
)
from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.facts import describe_end, failure_info, hang_failures
from dlrover_cli.agent.progress import Hang
from dlrover_cli.agent.requests import OperatorRequest
from dlrover_cli.contracts import AgentFailureInfo, WorkerFailure
from dlrover_cli.failover.decide import Counters, Limits
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.telemetry.run_dir import RunDirectory


class Reporter:
    """Makes the reports of one agent and keeps every failure for later replay."""

    def __init__(
        self, limits: Limits, record: Recorder, run_directory: RunDirectory | None
    ) -> None:
        self._limits = limits
        self._record = record
        self._run_directory = run_directory
        self._count = 0 if run_directory is None else len(kept_failures(run_directory))

    def of_failure(
        self,
        attempt: RunningAttempt,
        failures: Sequence[WorkerFailure],
        node_rank: int,
        counters: Counters,
        stacks: Mapping[int, str] | None = None,
    ) -> Report:
        """Workers of this node have failed; ``stacks``, by local rank, are those of others."""
        info = self._info(attempt, failures, node_rank, counters)
        info.stacks = {
            str(attempt.global_ranks[rank]): text for rank, text in sorted((stacks or {}).items())
        }
        only_consequences = attempt.has_only_consequences(failures)
        return self._write_down(
            info, attempt, WEIGHT_COLLATERAL if only_consequences else WEIGHT_CAUSE
        )

    def of_hang(
        self,
        attempt: RunningAttempt,
        hang: Hang,
        stacks: Mapping[int, str],
        node_rank: int,
        counters: Counters,
    ) -> Report:
        """Nothing has moved for too long; ``stacks`` show where, by local rank."""
        failures = hang_failures(
            hang,
            attempt.workers.pids(),
            attempt.global_ranks,
            attempt.beats(),
            stacks,
            time.monotonic(),
            time.time_ns(),
        )
        by_global_rank = {attempt.global_ranks[rank]: text for rank, text in stacks.items()}
        info = self._info(attempt, failures, node_rank, counters, by_global_rank)
        return self._write_down(info, attempt, WEIGHT_CAUSE)

    def _info(
        self,
        attempt: RunningAttempt,
        failures: Sequence[WorkerFailure],
        node_rank: int,
        counters: Counters,
        stacks: Mapping[int, str] | None = None,
    ) -> AgentFailureInfo:
        return failure_info(
            failures,
            attempt.tail,
            node_rank,
            "" if self._run_directory is None else self._run_directory.run_id,
            counters,
            self._limits,
            steps=attempt.steps(),
            stacks=stacks,
        )

    def _write_down(self, info: AgentFailureInfo, attempt: RunningAttempt, weight: int) -> Report:
        self._count += 1
        document = info.to_json()
        if self._run_directory is not None:
            self._run_directory.write_failure(self._count, document)
        root = info.root_cause
        self._record(
            "failure",
            number=self._count,
            failure_kind=info.kind.value,
            root_rank=None if root is None else root.global_rank,
            how=None if root is None else describe_end(root),
            ranks=[worker.global_rank for worker in info.workers],
        )
        return {
            "weight": weight,
            "failure": document,
            "lifetime": attempt.lifetime(),
            "active_seconds": attempt.active_seconds(),
        }


def kept_failures(run_directory: RunDirectory) -> tuple[AgentFailureInfo, ...]:
    """The failures that this node has written down so far, oldest first."""
    files = sorted(run_directory.failures.glob("*.json"), key=lambda path: int(path.stem))
    return tuple(AgentFailureInfo.from_json(json.loads(path.read_text())) for path in files)


def of_waiting_nodes(count: int) -> Report:
    """Nodes wait to join."""
    nodes = "1 node waits" if count == 1 else f"{count} nodes wait"
    return {"weight": WEIGHT_MEMBERSHIP, "reason": f"{nodes} to join"}


def of_lost_peer(host: str) -> Report:
    """The manager says that a node is gone; what it takes along is nobody's failure."""
    return {"weight": WEIGHT_CAUSE, "reason": f"{host} is lost"}


def of_request(request: OperatorRequest, node_rank: int) -> Report:
    """Somebody has asked this node for something that the whole job does; nothing has failed."""
    return {"weight": WEIGHT_REQUEST, "request": {**request.to_json(), "node_rank": node_rank}}


def of_departure(host: str, signal_name: str) -> Report:
    """This node was told to go; what its peers lose by that is nobody's failure."""
    return {"weight": WEIGHT_CAUSE, "reason": f"{host} was stopped by {signal_name}"}
