"""A Ray cluster as the manager needs it: its nodes as they come and go, and agents on them."""

import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.launch.given_run import VARIABLE as PART_VARIABLE
from dlrover_cli.manager.cluster import ClusterLost, Node, NodesChanged, Post
from dlrover_cli.platforms.ray.nodes import NodeBook
from dlrover_cli.platforms.ray.placed_agent import PlacedAgent
from dlrover_cli.platforms.ray.remotes import Remotes
from dlrover_cli.platforms.ray.shipping import Shipment, Showing

_LOOK_SECONDS = 0.5
_MOST_FAILED_LOOKS = 20
_JOIN_SECONDS = 5.0
_SHUTDOWN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RayJob:
    """What the cluster has to know about the job."""

    run_id: str
    run_directory: Path
    least_nodes: int
    resources: Mapping[str, float]
    """What each agent needs, by Ray's names."""
    wanted: Mapping[str, Any]
    """What has to be there on every node, as `host.look_around` takes it."""


class RayCluster:
    """All waiting for Ray is done by threads: one watches the nodes, one each agent."""

    def __init__(self, ray: ModuleType, job: RayJob, say: Callable[[str], None]) -> None:
        self._ray = ray
        self._job = job
        self._say = say
        self._post: Post = lambda observation: None
        self._remotes = Remotes(ray, job.resources)
        self._book = NodeBook(ray, self._remotes, job.resources, job.wanted, say)
        self._agents: dict[str, PlacedAgent] = {}
        self._probe = _write_probe(job.run_directory)
        self._showing = Showing(job.run_directory / "agents")
        self._while_open = ExitStack()
        self._known: tuple[Node, ...] = ()
        self._looking = threading.Lock()
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._watch_nodes, name="ray-nodes", daemon=True)

    def prepare(self) -> None:
        """Begin to ask the nodes, which takes a while; `open` waits for their answers."""
        self._book.healthy()

    def open(self, post: Post) -> None:
        self._post = post
        self._while_open.enter_context(_ray_prints_to(self._job.run_directory / "ray.log"))
        self._known = self._book.first_look(self._job.least_nodes)
        post(NodesChanged(self._known))
        self._showing.start()
        self._watch.start()

    def start(
        self, node: Node, agent: str, argv: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        path, token = self._probe
        plan = {
            "agent": agent,
            "argv": list(argv),
            "environ": dict(environ),
            "cwd": os.getcwd(),
            "run_id": self._job.run_id,
            "run_directory": str(self._job.run_directory),
            "probe": str(path),
            "token": token,
            "part_variable": PART_VARIABLE,
            "has_devices": self._job.resources.get("GPU", 0.0) > 0,
        }
        shipment = Shipment(self._job.run_directory, self._say)
        placed = PlacedAgent(
            self._ray,
            self._remotes,
            self._book,
            node,
            plan,
            shipment,
            self._post,
            self._say,
            self._look,
            self._stop.is_set,
        )
        self._agents[agent] = placed
        placed.start()

    def stop(self, agent: str) -> None:
        self._agents[agent].stop()

    def kill(self, agent: str) -> None:
        self._agents[agent].kill()

    def close(self) -> None:
        """End what is left, with a bound on each wait: a cluster may be gone."""
        self._stop.set()
        for placed in self._agents.values():
            placed.kill()
        for placed in self._agents.values():
            placed.join(_JOIN_SECONDS)
        self._showing.close()
        if self._watch.is_alive():
            self._watch.join(_JOIN_SECONDS)
        self._probe[0].unlink(missing_ok=True)
        leaving = threading.Thread(target=self._ray.shutdown, name="ray-shutdown", daemon=True)
        leaving.start()
        leaving.join(_SHUTDOWN_SECONDS)
        self._while_open.close()

    def _watch_nodes(self) -> None:
        failed = 0
        while not self._stop.wait(_LOOK_SECONDS):
            try:
                self._look()
                failed = 0
            except Exception as error:  # noqa: BLE001 - whatever Ray's own code may raise
                failed += 1
                if failed == _MOST_FAILED_LOOKS:
                    reason = f"the Ray cluster cannot be reached any more: {error}"
                    self._post(ClusterLost(reason, ExitCode.FAILURE))

    def _look(self) -> None:
        """Post the nodes if they have changed; one thread at a time, so that the last is latest."""
        with self._looking:
            nodes = self._book.healthy()
            if nodes != self._known:
                self._known = nodes
                self._post(NodesChanged(nodes))


@contextmanager
def _ray_prints_to(path: Path) -> Iterator[None]:
    """Ray prints what its raylets say to a driver's stdout, which is the workers' alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(descriptor, "w", buffering=1) as file, redirect_stdout(file):
        yield


def _write_probe(run_directory: Path) -> tuple[Path, str]:
    """Whoever can read this writes to the same run directory."""
    path, token = run_directory / f".shared-{secrets.token_hex(4)}", secrets.token_hex(16)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(token)
    return path, token
