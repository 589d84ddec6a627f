"""This machine as a node: what it has for jobs."""

import os
import re
import socket
from pathlib import Path

from dlrover_cli.scheduling.model import NodeView, Resources


def this_node(used: Resources) -> NodeView:
    """The CPUs that this process may use, all memory, and the GPUs that have a device file."""
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    has = {"cpu": float(len(os.sched_getaffinity(0))), "memory": memory}
    gpus = len([name for name in _devices() if re.fullmatch(r"nvidia[0-9]+", name)])
    if gpus:
        has["nvidia.com/gpu"] = float(gpus)
    name = socket.gethostname()
    return NodeView(name, has, used, {"kubernetes.io/hostname": name})


def _devices() -> list[str]:
    try:
        return [path.name for path in Path("/dev").iterdir()]
    except OSError:
        return []
