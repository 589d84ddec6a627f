"""An API server on loopback that keeps objects in memory and believes nothing.

Every request must come with the token, on a path and with parameters that Kubernetes has; every
body is held against Kubernetes' own schemas. Tests may have it fail, be slow, or drip.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.engines.kubernetes.controllers import (
    Controllers,
    new_pods,
    now,
    set_ended,
    set_running,
)
from tests.engines.kubernetes.schemas import complaints

Json = dict[str, Any]
TOKEN = "a-token-of-the-tests"
NAMESPACES = ("default", "team")
_PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[a-z0-9./]+))/namespaces/(?P<ns>[^/]+)"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>log|eviction))?)?"
)
_PLURALS = {
    ("v1", "pods"): "Pod",
    ("v1", "services"): "Service",
    ("batch/v1", "jobs"): "Job",
    ("batch/v1", "cronjobs"): "CronJob",
    ("apps/v1", "deployments"): "Deployment",
    ("batch.volcano.sh/v1alpha1", "jobs"): "Job",
}
_PARAMETERS = {
    "POST": {"fieldValidation", "fieldManager"},
    "GET": {"labelSelector", "follow", "timestamps", "container", "sinceTime"},
    "DELETE": set[str](),
}
Behaviour = Callable[["ApiServer", Json], None]


@dataclass(frozen=True, slots=True)
class Call:
    """One request, for assertions."""

    method: str
    path: str
    body: Json | None


@dataclass(slots=True)
class Trouble:
    """What is to happen to requests instead of an answer."""

    method: str
    path: str
    status: int = 0
    message: str = ""
    times: int = 1
    delay: float = 0.0
    drips: bool = False


@dataclass
class ApiServer:
    """Objects by (api version, plural, namespace, name), and what was asked."""

    objects: dict[tuple[str, str, str, str], Json] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    behaviour: Behaviour | None = None
    """What becomes of each node's pod as soon as it is made."""
    runs_stores: bool = False
    """Whether those of stores behave, too."""
    on_removed: Callable[[Json], None] | None = None
    """Called with a pod that is deleted while it may run."""
    keeps_terminating: bool = False
    """Pods that are deleted stay, as those of a node that does not answer."""
    lacks: tuple[str, ...] = ()
    """API versions that this cluster does not have."""
    lines: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    url: str = ""

    def __post_init__(self) -> None:
        self.controllers = Controllers(self._add, self._remove)
        self._serial = 0

    # What tests do

    def kubeconfig(self, path: Path, token: str = TOKEN) -> Path:
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "contexts": [{"name": "tests", "context": {"cluster": "c", "user": "u"}}],
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": {"token": token}}],
                }
            )
        )
        return path

    def of_kind(self, plural: str, version: str | None = None) -> list[Json]:
        with self.changed:
            return [
                each
                for key, each in self.objects.items()
                if key[1] == plural and version in (None, key[0])
            ]

    def nodes(self) -> list[Json]:
        """The pods of nodes, in the order of their making."""
        return [
            pod
            for pod in self.of_kind("pods")
            if pod["metadata"]["labels"].get("dlrover.io/role") == "node"
        ]

    def run(self, pod: Json, node: str = "machine-1") -> None:
        with self.changed:
            set_running(pod, node)
            self.changed.notify_all()

    def print(self, pod: Json, *lines: str) -> None:
        with self.changed:
            self.lines.setdefault(pod["metadata"]["name"], []).extend((now(), x) for x in lines)
            self.changed.notify_all()

    def end(self, pod: Json, code: int, message: str = "", *, disrupted: bool = False) -> None:
        """A container ends; the controllers react."""
        with self.changed:
            set_ended(pod, code, message, disrupted=disrupted)
            metadata = pod["metadata"]
            key = ("v1", "pods", metadata["namespace"], metadata["name"])
            owner = self._owner(pod) if self.objects.get(key) is pod else None
            if owner is not None:
                siblings = [each for each in self.nodes() if self._owner(each) is owner]
                self.controllers.judge(owner, pod, siblings)
            self.changed.notify_all()

    # What requests do

    def create(self, version: str, plural: str, namespace: str, body: Json) -> tuple[int, Json]:
        wrong = complaints(body)
        if wrong:
            self.faults.append(f"{body.get('kind')}: {wrong}")
            return 422, _status(422, "Invalid", "; ".join(wrong))
        name = body["metadata"]["name"]
        key = (version, plural, namespace, name)
        with self.changed:
            if namespace not in NAMESPACES:
                details = {"name": namespace, "kind": "namespaces"}
                return 404, _status(404, "NotFound", "namespaces not found", details)
            if key in self.objects:
                details = {"name": name, "kind": plural}
                return 409, _status(409, "AlreadyExists", f"{plural} already exists", details)
            body = json.loads(json.dumps(body))
            body["metadata"] |= {"uid": self._uid(), "creationTimestamp": now()}
            body["status"] = {"phase": "Pending"} if plural == "pods" else {}
            self.objects[key] = body
            if plural == "jobs":
                for pod in new_pods(body):
                    self._add(pod)
            elif plural == "pods":
                self._behave(body)
            self.changed.notify_all()
        return 201, body

    def delete(self, key: tuple[str, str, str, str]) -> tuple[int, Json]:
        with self.changed:
            found = self.objects.get(key)
            if found is None:
                return _not_found(key)
            if key[1] == "pods":
                self._terminate(found)
                return 200, found
            del self.objects[key]
            uid = found["metadata"]["uid"]
            for other, each in list(self.objects.items()):  # garbage collection
                owners = each["metadata"].get("ownerReferences", [])
                if any(owner["uid"] == uid for owner in owners):
                    self.delete(other)
            if key[1] == "jobs":
                for pod in self.of_kind("pods"):
                    labels = pod["metadata"]["labels"]
                    if labels.get("batch.kubernetes.io/job-name") == key[3]:
                        self._terminate(pod)
            self.changed.notify_all()
        return 200, _status(200, "", "")

    def evict(self, namespace: str, name: str) -> tuple[int, Json]:
        with self.changed:
            key = ("v1", "pods", namespace, name)
            if key not in self.objects:
                return _not_found(key)
            self.end(self.objects[key], 143, disrupted=True)
        return 201, _status(201, "", "")

    def selected(self, version: str, plural: str, namespace: str, selector: str) -> list[Json]:
        wanted = [tuple(part.split("=")) for part in selector.split(",")]
        with self.changed:
            return [
                json.loads(json.dumps(each))
                for key, each in self.objects.items()
                if key[:3] == (version, plural, namespace)
                and all(each["metadata"]["labels"].get(k) == v for k, v in wanted)
            ]

    def stream(self, name: str, since: str | None) -> Iterator[str]:
        """The lines of a pod as they come, until it has ended."""
        done = 0
        while True:
            with self.changed:
                lines = self.lines.get(name, [])[done:]
                pods = [pod for pod in self.of_kind("pods") if pod["metadata"]["name"] == name]
                is_over = not pods or pods[0]["status"]["phase"] in ("Succeeded", "Failed")
                if not lines and not is_over:
                    self.changed.wait(0.2)
                    continue
            done += len(lines)
            for moment, line in lines:
                if since is None or moment >= since:
                    yield f"{moment} {line}\n"
            if is_over and not lines:
                return

    def _uid(self) -> str:
        self._serial += 1
        return f"uid-of-server-{self._serial}"

    def _owner(self, pod: Json) -> Json | None:
        job = pod["metadata"]["labels"].get("batch.kubernetes.io/job-name")
        for key, each in self.objects.items():
            if key[1] == "jobs" and key[3] == job:
                return each
        return None

    def _add(self, pod: Json) -> None:
        metadata = pod["metadata"]
        self.objects["v1", "pods", metadata["namespace"], metadata["name"]] = pod
        self._behave(pod)

    def _behave(self, pod: Json) -> None:
        role = pod["metadata"]["labels"]["dlrover.io/role"]
        if self.behaviour is None or role == "bar":  # which does nothing but be there
            return
        if role == "node" or self.runs_stores:
            threading.Thread(target=self.behaviour, args=(self, pod), daemon=True).start()

    def _remove(self, pod: Json) -> None:
        metadata = pod["metadata"]
        self.objects.pop(("v1", "pods", metadata["namespace"], metadata["name"]), None)
        if self.on_removed is not None:
            self.on_removed(pod)

    def _terminate(self, pod: Json) -> None:
        if self.keeps_terminating:
            pod["metadata"].setdefault("deletionTimestamp", now())
        else:
            self._remove(pod)


def _not_found(key: tuple[str, str, str, str]) -> tuple[int, Json]:
    details = {"name": key[3], "kind": key[1]}
    return 404, _status(404, "NotFound", f'{key[1]} "{key[3]}" not found', details)


def _status(code: int, reason: str, message: str, details: Json | None = None) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": "Success" if code < 300 else "Failure",
        "reason": reason,
        "message": message,
        "details": details or {},
        "code": code,
    }


@contextmanager
def serving() -> Iterator[ApiServer]:
    """An API server that listens on a free port of loopback, until the block ends."""
    api = ApiServer()

    class Handler(_Handler):
        server_state = api

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        api.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.05,), name="api-server")
        thread.start()
        try:
            yield api
        finally:
            http.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server_state: ApiServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""

    def _serve(self, method: str) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            parts = urlsplit(self.path)
            body = json.loads(text) if text else None
            self.server_state.calls.append(Call(method, parts.path, body))
            if self._has_trouble(method, parts.path):
                return
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._answer(401, _status(401, "Unauthorized", "Unauthorized"))
                return
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            self._dispatch(method, unquote(parts.path), query, body)

    def _has_trouble(self, method: str, path: str) -> bool:
        for trouble in self.server_state.troubles:
            if trouble.times <= 0 or trouble.method != method:
                continue
            if not re.search(trouble.path, path):
                continue
            trouble.times -= 1
            time.sleep(trouble.delay)
            if trouble.drips:
                self._drip()
            elif trouble.status == 0 and not trouble.delay:
                self.close_connection = True
            elif trouble.status:
                self._answer(trouble.status, _status(trouble.status, "Trouble", trouble.message))
            else:
                return False
            return True
        return False

    def _dispatch(self, method: str, path: str, query: dict[str, str], body: Json | None) -> None:
        api = self.server_state
        match = _PATH.fullmatch(path)
        version = (match["core"] or match["group"]) if match else ""
        if match is None or (version, match["plural"]) not in _PLURALS or version in api.lacks:
            api.faults += [] if version in api.lacks else [f"no such path: {path}"]
            message = "the server could not find the requested resource"
            self._answer(404, _status(404, "NotFound", message))
            return
        unknown = set(query) - _PARAMETERS[method]
        if unknown:
            api.faults.append(f"{method} {path} has no parameters {unknown}")
        plural, namespace, name = match["plural"], match["ns"], match["name"]
        key = (version, plural, namespace, name or "")
        match method, match["sub"]:
            case "POST", "eviction":
                self._check(body, "eviction-policy-v1")
                self._answer(*api.evict(namespace, name))
            case "POST", None:
                assert body is not None
                if body["metadata"]["namespace"] != namespace:
                    api.faults.append("another namespace in the body than in the path")
                self._answer(*api.create(version, plural, namespace, body))
            case "DELETE", None:
                self._check(body, "deleteoptions-meta-v1")
                self._answer(*api.delete(key))
            case "GET", "log":
                self._stream(name, query)
            case "GET", None if name:
                found = api.objects.get(key)
                self._answer(*((200, found) if found is not None else _not_found(key)))
            case "GET", None:
                items = api.selected(version, plural, namespace, query["labelSelector"])
                listed = {"apiVersion": version, "kind": f"{_PLURALS[version, plural]}List"}
                self._answer(200, {**listed, "metadata": {}, "items": items})

    def _check(self, body: Json | None, schema: str) -> None:
        wrong = complaints(body or {}, schema)
        if wrong:
            self.server_state.faults.append(f"{schema}: {wrong}")

    def _answer(self, status: int, document: Json) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _drip(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        for _ in range(200):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.1)

    def _stream(self, name: str, query: dict[str, str]) -> None:
        if query.get("container") != "dlrover-run" or query.get("follow") != "true":
            self.server_state.faults.append(f"logs of what? {query}")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in self.server_state.stream(name, query.get("sinceTime")):
            data = line.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
