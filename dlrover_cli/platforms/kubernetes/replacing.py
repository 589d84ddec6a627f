"""A machine that a launcher wants to be rid of (81) gets none of the job's pods any more.

Kubernetes makes the new pod by itself, but may well put it on the same machine, and the template of
a Job cannot be changed. So a small pod is put on that machine: nodes of the job stay away from such
pods. One that came there before it did is evicted, which costs nothing. If the cluster has no other
machine for the new pod within a minute, the bad one is better than none: the bar is lifted.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.platforms.kubernetes.client import JOB, Json
from dlrover_cli.platforms.kubernetes.ending import is_unschedulable, pod_end
from dlrover_cli.platforms.kubernetes.faults import KubernetesError
from dlrover_cli.platforms.kubernetes.objects import RunObjects
from dlrover_cli.platforms.kubernetes.pods import NODE, ROLE_LABEL
from dlrover_cli.telemetry.events import Recorder

PATIENCE_SECONDS = 60.0
_PLACE = "batch.kubernetes.io/job-completion-index"


@dataclass(slots=True)
class NodeReplacement:
    """For one process that follows the job to its end; looks at all pods whenever they are."""

    objects: RunObjects
    say: Callable[[str], None]
    record: Recorder
    patience: float = PATIENCE_SECONDS
    _judged: set[str] = field(default_factory=set)
    """The pods that asked for a replacement, by their uids; and those that were evicted."""
    _barred: dict[str, set[str]] = field(default_factory=dict)
    """Machines, with the places in the job that were taken from each."""
    _waiting_since: float | None = None

    def look(self, pods: Sequence[Json]) -> None:
        """Do what is to be done. What the API server refuses is told, and the job goes on."""
        if self.objects.main_kind is not JOB:
            return  # Volcano deletes a failed pod at once, and with it how and where it ended
        nodes = [pod for pod in pods if pod["metadata"]["labels"].get(ROLE_LABEL) == NODE]
        for pod in nodes:
            end = pod_end(pod)
            machine = pod.get("spec", {}).get("nodeName")
            if machine is None or _uid(pod) in self._judged:
                continue
            if end is not None and end.exit_code == ExitCode.REPLACE_NODE:
                self._judged.add(_uid(pod))
                self._try(partial(self._bar, pod, machine))
        for pod in nodes:
            if self._is_on_a_barred_machine(pod):
                self._judged.add(_uid(pod))
                self._try(partial(self._evict, pod))
        if self._barred:
            self._lift_if_there_is_no_other(nodes)

    def _bar(self, pod: Json, machine: str) -> None:
        if machine not in self._barred:
            self.objects.bar(machine)
            self.record("machine_barred", machine=machine, pod=pod["metadata"]["name"])
            self.say(f"machine {machine} gets no pod of this job any more: its node is replaced")
        self._barred.setdefault(machine, set()).add(_place(pod))

    def _is_on_a_barred_machine(self, pod: Json) -> bool:
        machine = pod.get("spec", {}).get("nodeName")
        is_new = _place(pod) in self._barred.get(machine or "", ())
        return is_new and _uid(pod) not in self._judged and pod_end(pod) is None

    def _evict(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        self.objects.replace_node(name)
        self.record("pod_evicted", pod=name, machine=pod["spec"]["nodeName"])

    def _lift_if_there_is_no_other(self, nodes: Sequence[Json]) -> None:
        if not any(pod_end(pod) is None and is_unschedulable(pod) for pod in nodes):
            self._waiting_since = None
            return
        now = time.monotonic()
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if now - self._waiting_since >= self.patience:
            self._waiting_since = None
            machines = sorted(self._barred)
            self._barred.clear()
            self._try(partial(self._lift, machines))

    def _lift(self, machines: Sequence[str]) -> None:
        self.objects.lift_bars()
        self.record("machines_used_again", machines=list(machines))
        self.say(f"no other machine is there: {', '.join(machines)} may be used again")

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except KubernetesError as error:
            self.say(f"{error.message}; the job goes on without it")


def _uid(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("uid"))


def _place(pod: Mapping[str, Any]) -> str:
    """Which of the job's pods it is, whether made again or not."""
    return str(pod["metadata"]["labels"].get(_PLACE, pod["metadata"]["name"]))
