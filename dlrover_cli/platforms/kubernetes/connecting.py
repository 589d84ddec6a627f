"""Which cluster is meant: as kubectl finds it, or the one whose pod this process runs in."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dlrover_cli.errors import UsageError
from dlrover_cli.platforms.kubernetes.client import DEADLINE, Client

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_CONNECTIONS = 1024
"""Each stream of logs has one; beyond that the library complains on stderr."""


def connect(environ: Mapping[str, str], *, deadline: float = DEADLINE) -> Client:
    """A client for the cluster at hand; nothing is sent yet. Raises UsageError."""
    try:
        client: Any = import_module("kubernetes.client")
        config: Any = import_module("kubernetes.config")
    except ImportError as error:
        raise UsageError(
            f"--platform=kubernetes needs the client library of Kubernetes: {error}",
            hint="install it: pip install 'dlrover-cli[k8s]'",
        ) from error
    configuration = client.Configuration()
    _load(config, configuration, environ)
    configuration.retries = False
    configuration.connection_pool_maxsize = _CONNECTIONS
    return Client(client.ApiClient(configuration), deadline=deadline)


def _load(config: Any, configuration: Any, environ: Mapping[str, str]) -> None:
    named = environ.get("KUBECONFIG", "")
    usual = Path.home() / ".kube" / "config"
    try:
        if named or usual.exists():
            config.load_kube_config(
                config_file=named or str(usual), client_configuration=configuration
            )
        elif environ.get(_IN_CLUSTER):
            config.load_incluster_config(client_configuration=configuration)
        else:
            raise UsageError(
                f"no cluster of Kubernetes is configured: KUBECONFIG is not set, and there is "
                f"neither {usual} nor a service account of a pod",
                hint="set KUBECONFIG to a file that works with kubectl",
            )
    except UsageError:
        raise
    except Exception as error:  # the boundary to the library, which lets YAML's and others through
        where = named or (str(usual) if usual.exists() else "the pod's service account")
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UsageError(
            f"the configuration of Kubernetes in {where} cannot be used: {reason}",
            hint="check it with: kubectl config view",
        ) from error
