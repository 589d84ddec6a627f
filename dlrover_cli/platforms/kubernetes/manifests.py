"""From a request and a run id to the objects of the job. Pure.

A job is a Job of Kubernetes whose pods are numbered, a store in a pod of its own, and a Service
without an address that gives all of them names. One that is repeated is a CronJob; its store then
serves every Job that comes of it. Volcano's job has all of this in one object.

What a launcher's exit code leads to is Kubernetes' own doing, whoever watches: 82 fails the job at
once; 81, and pods that are taken away, get a new pod at no cost; a launcher that was killed gets
one, too, which counts; any other failure is the job's.
"""

from typing import Any

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.platforms.kubernetes.names import run_slug
from dlrover_cli.platforms.kubernetes.pods import (
    CONTAINER,
    RUN_LABEL,
    STORE,
    STORE_PORT,
    Json,
    Run,
    node_template,
    store_template,
)
from dlrover_cli.platforms.kubernetes.request import Request
from dlrover_cli.platforms.kubernetes.volcano import volcano_job

KILLED = (from_signal(9), from_signal(15))
_KEEP_SECONDS = 86400
"""A Job that has ended goes by itself after a day, if nobody takes it away."""
_JOB_NAME = "DLROVER_KUBERNETES_JOB"


def manifests(request: Request, run_id: str) -> list[Json]:
    """All objects, the one that owns the others first."""
    run = Run(request, run_id)
    if request.kind == "volcano":
        return [volcano_job(run)]
    if request.schedule is not None:
        return [_cron_job(run), _store_deployment(run), _service(run)]
    return [_job(run), _store_pod(run), _service(run)]


def endpoint_of(run: Run) -> str:
    """Where the nodes meet."""
    return f"{run.name}-{STORE}.{run.name}:{STORE_PORT}"


def _job(run: Run) -> Json:
    template = node_template(run, endpoint_of(run), run.run_id)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": run.named(),
        "spec": _job_spec(run, template),
    }


def _job_spec(run: Run, template: Json) -> Json:
    request = run.request
    template["spec"]["subdomain"] = run.name
    spec: Json = {
        "completionMode": "Indexed",
        "completions": request.most,
        "parallelism": request.most,
        "backoffLimit": request.relaunches,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules()},
        "ttlSecondsAfterFinished": _KEEP_SECONDS,
        "template": template,
    }
    if request.least < request.most:
        # Launchers end together. Pods that never got a machine are not to be waited for.
        spec["successPolicy"] = {"rules": [{"succeededCount": request.least}]}
    return spec


def _failure_rules() -> list[Json]:
    """The first one that fits is taken."""
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    lasting = [int(ExitCode.REPLACE_NODE), *KILLED]
    return [
        _on_exit_codes("FailJob", "In", [int(ExitCode.ABORTED)]),
        {"action": "Ignore", "onPodConditions": [disrupted]},
        _on_exit_codes("Ignore", "In", [int(ExitCode.REPLACE_NODE)]),
        _on_exit_codes("Count", "In", list(KILLED)),
        _on_exit_codes("FailJob", "NotIn", lasting),
    ]


def _on_exit_codes(action: str, operator: str, codes: list[int]) -> Json:
    requirement = {"containerName": CONTAINER, "operator": operator, "values": codes}
    return {"action": action, "onExitCodes": requirement}


def _cron_job(run: Run) -> Json:
    # Its Jobs share the store, where they are told apart by their names.
    label = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}}
    name: list[Json] = [{"name": _JOB_NAME, "valueFrom": label}]
    template = node_template(run, endpoint_of(run), f"$({_JOB_NAME})", name)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": run.named(),
        "spec": {
            "schedule": run.request.schedule,
            "timeZone": "Etc/UTC",
            # As everywhere: a time that comes while the job still runs is not made up for.
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"metadata": run.metadata(), "spec": _job_spec(run, template)},
        },
    }


def _store_pod(run: Run) -> Json:
    template = _named_store(run)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"] | run.named(f"-{STORE}", STORE) | _annotations(template),
        "spec": template["spec"],
    }


def _annotations(template: Json) -> Json:
    return {"annotations": template["metadata"]["annotations"]}


def _store_deployment(run: Run) -> Json:
    template = _named_store(run)
    template["spec"]["restartPolicy"] = "Always"
    labels = {RUN_LABEL: run_slug(run.run_id), "dlrover.io/role": STORE}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": run.named(f"-{STORE}", STORE),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def _named_store(run: Run) -> Json:
    template = store_template(run)
    template["spec"] |= {"hostname": f"{run.name}-{STORE}", "subdomain": run.name}
    return template


def _service(run: Run) -> Json:
    spec: dict[str, Any] = {
        "clusterIP": "None",
        "selector": {RUN_LABEL: run_slug(run.run_id)},
        # Names are needed before anybody is ready: that is how nodes get ready.
        "publishNotReadyAddresses": True,
        "ports": [{"name": "store", "port": STORE_PORT}],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": run.named(), "spec": spec}
