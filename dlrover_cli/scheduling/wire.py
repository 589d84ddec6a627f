"""A session's values as the bodies that an extender gets.

Between two questions of a session hardly anything changes, and a question may be about a thousand
nodes: what was written once for a value is kept and put together again.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from dlrover_cli.contracts.extender_objects import (
    GoResources,
    Job,
    Node,
    Queue,
    Task,
    Wire,
    quantities,
    whole,
)
from dlrover_cli.scheduling.model import (
    JobView,
    NodeView,
    QueueView,
    Resources,
    SessionView,
    TaskStatus,
    TaskView,
    add,
)

_View = TypeVar("_View")
_MOST_KEPT = 20_000
"""Texts, each of about a kilobyte; beyond that all are forgotten and written again."""


class Writer:
    """Writes bodies; may be used by several threads."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, bytes]] = {}
        """By the identity of a value, which is held so that the identity stays its own."""

    def session_open(self, view: SessionView) -> bytes:
        return _object(
            session=_text(view.uid),
            Jobs=_table((job.uid, self._job(job)) for job in view.jobs),
            Nodes=_table((node.name, self._node(node)) for node in view.nodes),
            Queues=_table((queue.name, _written(_queue(queue))) for queue in view.queues),
            NamespaceInfo=b"{}",
            RevocableNodes=b"{}",
            NodeList=_list(_text(node.name) for node in view.nodes),
        )

    def session_close(self, view: SessionView) -> bytes:
        return _object(session=_text(view.uid))

    def job(self, job: JobView) -> bytes:
        return _object(job=self._job(job))

    def queue(self, queue: QueueView) -> bytes:
        return _object(queue=_written(_queue(queue)))

    def predicate(self, task: TaskView, node: NodeView) -> bytes:
        return _object(task=self._task(task), node=self._node(node))

    def prioritize(self, task: TaskView, nodes: Iterable[NodeView]) -> bytes:
        return _object(task=self._task(task), nodes=_list(map(self._node, nodes)))

    def victims(self, evictor: TaskView, evictees: Iterable[TaskView]) -> bytes:
        return _object(evictor=self._task(evictor), evictees=_list(map(self._task, evictees)))

    def event(self, task: TaskView, event_id: str) -> bytes:
        return _object(task=self._task(task), eventId=_text(event_id))

    def forget(self) -> None:
        """Before a new session, whose values are others."""
        self._kept.clear()

    def _task(self, task: TaskView) -> bytes:
        return self._keep(task, _task)

    def _node(self, node: NodeView) -> bytes:
        return self._keep(node, _node)

    def _job(self, job: JobView) -> bytes:
        return self._keep(job, _job)

    def _keep(self, view: _View, model: Callable[[_View], Wire]) -> bytes:
        kept = self._kept.get(id(view))
        if kept is not None:
            return kept[1]
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        text = _written(model(view))
        self._kept[id(view)] = (view, text)
        return text


def _task(task: TaskView) -> Task:
    wanted = GoResources.of(task.resources)
    return Task(
        namespace=task.namespace,
        name=task.name,
        resources={name: whole(amount) for name, amount in task.resources.items()},
        UID=task.uid,
        Job=task.job,
        TaskRole="agent",
        Resreq=wanted,
        InitResreq=wanted,
        Priority=task.priority,
        BestEffort=not task.resources,
        NodeName=task.node or "",
        Status=_STATUS[task.status],
        Pod=_pod(task),
    )


def _pod(task: TaskView) -> dict[str, Any]:
    requests = quantities(task.resources)
    container = {"name": "agent", "resources": {"requests": requests, "limits": requests}}
    spec: dict[str, Any] = {"containers": [container], "priority": task.priority}
    if task.node is not None:
        spec["nodeName"] = task.node
    identity = {"namespace": task.namespace, "name": task.name, "uid": task.uid}
    return {"metadata": identity, "spec": spec}


def _node(node: NodeView) -> Node:
    total = GoResources.of(node.allocatable)
    amounts = quantities(node.allocatable)
    return Node(
        name=node.name,
        allocatable={name: whole(amount) for name, amount in node.allocatable.items()},
        Node={
            "metadata": {"name": node.name, "labels": dict(node.labels)},
            "status": {"allocatable": amounts, "capacity": amounts},
        },
        Allocatable=total,
        Capacity=total,
        Idle=GoResources.of(node.idle),
        Used=GoResources.of(node.used),
    )


def _job(job: JobView) -> Job:
    return Job(
        namespace=job.namespace,
        name=job.name,
        UID=job.uid,
        Queue=job.queue,
        Priority=job.priority,
        MinAvailable=job.min_available,
        Tasks={task.uid: _task(task) for task in job.tasks},
        Allocated=_sum(job.placed),
        TotalRequest=_sum(job.tasks),
    )


def _sum(tasks: Iterable[TaskView]) -> GoResources:
    wanted: list[Resources] = [task.resources for task in tasks]
    return GoResources.of(add(*wanted))


def _queue(queue: QueueView) -> Queue:
    return Queue(
        name=queue.name,
        UID=queue.name,
        Weight=queue.weight,
        Capability=quantities(queue.capacity),
        Allocated=quantities(queue.allocated),
        ReclaimableFlag=queue.reclaimable,
    )


def _written(model: Wire) -> bytes:
    return model.model_dump_json(by_alias=True).encode()


def _text(text: str) -> bytes:
    return json.dumps(text).encode("ascii")


def _list(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def _table(items: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(_text(key) + b":" + value for key, value in items) + b"}"


def _object(**members: bytes) -> bytes:
    return _table(members.items())


_STATUS: Mapping[TaskStatus, int] = {
    TaskStatus.PENDING: 1,
    TaskStatus.ALLOCATED: 2,
    TaskStatus.RUNNING: 32,
    TaskStatus.RELEASING: 64,
}
