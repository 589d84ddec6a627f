"""What went wrong between us and the API server, in a sentence and a hint."""

import json
import re
from typing import TYPE_CHECKING, Any

from dlrover_cli.errors import LaunchError

if TYPE_CHECKING:
    from dlrover_cli.platforms.kubernetes.client import Kind

_LONGEST = 600


class KubernetesError(LaunchError):
    """The API server did not do what it was asked to."""

    def __init__(self, message: str, *, hint: str, status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        """Of HTTP; None if there was no answer."""

    @property
    def may_pass(self) -> bool:
        """Whether the same call may well succeed a little later."""
        return self.status is None or self.status == 429 or self.status >= 500


def gave_no_answer(host: str, seconds: float) -> KubernetesError:
    return KubernetesError(
        f"the API server at {host} gave no whole answer within {seconds:g} seconds",
        hint="try: kubectl get --raw /readyz",
    )


def unreachable(host: str, seconds: float, error: Exception) -> KubernetesError:
    """For what the library raises when there is no answer at all."""
    from urllib3.exceptions import NewConnectionError
    from urllib3.exceptions import TimeoutError as Timeout

    # urllib3 counts a connection that was refused among those that took too long.
    if isinstance(error, Timeout) and not isinstance(error, NewConnectionError):
        return gave_no_answer(host, seconds)
    return KubernetesError(
        f"the API server at {host} cannot be reached: {_words(error)}",
        hint="check which cluster is meant: kubectl cluster-info",
    )


def refused(
    verb: str, kind: "Kind", namespace: str, name: str, status: int, body: bytes
) -> KubernetesError:
    """For an answer that is none of those hoped for."""
    document = _status_document(body)
    said = _short(str(document.get("message") or body.decode(errors="replace") or "nothing"))
    what = f"the {kind.name} {name}" if name else f"{kind.plural}"
    resource = kind.plural if "." not in kind.api_version else f"{kind.plural}.{_group(kind)}"
    match status:
        case 401:
            message = f"the API server does not know who we are: {said}"
            hint = "log in to the cluster again; kubectl auth whoami shows who you are"
        case 403:
            message = f"you may not {verb} {what} in the namespace {namespace!r}: {said}"
            hint = f"ask for it: kubectl auth can-i {verb.split()[0]} {resource} -n {namespace}"
        case 404 if _is_about_namespace(document):
            message = f"there is no namespace {namespace!r}"
            hint = f"make it with: kubectl create namespace {namespace}; or use --k8s-namespace"
        case 404 if not document.get("details", {}).get("name"):
            message = f"the cluster has no {kind.name} of {kind.api_version}: {said}"
            hint = _install_hint(kind)
        case 404:
            message = f"there is no {kind.name} {name} in the namespace {namespace!r}"
            hint = f"see what there is: kubectl get {resource} -n {namespace}"
        case 409:
            message = f"{what} is there already in the namespace {namespace!r}: {said}"
            hint = f"look at it: kubectl describe {resource} {name} -n {namespace}"
        case 400 | 422:
            message = f"Kubernetes refuses {what}: {said}"
            hint = "see the objects with --dry-run; the cluster may be older than Kubernetes 1.31"
        case 429:
            message = f"Kubernetes does not {verb} {what} now: {said}"
            hint = "too many requests, or a PodDisruptionBudget; try again later"
        case _ if status >= 500:
            message = f"the API server failed to {verb} {what}, with HTTP {status}: {said}"
            hint = "the cluster has a problem of its own; try: kubectl get --raw /readyz"
        case _:
            message = f"nobody understands the answer to {verb} {what}, HTTP {status}: {said}"
            hint = "is it an API server? kubectl cluster-info"
    return KubernetesError(message, hint=hint, status=status)


def _status_document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    if not isinstance(document, dict):
        return {}
    if not isinstance(document.get("details"), dict):
        document["details"] = {}
    return document


def _is_about_namespace(document: dict[str, Any]) -> bool:
    return bool(document.get("details", {}).get("kind") == "namespaces")


def _group(kind: "Kind") -> str:
    return kind.api_version.partition("/")[0]


def _install_hint(kind: "Kind") -> str:
    if "volcano" in kind.api_version:
        return "install Volcano in the cluster, or leave out --k8s-kind=volcano"
    return "is it a cluster of Kubernetes 1.31 or later? kubectl version"


def _words(error: Exception) -> str:
    reason = str(getattr(error, "reason", None) or error).partition("\n")[0]
    return _short(re.sub(r".*\[Errno -?[0-9]+\] ", "", reason)) or type(error).__name__


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
