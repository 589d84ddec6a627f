"""Manages a job on make-believe nodes, as `dlrover-run --platform=…` does on real ones.

Arguments: a JSON object (`Orders`), then those of `dlrover-run`. It takes orders about its nodes,
one per line, from a fifo: `add_node n3`, `lose_node n1`, `crash_node n1`, `forget_node n1`,
`kill_agent n1`, `freeze_agent n1`.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlrover_cli.cli.run import _exit, _outcome_of, read_settings
from dlrover_cli.contracts.manager import Deployment, EngineMode, Ground
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.manager.launching import Place, run_managed
from tests.harness.launcher import ForkedProcess, LaunchClient, Request
from tests.manager.process_cluster import AgentProcess, ProcessCluster, execute

_VERY_LONG = 86_400.0

cluster: ProcessCluster
"""For extensions that bring new nodes."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the test wants."""

    nodes: Sequence[str]
    fifo: str
    lease: float
    launch_server: int | None = None
    """The descriptor of a launch server's socket; without it agents are executed."""
    command: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class _Forked:
    process: ForkedProcess

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait(self) -> int:
        code = self.process.poll(_VERY_LONG)
        assert code is not None
        return code


def main(orders: Orders, argv: list[str]) -> None:
    settings = read_settings(argv)
    place = Place(
        cluster,
        "127.0.0.1",
        Deployment("processes", Ground.MACHINES, EngineMode.JOB, {"cluster": "make-believe"}),
        command=launcher_command() if orders.command is None else orders.command,
        lease=orders.lease,
    )
    run_managed(settings, argv, lambda session: place)


def fork(argv: Sequence[str], environ: Mapping[str, str]) -> AgentProcess:
    """Have the launch server fork an agent, which saves the import of torch."""
    assert orders.launch_server is not None
    client = LaunchClient(socket.socket(fileno=os.dup(orders.launch_server)), Path(os.devnull))
    request = Request(
        command=tuple(argv[:2]),
        argv=tuple(argv[2:]),
        env=environ,
        cwd=os.getcwd(),
        tty=False,
        ignored_signals=(),
    )
    return _Forked(client.fork(request, [0, 1, 2]))


def obey(fifo: str) -> None:
    # For reading and writing: it does not end when a writer goes.
    with os.fdopen(os.open(fifo, os.O_RDWR)) as lines:
        for line in lines:
            order, name = line.split()
            getattr(cluster, order)(name)


if __name__ == "__main__":
    orders = Orders(**json.loads(sys.argv[1]))
    cluster = ProcessCluster(*orders.nodes, spawn=execute if orders.launch_server is None else fork)
    sys.modules["tests.manager.manage_processes"] = sys.modules["__main__"]
    threading.Thread(target=obey, args=(orders.fifo,), name="orders", daemon=True).start()
    with suppress(KeyboardInterrupt):
        code, _ = _outcome_of(lambda: main(orders, sys.argv[2:]))
        _exit(code)
