"""What the status line knows about a run: made step by step from its events and samples. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlrover_cli.failover.decide import Action
from dlrover_cli.telemetry.live import NodeSample, RankState, usual_rate
from dlrover_cli.words import counted, one_line

_NEXT = {
    Action.RESTART_WORKERS.value: "restarting the workers",
    Action.RESTART_JOB.value: "restarting the job",
    Action.REPLACE_NODE.value: "replacing the node",
    Action.ABORT.value: "aborting the job",
    Action.FAIL.value: "ending the job",
    Action.ADMIT.value: "taking in new nodes",
}


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run as one line can show it. Times are seconds since 1970."""

    doing: str = "starting"
    """What makes a person wait; empty while the workers run."""
    since: float = 0.0
    """Since when it does that, or the workers run."""
    until: float | None = None
    """When the wait is over, where that is known."""
    attempt: int | None = None
    world_size: int | None = None
    nodes: int | None = None
    steps: int = 0
    rate: float | None = None
    failure: str = ""
    failed_at: float = 0.0


def after_event(status: RunStatus, event: Mapping[str, Any]) -> RunStatus:
    """The status once ``event``, of an agent or of a manager, has happened."""
    data, when = event["data"], event["time"]
    match event["kind"]:
        case "run_started" | "run_resumed":
            return _doing(status, "starting", when)
        case "rendezvous_started":
            return _doing(status, f"meeting the other nodes ({data['backend']})", when)
        case "rendezvous_arrivals":
            words = f"waiting for nodes: {data['nodes']} of {data['wanted']} are there"
            return replace(status, doing=words)
        case "rendezvous_completed":
            known = replace(status, nodes=data["nodes"], world_size=data["world_size"])
            return _doing(known, "preparing the workers", when)
        case "workers_started":
            begun = replace(status, attempt=event["attempt"], steps=0, rate=None)
            return _doing(begun, "", when)
        case "decision":
            return _after_decision(status, data, when)
        case "signal":
            return _doing(status, f"ending after {data['signal']}", when)
        case _:
            return _after_managers_event(status, event["kind"], data, when)


def after_samples(status: RunStatus, samples: Sequence[NodeSample]) -> RunStatus:
    """The status with the numbers of the latest attempt among the samples."""
    latest = max((sample.attempt for sample in samples), default=None)
    if latest is None or (status.attempt is not None and latest < status.attempt):
        return status
    current = [sample for sample in samples if sample.attempt == latest]
    ranks = [rank for sample in current for rank in sample.ranks]
    counted_ = replace(
        status,
        attempt=latest,
        world_size=current[0].world_size,
        nodes=current[0].nodes,
        steps=max((sample.steps for sample in current), default=0),
        rate=usual_rate(ranks),
    )
    is_done = bool(ranks) and all(rank.state is RankState.SUCCEEDED for rank in ranks)
    if is_done and not status.doing and current[0].nodes > len(current):
        now = max(sample.time for sample in current)
        return _doing(counted_, "done here; waiting for the other nodes", now)
    return counted_


def _after_decision(status: RunStatus, data: Mapping[str, Any], when: float) -> RunStatus:
    doing = _NEXT.get(data["action"], data["action"])
    decided = replace(_doing(status, doing, when), rate=None)
    if data["backoff"]:
        decided = replace(decided, until=when + data["backoff"])
    if data.get("cause"):
        decided = replace(decided, failure=one_line(data["cause"]), failed_at=when)
    return decided


def _after_managers_event(
    status: RunStatus, kind: str, data: Mapping[str, Any], when: float
) -> RunStatus:
    match kind:
        case "placement" if data["reason"]:
            return _doing(status, f"waiting for nodes: {one_line(data['reason'])}", when)
        case "agent_placed":
            return _doing(status, f"waiting for the agent on {data['host']}", when)
        case "agent_arrived":
            return _doing(status, "the agents meet", when)
        case "replacing":
            lost = replace(status, failure=one_line(data["reason"]), failed_at=when, rate=None)
            return _doing(lost, "replacing a node", when)
        case "node_requested":
            many = counted(len(data["instead_of"]), "new node")
            return _doing(status, f"asked Slurm for {many}", when)
        case "round":
            known = replace(status, attempt=data["attempt"], nodes=data["nodes"], steps=0)
            return _doing(replace(known, rate=None), "", when)
        case "job_ending":
            return _doing(status, "ending the job", when)
        case "slurm_submitted":
            return _doing(status, f"Slurm job {data['job_id']}", when)
        case "slurm_state" if data["state"] == "RUNNING":
            return _doing(status, "", when)
        case "slurm_state":
            reason = f" ({data['reason']})" if data["reason"] not in ("", "None") else ""
            return _doing(status, f"Slurm job is {data['state']}{reason}", when)
        case _:
            return status


def _doing(status: RunStatus, doing: str, when: float) -> RunStatus:
    """Whoever waits for the same thing again has waited since the first time."""
    since = status.since if doing and doing == status.doing else when
    return replace(status, doing=doing, since=since, until=None)
