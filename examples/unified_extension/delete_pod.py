"""Replace lost nodes of Ray on Kubernetes: delete their pods, and the operator makes new ones.

    export DLROVER_DELETE_PODS=1    # without it, the pods are only named
    export KUBERNETES_API=…         # default: the API server of the cluster that this runs in

The manager's own pod needs a service account that may delete pods. Where nodes are no pods, others
are asked.
"""

import asyncio
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from dlrover_cli.contracts.manager import Ground, ManagerExtension, NodeInfo

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS = 20.0


class DeletePod(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:
        deployment = self.manager.deployment
        if deployment.ground is not Ground.KUBERNETES:
            return await super().relaunch_nodes_impl(nodes)
        namespace = deployment.facts.get("RAY_CLUSTER_NAMESPACE") or _account(
            "namespace", "default"
        )
        # The client blocks: each call has a thread, so that nodes do not wait for each other.
        deleted = await asyncio.gather(
            *(asyncio.to_thread(_delete, namespace, str(node.hostname)) for node in nodes)
        )
        return [node for node, is_deleted in zip(nodes, deleted, strict=True) if is_deleted]


def _delete(namespace: str, pod: str) -> bool:
    """Whether a new pod will come. On Kubernetes a Ray node's hostname is the name of its pod."""
    api = os.environ.get("KUBERNETES_API", "https://kubernetes.default.svc")
    url = f"{api}/api/v1/namespaces/{namespace}/pods/{pod}?gracePeriodSeconds=0"
    if os.environ.get("DLROVER_DELETE_PODS") != "1":
        print(f"DLROVER_DELETE_PODS=1 would send DELETE {url}", flush=True)
        return False
    request = urllib.request.Request(url, method="DELETE")
    if token := _account("token"):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=_trusted(api)):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 404:  # it is gone already, and so is its successor on the way
            return True
        print(f"the pod {pod} cannot be deleted: {error}", flush=True)
        return False


def _trusted(api: str) -> ssl.SSLContext | None:
    if not api.startswith("https:"):
        return None
    authority = ACCOUNT / "ca.crt"
    return ssl.create_default_context(cafile=authority if authority.exists() else None)


def _account(name: str, default: str = "") -> str:
    file = ACCOUNT / name
    return file.read_text().strip() if file.exists() else default
