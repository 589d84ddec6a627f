"""What Kubernetes and Volcano accept: Kubernetes' own schemas, and Volcano's as it documents it."""

from functools import cache
from typing import Any

import jsonschema
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

RELEASE = "1.37.0"
OLDEST = "1.31.0"
"""The earliest one with all that the objects need."""

_EVENTS = [
    *("*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted"),
    *("OutOfSync", "CommandIssued", "JobUpdated", "TaskFailed"),
]
_ACTIONS = [
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "TerminateJob", "CompleteJob"),
    "ResumeJob",
]


def complaints(
    document: dict[str, Any], schema: str | None = None, release: str = RELEASE
) -> list[str]:
    """What is wrong with an object, or with a request such as DeleteOptions."""
    if document.get("apiVersion") == "batch.volcano.sh/v1alpha1":
        return _volcano_complaints(document, release)
    name = schema or _schema_of(document)
    return _errors(_validator(name, release), document)


def _schema_of(document: dict[str, Any]) -> str:
    group, _, version = str(document.get("apiVersion")).rpartition("/")
    parts = [str(document.get("kind")).lower(), group.partition(".")[0], version]
    return "-".join(filter(None, parts))


@cache
def _validator(name: str, release: str) -> Any:
    folder = f"kubernetes-json-schema/v{release}-local-strict"
    schema = schema_contents(f"{folder}/{name}.json", release)
    definitions = schema_contents(f"{folder}/_definitions.json", release)
    registry: Registry[Any] = Resource.from_contents(definitions) @ Registry()
    return jsonschema.Draft202012Validator(schema, registry=registry)


def _errors(validator: Any, document: object) -> list[str]:
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"[:300]
        for error in validator.iter_errors(document)
    ]


def _volcano_complaints(document: dict[str, Any], release: str) -> list[str]:
    found = _errors(jsonschema.Draft202012Validator(VOLCANO_JOB), document)
    if found:
        return found
    for task in document["spec"]["tasks"]:
        pod = {"apiVersion": "v1", "kind": "Pod", **task["template"]}
        found += [f"task {task['name']}: {each}" for each in complaints(pod, release=release)]
        found += _policy_complaints(task.get("policies", []))
    return found + _policy_complaints(document["spec"].get("policies", []))


def _policy_complaints(policies: list[dict[str, Any]]) -> list[str]:
    """What Volcano's admission webhook says besides the schema."""
    events = [
        event
        for policy in policies
        for event in [*policy.get("events", []), *filter(None, [policy.get("event")])]
    ]
    codes = [policy["exitCode"] for policy in policies if "exitCode" in policy]
    found = []
    for policy in policies:
        if ("event" in policy or "events" in policy) == ("exitCode" in policy):
            found.append("a policy has either an event or an exit code")
    if len(set(events)) < len(events) or len(set(codes)) < len(codes):
        found.append("two policies for the same event or exit code")
    if 0 in codes:
        found.append("0 is no exit code of a failure")
    if "*" in events and len(events) > 1:
        found.append("no other event beside *")
    return found


_POLICY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action"],
    "properties": {
        "action": {"enum": _ACTIONS},
        "event": {"enum": _EVENTS},
        "events": {"type": "array", "items": {"enum": _EVENTS}},
        "exitCode": {"type": "integer"},
        "timeout": {"type": "string"},
    },
}
_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
VOLCANO_JOB = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "batch.volcano.sh/v1alpha1"},
        "kind": {"const": "Job"},
        "metadata": {"type": "object", "required": ["name", "namespace"]},
        "status": {"type": "object"},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["tasks"],
            "properties": {
                "schedulerName": {"type": "string", "maxLength": 63},
                "minAvailable": {"type": "integer", "minimum": 0},
                "minSuccess": {"type": "integer", "minimum": 1},
                "maxRetry": {"type": "integer", "minimum": 0},
                "queue": {"type": "string", "pattern": _NAME},
                "priorityClassName": {"type": "string", "pattern": _NAME},
                "ttlSecondsAfterFinished": {"type": "integer", "minimum": 0},
                "plugins": {
                    "type": "object",
                    "propertyNames": {"enum": ["env", "svc", "ssh", "pytorch", "tensorflow"]},
                    "additionalProperties": {"type": "array", "items": {"type": "string"}},
                },
                "policies": {"type": "array", "items": _POLICY},
                "tasks": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["name", "replicas", "template"],
                        "properties": {
                            "name": {"type": "string", "maxLength": 63, "pattern": _NAME},
                            "replicas": {"type": "integer", "minimum": 0},
                            "minAvailable": {"type": "integer", "minimum": 0},
                            "maxRetry": {"type": "integer", "minimum": 0},
                            "policies": {"type": "array", "items": _POLICY},
                            "dependsOn": {"type": "object"},
                            "template": {"type": "object", "required": ["spec"]},
                        },
                    },
                },
            },
        },
    },
}
"""Written from the documented fields of Volcano's resource; pods are checked on their own."""
