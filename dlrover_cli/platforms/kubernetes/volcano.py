"""The job as one of Volcano: nodes and store are its tasks, and start together or not at all.

Policies are looked through in their order, those of the task before those of the job, and a policy
has an exit code or an event but never both; so exit codes come before the event of any failure.
"""

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.platforms.kubernetes.pods import (
    NODE,
    STORE,
    STORE_PORT,
    Json,
    Run,
    node_template,
    store_template,
)


def volcano_job(run: Run) -> Json:
    """A Job of `batch.volcano.sh/v1alpha1`."""
    request = run.request
    # The names that Volcano's plugin `svc` gives to pods.
    endpoint = f"{run.name}-{STORE}-0.{run.name}:{STORE_PORT}"
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": run.named(),
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": request.least + 1,
            # The store never ends by itself; nodes end together.
            "minSuccess": request.least,
            # Volcano gives up when it has counted as many; zero would be its own default.
            "maxRetry": request.relaunches + 1,
            "plugins": {"svc": ["--publish-not-ready-addresses=true"]},
            "tasks": [
                {
                    "name": STORE,
                    "replicas": 1,
                    "minAvailable": 1,
                    "policies": [{"events": ["PodFailed", "PodEvicted"], "action": "TerminateJob"}],
                    "template": store_template(run),
                },
                {
                    "name": NODE,
                    "replicas": request.most,
                    "minAvailable": request.least,
                    "policies": _node_policies(),
                    "template": node_template(run, endpoint, run.run_id),
                },
            ],
        },
    }


def _node_policies() -> list[Json]:
    again = (int(ExitCode.REPLACE_NODE), from_signal(9), from_signal(15))
    return [
        {"exitCode": int(ExitCode.ABORTED), "action": "TerminateJob"},
        *({"exitCode": code, "action": "RestartPod"} for code in again),
        {"event": "PodEvicted", "action": "RestartPod"},
        {"event": "PodFailed", "action": "TerminateJob"},
    ]
