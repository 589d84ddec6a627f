"""How Ray is deployed, as far as its environment tells; for whoever replaces nodes."""

from collections.abc import Mapping

from dlrover_cli.contracts.manager import Deployment, EngineMode, Ground

_TELLING = (
    "KUBERNETES_SERVICE_HOST",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_CLOUD_INSTANCE_ID",
    "RAY_NODE_TYPE_NAME",
    "RAY_USAGE_STATS_EXTRA_TAGS",
)


def deployment_of(environ: Mapping[str, str], address: str, nodes: int) -> Deployment:
    """``address`` is that of the cluster; `local` if it was started for this job.

    KubeRay names its cluster, and the kind of object that the cluster belongs to, in the
    environment of the pods. Without any sign of Kubernetes the nodes are taken for machines.
    """
    facts = {key: environ[key] for key in _TELLING if environ.get(key)}
    is_in_kubernetes = {"KUBERNETES_SERVICE_HOST", "RAY_CLUSTER_NAME"} & facts.keys()
    ground = Ground.KUBERNETES if is_in_kubernetes else Ground.MACHINES
    return Deployment(
        "ray", ground, _mode(facts, address), {**facts, "address": address, "nodes": str(nodes)}
    )


def _mode(facts: Mapping[str, str], address: str) -> EngineMode:
    tags = facts.get("RAY_USAGE_STATS_EXTRA_TAGS", "")
    if address == "local" or "kuberay_crd=RayJob" in tags:
        return EngineMode.JOB
    if "kuberay_crd=" in tags or "RAY_CLUSTER_NAME" in facts:
        return EngineMode.CLUSTER
    return EngineMode.UNKNOWN
