"""A small session, of which every verb's body is made."""

from dlrover_cli.scheduling.model import (
    JobView,
    NodeView,
    QueueView,
    SessionView,
    TaskStatus,
    TaskView,
)

GIB = 2.0**30
WANTED = {"cpu": 2.0, "memory": 4 * GIB, "nvidia.com/gpu": 1.0}
TASK = TaskView("default", "train-0", "run-1/0", "run-1", WANTED, priority=5)
PLACED = TaskView(
    "default", "train-0", "run-1/0", "run-1", WANTED, "node-1", TaskStatus.ALLOCATED, 5
)
RUNNING = tuple(
    TaskView(
        "default",
        f"batch-{n}",
        f"run-0/{n}",
        "run-0",
        {"cpu": 0.5},
        "node-2",
        TaskStatus.RUNNING,
    )
    for n in range(2)
)
JOB = JobView("run-1", "train", "default", "research", 5, 1, (TASK,))
NODES = (
    NodeView(
        "node-1",
        {"cpu": 8.0, "memory": 16 * GIB, "nvidia.com/gpu": 8.0},
        {"nvidia.com/gpu": 3.0},
        {"zone": "a"},
    ),
    NodeView("node-2", {"cpu": 8.0, "memory": 16 * GIB}, {"cpu": 1.0}),
)
QUEUE = QueueView("research", 2, {"agents": 4.0, "nvidia.com/gpu": 8.0}, False, {"agents": 1.0})
SESSION = SessionView("session-1", (JOB,), NODES, (QUEUE,))
