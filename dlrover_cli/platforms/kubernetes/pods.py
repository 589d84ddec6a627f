"""The pods of a job: nodes, each with a launcher, the store where they meet, and bars.

The store has a pod of its own, so that no training node is a single point of failure: whichever one
is lost, the others meet again, and whatever was counted is still known.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlrover_cli.platforms.kubernetes.names import object_name, run_slug
from dlrover_cli.platforms.kubernetes.request import Request
from dlrover_cli.platforms.kubernetes.resources import container_resources

Json = dict[str, Any]

CONTAINER = "dlrover-run"
STORE_PORT = 29400
RUN_LABEL = "dlrover.io/run"
ROLE_LABEL = "dlrover.io/role"
RUN_ANNOTATION = "dlrover.io/run-id"
NODE, STORE, BAR = "node", "store", "bar"
LINE_PREFIX = "[rank ${rank}]:"
_STATE = "/var/lib/dlrover"
_UNREACHABLE_SECONDS = 30
"""How long the pods of a node that does not answer are waited for, instead of five minutes."""


@dataclass(frozen=True, slots=True)
class Run:
    """A request, and which run it is for."""

    request: Request
    run_id: str

    @property
    def name(self) -> str:
        return object_name(self.request.stem, self.run_id)

    def metadata(self, role: str | None = None, **more: Any) -> Json:
        """Of an object, by default of the whole run."""
        labels = {
            "app.kubernetes.io/name": self.request.stem,
            "app.kubernetes.io/managed-by": "dlrover-run",
            RUN_LABEL: run_slug(self.run_id),
            **({ROLE_LABEL: role} if role else {}),
        }
        return {**more, "labels": labels, "annotations": {RUN_ANNOTATION: self.run_id}}

    def named(self, suffix: str = "", role: str | None = None) -> Json:
        name = self.name + suffix
        return self.metadata(role, name=name, namespace=self.request.namespace)


def node_template(run: Run, endpoint: str, rdzv_id: str, env: list[Json] | None = None) -> Json:
    """A pod that is one node of the job."""
    request = run.request
    spec = _spec(
        run,
        NODE,
        ["dlrover-run", *_arguments(request, endpoint, rdzv_id)],
        [*_environment(run), *(env or [])],
        container_resources(request.resources),
    )
    spec["terminationGracePeriodSeconds"] = request.grace
    spec["affinity"] = _apart(run)
    spec["tolerations"] = [
        {
            "key": f"node.kubernetes.io/{trouble}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _UNREACHABLE_SECONDS,
        }
        for trouble in ("not-ready", "unreachable")
    ]
    return {"metadata": run.metadata(NODE), "spec": spec}


def store_template(run: Run) -> Json:
    """The pod of the store. What it keeps is in its memory, so nobody is to move it."""
    spec = _spec(
        run,
        STORE,
        ["dlrover-job", "rendezvous", "serve", f"--port={STORE_PORT}"],
        [_state_variable()],
        {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    )
    container = spec["containers"][0]
    container["ports"] = [{"name": "store", "containerPort": STORE_PORT}]
    spec["terminationGracePeriodSeconds"] = 5
    metadata = run.metadata(STORE)
    metadata["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"
    return {"metadata": metadata, "spec": spec}


def bar_pod(run: Run, machine: str) -> Json:
    """Does nothing, on this very machine: nodes of the run are not scheduled beside it."""
    digest = hashlib.sha256(machine.encode()).hexdigest()[:8]
    few = {"cpu": "1m", "memory": "4Mi"}
    command = ["sleep", "infinity"]
    spec = _spec(run, BAR, command, [], {"requests": few, "limits": {"memory": "16Mi"}})
    spec |= {
        "nodeName": machine,  # nobody has to schedule it, and no taint keeps it away
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": run.named(f"-{BAR}-{digest}", BAR),
        "spec": spec,
    }


def _spec(
    run: Run, role: str, command: list[str], env: list[Json], resources: Mapping[str, Any]
) -> Json:
    volumes: dict[str, tuple[str, Json]] = {"state": (_STATE, {})}
    if role == NODE:
        # The container's own has 64 MiB, which the data loaders of one worker fill.
        volumes["shared-memory"] = ("/dev/shm", {"medium": "Memory"})
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": CONTAINER,
                "image": run.request.image,
                "command": command,
                "env": env,
                "resources": dict(resources),
                # The end of the output becomes the reason, where nothing else is known.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": name, "mountPath": path} for name, (path, _) in volumes.items()
                ],
            }
        ],
        "volumes": [{"name": name, "emptyDir": how} for name, (_, how) in volumes.items()],
    }


def _arguments(request: Request, endpoint: str, rdzv_id: str) -> list[str]:
    # The store's image may still be on its way when the first node is there.
    patience = "" if "read_timeout" in request.rdzv_conf else "read_timeout=600"
    conf = ",".join(filter(None, (request.rdzv_conf, patience, "is_host=0")))
    return [
        f"--nnodes={request.least}:{request.most}",
        "--rdzv-backend=dlrover",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id={rdzv_id}",
        f"--rdzv-conf={conf}",
        *map(_literal, request.options),
        "--",
        *map(_literal, request.command),
    ]


def _environment(run: Run) -> list[Json]:
    """Ours come last: of two variables with the same name, the last one is taken."""
    return [
        *({"name": key, "value": _literal(text)} for key, text in run.request.env.items()),
        _state_variable(),
        {"name": "DLROVER_LOCAL_ADDR", "valueFrom": _field("status.podIP")},
        {"name": "DLROVER_NODE_NAME", "valueFrom": _field("spec.nodeName")},
        {"name": "DLROVER_SUBMITTED_RUN_ID", "value": _literal(run.run_id)},
        {"name": "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "value": LINE_PREFIX},
    ]


def _state_variable() -> Json:
    return {"name": "XDG_STATE_HOME", "value": _STATE}


def _field(path: str) -> Json:
    return {"fieldRef": {"fieldPath": path}}


def _literal(text: str) -> str:
    """Kubernetes puts a variable's value for $(NAME) in commands and variables; `$$` keeps it."""
    return text.replace("$(", "$$(")


def _apart(run: Run) -> Json:
    """Rather on machines of their own: what takes one away should not take two nodes.

    And never on one that was barred.
    """

    def beside(role: str) -> Json:
        labels = {RUN_LABEL: run_slug(run.run_id), ROLE_LABEL: role}
        selector = {"matchLabels": labels}
        return {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}

    return {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [beside(BAR)],
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "podAffinityTerm": beside(NODE)}
            ],
        }
    }
