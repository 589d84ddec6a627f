"""What Kubernetes does with the objects of a job: the part of its controllers that tests need.

Pods are made from the Job's own template, and failures are judged by the rules in the Job itself:
by its podFailurePolicy, its backoffLimit and its successPolicy; of Volcano's, by the policies of
the task. No code of ours is asked. A kubelet there is not: tests say how pods end.
"""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.engines.kubernetes.schemas import complaints

Json = dict[str, Any]

DISRUPTION = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
_serial = itertools.count(1)


def now(offset: float = 0.0) -> str:
    moment = datetime.now(UTC) + timedelta(seconds=offset)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def new_pods(owner: Json) -> Iterator[Json]:
    """The pods of a Job that was created just now."""
    if "volcano" in owner["apiVersion"]:
        for task in owner["spec"]["tasks"]:
            for index in range(task["replicas"]):
                name = f"{owner['metadata']['name']}-{task['name']}-{index}"
                yield _pod(owner, task["template"], name, task["name"], index)
    else:
        for index in range(owner["spec"]["parallelism"]):
            yield indexed_pod(owner, index)


def indexed_pod(owner: Json, index: int) -> Json:
    name = f"{owner['metadata']['name']}-{index}-{next(_serial):05x}"
    return _pod(owner, owner["spec"]["template"], name, "", index)


def _pod(owner: Json, template: Json, name: str, task: str, index: int) -> Json:
    metadata = template["metadata"]
    labels = {
        **metadata["labels"],
        "batch.kubernetes.io/job-name": owner["metadata"]["name"],
        "batch.kubernetes.io/job-completion-index": str(index),
        **({"volcano.sh/task-spec": task} if task else {}),
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": labels,
            "uid": f"uid-{next(_serial)}",
            "creationTimestamp": now(),
        },
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    }
    assert complaints(pod) == []
    return pod


def set_running(pod: Json, node: str) -> None:
    pod["spec"] = pod["spec"] | {"nodeName": node}
    pod["status"] = {"phase": "Running", "podIP": "10.0.0.1", **_container({"running": {}})}


def set_ended(pod: Json, code: int, message: str = "", *, disrupted: bool = False) -> None:
    ended = {"exitCode": code, "finishedAt": now(), "reason": "Error" if code else "Completed"}
    if message:
        ended["message"] = message
    pod["status"] = {
        "phase": "Failed" if code else "Succeeded",
        "conditions": [dict(DISRUPTION)] if disrupted else [],
        **_container({"terminated": ended}),
    }


def _container(state: Json) -> Json:
    return {"containerStatuses": [{"name": "dlrover-run", "state": state}]}


class Controllers:
    """Judge pods that have ended. ``add`` and ``remove`` change what the server keeps."""

    def __init__(self, add: Callable[[Json], None], remove: Callable[[Json], None]) -> None:
        self._add = add
        self._remove = remove

    def judge(self, owner: Json, pod: Json, pods: list[Json]) -> None:
        """A pod of this owner has ended; ``pods`` are all of it."""
        if "volcano" in owner["apiVersion"]:
            self._judge_for_volcano(owner, pod, pods)
        elif pod["status"]["phase"] == "Succeeded":
            self._count_success(owner, pods)
        else:
            self._judge_failure(owner, pod, pods)

    def _count_success(self, owner: Json, pods: list[Json]) -> None:
        succeeded = sum(pod["status"]["phase"] == "Succeeded" for pod in pods)
        policy = owner["spec"].get("successPolicy", {}).get("rules", [{}])[0]
        wanted = policy.get("succeededCount", owner["spec"]["completions"])
        if succeeded >= wanted and not _is_over(owner):
            self._end(owner, pods, {"type": "Complete", "status": "True", "reason": "Completed"})

    def _judge_failure(self, owner: Json, pod: Json, pods: list[Json]) -> None:
        if _is_over(owner):
            return
        action = _action(owner["spec"]["podFailurePolicy"]["rules"], pod)
        failed = owner["status"].get("failed", 0) + (action == "Count")
        owner["status"]["failed"] = failed
        name = pod["metadata"]["name"]
        if action == "FailJob":
            message = f"Container dlrover-run for pod {name} failed, matching FailJob rule"
            self._end(owner, pods, _failed("PodFailurePolicy", message))
        elif failed > owner["spec"]["backoffLimit"]:
            message = "Job has reached the specified backoff limit"
            self._end(owner, pods, _failed("BackoffLimitExceeded", message))
        else:
            index = int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
            self._add(indexed_pod(owner, index))

    def _end(self, owner: Json, pods: list[Json], condition: Json) -> None:
        owner["status"].setdefault("conditions", []).append(condition)
        for pod in pods:
            if pod["status"]["phase"] in ("Pending", "Running"):
                self._remove(pod)

    def _judge_for_volcano(self, owner: Json, pod: Json, pods: list[Json]) -> None:
        name = pod["metadata"]["labels"]["volcano.sh/task-spec"]
        [task] = [task for task in owner["spec"]["tasks"] if task["name"] == name]
        code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        status = owner["status"]
        if code == 0:
            succeeded = sum(each["status"]["phase"] == "Succeeded" for each in pods)
            if succeeded >= owner["spec"]["minSuccess"]:
                self._volcano_end(owner, pods, "Completed")
            return
        disrupted = any(each["type"] == "DisruptionTarget" for each in pod["status"]["conditions"])
        match _volcano_action(task["policies"], code, "PodEvicted" if disrupted else "PodFailed"):
            case "TerminateJob":
                self._volcano_end(owner, pods, "Terminated")
            case "RestartPod":
                status["retryCount"] = status.get("retryCount", 0) + 1
                if status["retryCount"] >= owner["spec"]["maxRetry"]:
                    self._volcano_end(owner, pods, "Failed")
                    return
                index = int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
                self._remove(pod)
                self._add(_pod(owner, task["template"], pod["metadata"]["name"], name, index))

    def _volcano_end(self, owner: Json, pods: list[Json], phase: str) -> None:
        owner["status"]["state"] = {"phase": phase}
        for pod in pods:
            if pod["status"]["phase"] in ("Pending", "Running"):
                self._remove(pod)


def _is_over(owner: Json) -> bool:
    return bool(owner["status"].get("conditions"))


def _failed(reason: str, message: str) -> Json:
    return {"type": "Failed", "status": "True", "reason": reason, "message": message}


def _action(rules: list[Json], pod: Json) -> str:
    """As documented: the first rule that fits; without any, the failure counts."""
    code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    conditions = {(each["type"], each["status"]) for each in pod["status"]["conditions"]}
    for rule in rules:
        if "onExitCodes" in rule:
            wanted = rule["onExitCodes"]
            assert wanted["values"] == sorted(set(wanted["values"])), "sorted, without duplicates"
            if code and (code in wanted["values"]) == (wanted["operator"] == "In"):
                return str(rule["action"])
        elif conditions & {(each["type"], each["status"]) for each in rule["onPodConditions"]}:
            return str(rule["action"])
    return "Count"


def _volcano_action(policies: list[Json], code: int, event: str) -> str:
    for policy in policies:
        if event in [*policy.get("events", []), policy.get("event")]:
            return str(policy["action"])
        if policy.get("exitCode") == code:
            return str(policy["action"])
    return "SyncJob"
