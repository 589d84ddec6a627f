"""How a job on Kubernetes ended, read off its objects. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.platforms.kubernetes.pods import CONTAINER, NODE, ROLE_LABEL

_KILLED = frozenset({from_signal(9), from_signal(15)})
_VOLCANO_ENDS = frozenset({"Completed", "Failed", "Terminated", "Aborted"})
_LONGEST = 300
_UNSCHEDULABLE = "Unschedulable"


@dataclass(frozen=True, slots=True)
class Ending:
    """The launcher's exit code, and why."""

    exit_code: int
    reason: str


@dataclass(frozen=True, slots=True)
class PodEnd:
    """A launcher that has ended."""

    pod: str
    exit_code: int
    finished: str
    """In RFC 3339, which sorts."""
    message: str


DELETED = Ending(from_signal(15), "the job was deleted from Kubernetes")


def ending_of(job: Mapping[str, Any] | None, ends: Iterable[PodEnd]) -> Ending | None:
    """None while it runs. ``job`` is None if it is not there any more."""
    if job is None:
        return DELETED
    if job.get("kind") == "CronJob":
        return None  # ends when somebody deletes it
    if "volcano" in str(job.get("apiVersion")):
        return _volcano_ending(job, list(ends))
    for condition in job.get("status", {}).get("conditions") or []:
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return Ending(ExitCode.SUCCESS, "")
        if condition.get("type") == "Failed":
            if condition.get("reason") == "DeadlineExceeded":
                return Ending(ExitCode.PREEMPTED, "the time that the Job may take is over")
            return _failure(list(ends), str(condition.get("message") or condition.get("reason")))
    return None


def pod_end(pod: Mapping[str, Any]) -> PodEnd | None:
    """How the launcher of a pod ended; None if it has not, or the pod is no node."""
    if pod["metadata"].get("labels", {}).get(ROLE_LABEL) != NODE:
        return None
    for status in pod.get("status", {}).get("containerStatuses") or []:
        terminated = status.get("state", {}).get("terminated")
        if status.get("name") == CONTAINER and terminated is not None:
            return PodEnd(
                pod["metadata"]["name"],
                int(terminated.get("exitCode", 0)),
                str(terminated.get("finishedAt") or ""),
                _last_line(str(terminated.get("message") or terminated.get("reason") or "")),
            )
    return None


def trouble_of(pod: Mapping[str, Any]) -> str | None:
    """Why a pod does not get to run, where Kubernetes tries on and says nothing by itself."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition.get("reason") == _UNSCHEDULABLE:
            return f"no machine for it yet: {condition.get('message')}"
    for container in status.get("containerStatuses") or []:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            return f"{waiting['reason']}: {waiting.get('message', 'no more is known')}"
    return None


def is_unschedulable(pod: Mapping[str, Any]) -> bool:
    """Whether it waits for a machine that would take it."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each.get("reason") == _UNSCHEDULABLE for each in conditions)


def store_trouble_of(pod: Mapping[str, Any]) -> str | None:
    """The same for the store, which is not to end before the job does."""
    if pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        return "the store where the nodes meet has ended, and the job will fail for want of it"
    return trouble_of(pod)


def _volcano_ending(job: Mapping[str, Any], ends: Sequence[PodEnd]) -> Ending | None:
    state = job.get("status", {}).get("state", {})
    if state.get("phase") not in _VOLCANO_ENDS:
        return None
    if state["phase"] == "Completed":
        return Ending(ExitCode.SUCCESS, "")
    said = state.get("message") or state.get("reason")
    return _failure(ends, f"Volcano's Job is {state['phase']}{f': {said}' if said else ''}")


def _failure(ends: Sequence[PodEnd], said: str) -> Ending:
    """Of the pods that failed, the first one that did so by itself tells the job's exit code."""
    bad = sorted((end for end in ends if end.exit_code), key=lambda end: (end.finished, end.pod))
    for group in (
        [end for end in bad if end.exit_code == ExitCode.ABORTED],
        [end for end in bad if end.exit_code not in {ExitCode.REPLACE_NODE, *_KILLED}],
        [end for end in bad if end.exit_code in _KILLED],
    ):
        if group:
            end = group[0]
            told = f": {end.message}" if end.message else ""
            return Ending(end.exit_code, f"pod {end.pod} exited with code {end.exit_code}{told}")
    if bad:  # only asked for replacements, and got them until there were too many
        return Ending(ExitCode.BUDGET_SPENT, f"node replacements are spent; {said}")
    return Ending(ExitCode.FAILURE, said)


def _last_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""


_STUCK = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)
