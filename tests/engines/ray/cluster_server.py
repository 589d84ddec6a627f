"""A Ray cluster on loopback, steered by lines of JSON on stdin; answers are lines on stdout.

Runs as a process of its own in a network namespace, where Ray's sockets are nobody else's.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

STORE_BYTES = 80_000_000
COMMON: dict[str, Any] = {"node_ip_address": "127.0.0.1", "object_store_memory": STORE_BYTES}
# A lost node is known after two seconds; Ray's own defaults take up to half a minute.
HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


class Nodes:
    """The worker nodes by their ids; the head has no CPU and runs no agent."""

    def __init__(self) -> None:
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                **COMMON,
                "num_cpus": 0,
                "include_dashboard": True,
                "dashboard_host": "127.0.0.1",
                "_system_config": HEALTH_CHECKS,
            },
        )
        self._by_id: dict[str, Any] = {}

    def add(self, count: int = 1) -> list[str]:
        made = [self.cluster.add_node(num_cpus=1, wait=False, **COMMON) for _ in range(count)]
        self.cluster.wait_for_nodes()
        self._by_id |= {node.node_id: node for node in made}
        return list(self._by_id)

    def wait_for(self, resource: str) -> bool:
        """Until a node that somebody else has started is there, or for a minute."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for row in self.cluster.global_state.node_table():
                if row["Alive"] and resource in row["Resources"]:
                    return True
            time.sleep(0.1)
        return False

    def raylet(self, node: str) -> int:
        pid: int = self._by_id[node].all_processes["raylet"][0].process.pid
        return pid

    def lose(self, node: str) -> float:
        """As when the power goes: everything that runs there ends at once."""
        tree = _tree(self.raylet(node))
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in tree:
                _signal(pid, number)
        at = time.time()
        self.cluster.remove_node(self._by_id.pop(node), allow_graceful=False)
        return at

    def lose_raylet(self, node: str) -> float:
        """Ray's own process ends, and nothing else; its actors notice, and end too."""
        _signal(self.raylet(node), signal.SIGKILL)
        at = time.time()
        self.cluster.remove_node(self._by_id.pop(node), allow_graceful=False)
        return at

    def hang(self, node: str) -> float:
        """Ray's own process does nothing any more: the node is called dead, and nothing ends."""
        _signal(self.raylet(node), signal.SIGSTOP)
        return time.time()


def main() -> None:
    nodes = Nodes()
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever Ray has to say

    def answer(document: Any) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    answer({"address": nodes.cluster.address, "dashboard": nodes.cluster.webui_url})
    for line in sys.stdin:
        match json.loads(line):
            case {"op": "add", "count": count}:
                answer(nodes.add(count))
            case {"op": "lose", "node": node}:
                answer(nodes.lose(node))
            case {"op": "wait", "resource": resource}:
                answer(nodes.wait_for(resource))
            case {"op": "lose_raylet", "node": node}:
                answer(nodes.lose_raylet(node))
            case {"op": "hang", "node": node}:
                answer(nodes.hang(node))
            case {"op": "settle"}:
                nodes.cluster.wait_for_nodes()
                answer(True)
    nodes.cluster.shutdown()


def _tree(root: int) -> list[int]:
    """A process and all its descendants."""
    parents = {int(p.name): _parent(p) for p in Path("/proc").iterdir() if p.name.isdecimal()}
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    main()
