"""Watching a run until it ends: its pods' logs, their troubles, nodes that do not answer."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dlrover_cli.platforms.kubernetes.client import Json
from dlrover_cli.platforms.kubernetes.ending import (
    Ending,
    PodEnd,
    ending_of,
    pod_end,
    store_trouble_of,
    trouble_of,
)
from dlrover_cli.platforms.kubernetes.faults import KubernetesError
from dlrover_cli.platforms.kubernetes.logs import PodLogs
from dlrover_cli.platforms.kubernetes.objects import RunObjects
from dlrover_cli.platforms.kubernetes.pods import BAR, NODE, ROLE_LABEL
from dlrover_cli.platforms.kubernetes.replacing import NodeReplacement
from dlrover_cli.telemetry.events import Recorder, record_nothing

_LOOK_AGAIN_SECONDS = 1.0
_PATIENCE_SECONDS = 300.0
"""How long an API server may fail before we do; the job itself goes on all the while."""
_OVERDUE_SECONDS = 30.0
_LAST_LINES_SECONDS = 10.0


@dataclass(slots=True)
class Follower:
    """Looks at the objects every second; one per process and run."""

    objects: RunObjects
    say: Callable[[str], None]
    logs: PodLogs | None = None
    record: Recorder = record_nothing
    clock: Callable[[], float] = time.time
    interval: float = _LOOK_AGAIN_SECONDS
    replacement: NodeReplacement | None = None
    """Of the process that is to the job what a manager is; others only look."""
    _ends: dict[str, PodEnd] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)
    _overdue: set[str] = field(default_factory=set)
    _failing_since: float | None = None

    def follow(self, timeout: float | None = None) -> Ending | None:
        """How it ended; None if it still runs after ``timeout`` seconds. Raises KubernetesError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            ending = self.look()
            if ending is not None:
                if self.logs is not None:
                    self.logs.finish(_LAST_LINES_SECONDS)
                return ending
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            time.sleep(self.interval if left is None else min(self.interval, left))

    def look(self) -> Ending | None:
        """Once. The job is looked at before its pods, so that no end of a pod is missed."""
        try:
            main = self.objects.main()
            pods = self.objects.pods(role=None)
        except KubernetesError as error:
            self._bear(error)
            return None
        if self._failing_since is not None:
            self.say("the API server answers again")
            self._failing_since = None
        for pod in pods:
            self._look_at(pod)
        if self.replacement is not None and main is not None:
            self.replacement.look(pods)
        return ending_of(main, self._ends.values())

    def _look_at(self, pod: Json) -> None:
        name, uid = pod["metadata"]["name"], str(pod["metadata"].get("uid"))
        status = pod.get("status", {})
        end = pod_end(pod)
        role = pod["metadata"]["labels"].get(ROLE_LABEL)
        if role == BAR:
            return
        is_node = role == NODE
        if self.logs is not None and is_node and _has_started(status):
            self.logs.follow(name, is_over=end is not None)
        if end is not None and uid not in self._ends:
            self._ends[uid] = end
            node = pod.get("spec", {}).get("nodeName")
            self.record("pod_ended", pod=name, exit_code=end.exit_code, node=node)
            if end.exit_code:
                told = f": {end.message}" if end.message else ""
                self.say(f"pod {name} exited with code {end.exit_code}{told}")
        trouble = trouble_of(pod) if is_node else store_trouble_of(pod)
        if trouble is not None and self._told.get(uid) != trouble:
            self._told[uid] = trouble
            self.say(f"pod {name}: {trouble}")
        if end is None and uid not in self._overdue and _is_overdue(pod, self.clock()):
            self._overdue.add(uid)
            self._tell_of_lost_node(pod)

    def _tell_of_lost_node(self, pod: Json) -> None:
        """Its job waits for its end, and nobody but an administrator can tell that it has come."""
        name, node = pod["metadata"]["name"], pod.get("spec", {}).get("nodeName")
        self.record("node_unreachable", pod=name, node=node)
        self.say(
            f"pod {name} should have ended, and its machine {node} does not answer; another pod "
            f"comes when it does, or when it is taken out: kubectl delete node {node}"
        )

    def _bear(self, error: KubernetesError) -> None:
        if not error.may_pass:
            raise error
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            self.say(f"{error.message}; the job goes on, trying again")
        elif now - self._failing_since > _PATIENCE_SECONDS:
            raise error


def _has_started(status: dict[str, Any]) -> bool:
    """Before that there are no logs, and asking for them is an error."""
    states = [each.get("state", {}) for each in status.get("containerStatuses") or []]
    return any("running" in state or "terminated" in state for state in states)


def _is_overdue(pod: Json, now: float) -> bool:
    """Whether it was to be deleted, and should have ended a good while ago."""
    text = pod["metadata"].get("deletionTimestamp")
    if not text:
        return False
    try:
        due = datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return False
    return now > due + _OVERDUE_SECONDS
