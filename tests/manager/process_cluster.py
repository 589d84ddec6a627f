"""A cluster whose nodes are names: agents are processes of this machine, and nodes can be lost."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from dlrover_cli.manager.cluster import AgentEnded, Node, NodesChanged, Post


class ProcessCluster:
    """Starts each agent in a session of its own."""

    def __init__(self, *names: str) -> None:
        self._nodes = {name: Node(name, name, "127.0.0.1") for name in names}
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        self._post: Post = lambda observation: None
        self._threads: list[threading.Thread] = []
        self.started: list[tuple[str, str]] = []

    def open(self, post: Post) -> None:
        self._post = post
        self._tell()

    def start(
        self, node: Node, agent: str, argv: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        process = subprocess.Popen(argv, env=dict(environ), start_new_session=True)
        self._running[agent] = (node.id, process)
        self.started.append((node.id, agent))
        thread = threading.Thread(target=self._wait, args=(agent, process), name=agent)
        self._threads.append(thread)
        thread.start()

    def stop(self, agent: str) -> None:
        self._signal(agent, signal.SIGTERM)

    def kill(self, agent: str) -> None:
        self._signal(agent, signal.SIGKILL)

    def close(self) -> None:
        for agent in list(self._running):
            self.kill(agent)
        for thread in self._threads:
            thread.join(10)

    def add_node(self, name: str) -> None:
        self._nodes[name] = Node(name, name, "127.0.0.1")
        self._tell()

    def lose_node(self, name: str) -> None:
        """Kill all agents there, and let the engine notice."""
        for agent, (node, _) in list(self._running.items()):
            if node == name:
                self.kill(agent)
        self.forget_node(name)

    def forget_node(self, name: str) -> None:
        """The engine says that the node is gone, while its agents live on."""
        self._nodes.pop(name, None)
        self._tell()

    def _tell(self) -> None:
        self._post(NodesChanged(tuple(self._nodes.values())))

    def _wait(self, agent: str, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        self._running.pop(agent, None)
        self._post(AgentEnded(agent, code))

    def _signal(self, agent: str, number: int) -> None:
        with suppress(KeyError, ProcessLookupError):
            os.kill(self._running[agent][1].pid, number)
