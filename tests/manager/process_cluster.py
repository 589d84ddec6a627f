"""A cluster whose nodes are names: agents are processes of this machine, and nodes can be lost."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dlrover_cli.manager.cluster import AgentEnded, Node, NodesChanged, Post


class AgentProcess(Protocol):
    """The process of an agent, however it was started."""

    @property
    def pid(self) -> int: ...
    def wait(self) -> int: ...


Spawn = Callable[[Sequence[str], Mapping[str, str]], AgentProcess]


def execute(argv: Sequence[str], environ: Mapping[str, str]) -> AgentProcess:
    """Start an agent in a session of its own. Raises OSError."""
    return subprocess.Popen(argv, env=dict(environ), start_new_session=True)


class ProcessCluster:
    """Posts what happens to its make-believe nodes. One process tree per agent."""

    def __init__(self, *names: str, spawn: Spawn = execute) -> None:
        self._nodes = {name: _node(name) for name in names}
        self._spawn = spawn
        self._running: dict[str, tuple[str, int]] = {}
        self._post: Post = lambda observation: None
        self._threads: list[threading.Thread] = []

    def open(self, post: Post) -> None:
        self._post = post
        self._tell()

    def start(
        self, node: Node, agent: str, argv: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        try:
            process = self._spawn(argv, environ)
        except OSError:
            self._post(AgentEnded(agent, 127))
            return
        self._running[agent] = (node.id, process.pid)
        thread = threading.Thread(target=self._wait, args=(agent, process), name=agent)
        self._threads.append(thread)
        thread.start()

    def stop(self, agent: str) -> None:
        with suppress(KeyError, ProcessLookupError):
            os.kill(self._running[agent][1], signal.SIGTERM)

    def kill(self, agent: str) -> None:
        with suppress(KeyError):
            end_tree(freeze_tree(self._running[agent][1]))

    def close(self) -> None:
        for agent in list(self._running):
            self.kill(agent)
        for thread in self._threads:
            thread.join(10)

    # ---- what happens to nodes -----------------------------------------------------------------

    def add_node(self, name: str) -> None:
        self._nodes[name] = _node(name)
        self._tell()

    def lose_node(self, name: str) -> None:
        """The engine notices that the node is gone, with all that runs there."""
        trees = [freeze_tree(self._running[agent][1]) for agent in self._agents_on(name)]
        self.forget_node(name)
        for tree in trees:
            end_tree(tree)

    def crash_node(self, name: str) -> None:
        """All that runs there ends at once, and the engine has not noticed yet."""
        for agent in self._agents_on(name):
            self.kill(agent)

    def forget_node(self, name: str) -> None:
        """The engine says that the node is gone, while its agents live on."""
        self._nodes.pop(name, None)
        self._tell()

    def kill_agent(self, name: str) -> None:
        """Only the agent's own process; its node is well."""
        self._signal_agents(name, signal.SIGKILL)

    def freeze_agent(self, name: str) -> None:
        """Only the agent's own process; its workers go on."""
        self._signal_agents(name, signal.SIGSTOP)

    def _signal_agents(self, name: str, number: int) -> None:
        for agent in self._agents_on(name):
            os.kill(self._running[agent][1], number)

    def _agents_on(self, name: str) -> list[str]:
        return [agent for agent, (node, _) in list(self._running.items()) if node == name]

    def _tell(self) -> None:
        self._post(NodesChanged(tuple(self._nodes.values())))

    def _wait(self, agent: str, process: AgentProcess) -> None:
        code = process.wait()
        self._running.pop(agent, None)
        self._post(AgentEnded(agent, code))


def freeze_tree(pid: int) -> list[int]:
    """Stop a process and all below it, so that nobody sees another one end."""
    tree = [pid]
    for each in tree:
        with suppress(OSError):
            os.kill(each, signal.SIGSTOP)
            tree += _children(each)
    return tree


def end_tree(tree: Sequence[int]) -> None:
    for each in tree:
        with suppress(OSError):
            os.kill(each, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _node(name: str) -> Node:
    return Node(name, name, "127.0.0.1", {"CPU": 1.0}, {"RACK": f"rack-of-{name}"})
