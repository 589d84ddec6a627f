"""The API server of Kubernetes, as few calls: each within a deadline, each failure a sentence.

Objects are plain data, as in a manifest; the server is asked to refuse fields that it does not
know. The library's own models would be more code, and would hide what Volcano adds.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from dlrover_cli.platforms.kubernetes.faults import (
    KubernetesError,
    gave_no_answer,
    refused,
    unreachable,
)

Json = dict[str, Any]
_T = TypeVar("_T")

DEADLINE = 15.0
_SILENCE = 60.0
"""Seconds without a line after which a stream of logs is asked for anew."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects, and where the server keeps them."""

    name: str
    api_version: str
    plural: str

    def path(self, namespace: str, *below: str) -> str:
        root = "/api/" if "/" not in self.api_version else "/apis/"
        parts = ("namespaces", namespace, self.plural, *below)
        return root + self.api_version + "".join(f"/{quote(part, safe='')}" for part in parts)


JOB = Kind("Job", "batch/v1", "jobs")
CRON_JOB = Kind("CronJob", "batch/v1", "cronjobs")
VOLCANO_JOB = Kind("Job", "batch.volcano.sh/v1alpha1", "jobs")
DEPLOYMENT = Kind("Deployment", "apps/v1", "deployments")
POD = Kind("Pod", "v1", "pods")
SERVICE = Kind("Service", "v1", "services")
_KINDS = {
    (each.api_version, each.name): each
    for each in (JOB, CRON_JOB, VOLCANO_JOB, DEPLOYMENT, POD, SERVICE)
}


def kind_of(manifest: Mapping[str, Any]) -> Kind:
    """Of an object that `manifests` makes."""
    return _KINDS[manifest["apiVersion"], manifest["kind"]]


class Client:
    """Calls for one cluster. Safe to be used by several threads. All raise KubernetesError."""

    def __init__(self, api: Any, *, deadline: float = DEADLINE) -> None:
        """``api`` is the library's ApiClient."""
        self._api = api
        self._deadline = deadline

    @property
    def api(self) -> Any:
        """The library's own client, for what is not about one object."""
        return self._api

    @property
    def host(self) -> str:
        return str(self._api.configuration.host)

    def create(self, manifest: Mapping[str, Any]) -> Json:
        """Make an object; the answer is it, as the server keeps it."""
        kind, namespace = kind_of(manifest), manifest["metadata"]["namespace"]
        query = {"fieldValidation": "Strict", "fieldManager": "dlrover-run"}
        return self._json("POST", "create", kind, namespace, query=query, body=manifest)

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """An object; None if there is none."""
        return self._found("GET", "get", kind, namespace, name)

    def list(self, kind: Kind, namespace: str, selector: str) -> list[Json]:
        """All objects with these labels."""
        query = {"labelSelector": selector}
        answer = self._json("GET", "list", kind, namespace, query=query)
        return [each for each in answer.get("items") or [] if isinstance(each, dict)]

    def delete(self, kind: Kind, namespace: str, name: str, *, grace: float | None = None) -> bool:
        """Have an object go, and what it owns; False if there is none."""
        body: Json = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if grace is not None:
            body["gracePeriodSeconds"] = max(0, round(grace))
        return self._found("DELETE", "delete", kind, namespace, name, body=body) is not None

    def evict(self, namespace: str, pod: str) -> bool:
        """Take a pod from its node, at no cost for its job; False if there is none.

        A budget for disruptions may forbid it, which is a failure like others.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        answer = self._found("POST", "evict", POD, namespace, pod, "eviction", body=body)
        return answer is not None

    def logs(self, namespace: str, pod: str, container: str, since: str | None) -> "LogStream":
        """What a container prints from now on, with its times, or after ``since``."""
        query = {"follow": "true", "timestamps": "true", "container": container}
        if since is not None:
            query["sinceTime"] = since
        timeout = (self._deadline, _SILENCE)
        path = POD.path(namespace, pod, "log")
        response = self._within(lambda: self._send("GET", path, query, None, timeout))
        if response.status >= 300:
            body = self._within(response.read)
            raise refused("read the logs of", POD, namespace, pod, response.status, body)
        return LogStream(response.response)

    def _found(
        self,
        method: str,
        verb: str,
        kind: Kind,
        namespace: str,
        *below: str,
        body: Json | None = None,
    ) -> Json | None:
        """The answer; None if what it is about is not there."""
        try:
            return self._json(method, verb, kind, namespace, *below, body=body)
        except KubernetesError as error:
            if error.status == 404:
                return None
            raise

    def _json(
        self,
        method: str,
        verb: str,
        kind: Kind,
        namespace: str,
        *below: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Json:
        def call() -> tuple[int, bytes]:
            path = kind.path(namespace, *below)
            response = self._send(method, path, query or {}, body, self._deadline)
            return response.status, response.read()

        status, text = self._within(call)
        name = below[0] if below else str((body or {}).get("metadata", {}).get("name", ""))
        if status >= 300:
            raise refused(verb, kind, namespace, name, status, text)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise refused(verb, kind, namespace, name, status, text)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        timeout: float | tuple[float, float],
    ) -> Any:
        headers = {"Accept": "application/json, */*", "Content-Type": "application/json"}
        request = self._api.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            body=None if body is None else dict(body),
            auth_settings=["BearerToken"],
        )
        return self._api.call_api(*request, _request_timeout=timeout)

    def _within(self, call: Callable[[], _T]) -> _T:
        """The library bounds each wait for a byte, and a server may send one at a time."""
        attempt = _Attempt(call)
        thread = threading.Thread(target=attempt.run, name="kubernetes-call", daemon=True)
        thread.start()
        thread.join(self._deadline)
        if thread.is_alive():
            raise gave_no_answer(self.host, self._deadline)
        if attempt.error is not None:
            raise unreachable(self.host, self._deadline, attempt.error) from attempt.error
        return attempt.values[0]  # type: ignore[no-any-return]


class LogStream:
    """Lines of a container's output, until it ends or somebody closes this."""

    def __init__(self, response: Any) -> None:
        """``response`` is urllib3's."""
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        """Raises OSError or urllib3's HTTPError when the connection breaks."""
        unfinished = b""
        for chunk in self._response.stream():
            *lines, unfinished = (unfinished + chunk).split(b"\n")
            yield from lines
        if unfinished:
            yield unfinished

    def close(self) -> None:
        """From any thread; whoever waits for a line is let go."""
        with suppress(Exception):  # it may have been closed by its other end
            self._response.shutdown()
        with suppress(Exception):
            self._response.release_conn()


class _Attempt:
    """One call in a thread of its own, and what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self.values: list[Any] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.values.append(self._call())
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            self.error = error
