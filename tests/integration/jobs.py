"""Jobs of several launchers on one machine, and what a launcher leaves in its state directory."""

import json
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.launcher import Finished, Running
from tests.harness.scripts import Scripts

# A round that could do with more nodes starts after a second, and the dead are noticed after six.
# (Much less, and torch would take nodes for dead that only just joined.)
QUICK = "join_timeout=60,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=6"


def free_port() -> int:
    """A port that nobody listens on, outside the range from which the system gives out its own."""
    while True:
        port = random.randint(20000, 29999)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port


def taken(scripts: Scripts, kind: str) -> list[dict[str, Any]]:
    """What workers left under this kind; it is gone afterwards, for the next launch to leave."""
    facts = scripts.facts(kind)
    for path in scripts.directory.glob(f"{kind}.*.*.json"):
        path.unlink()
    return facts


@dataclass(frozen=True, slots=True)
class Run:
    """The directory of one run."""

    path: Path

    @property
    def node(self) -> Path:
        (node,) = (self.path / "nodes").iterdir()
        return node

    @property
    def job(self) -> dict[str, Any]:
        return document(self.path / "job.json")

    @property
    def result(self) -> dict[str, Any]:
        return document(self.path / "result.json")

    @property
    def failures(self) -> list[dict[str, Any]]:
        files = (self.node / "failures").iterdir()
        return [document(path) for path in sorted(files, key=lambda path: int(path.stem))]

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        text = (self.node / "events.jsonl").read_text()
        whole = text[: text.rfind("\n") + 1]  # the last line may be on its way
        events = [json.loads(line) for line in whole.splitlines()]
        return [event for event in events if kind is None or event["kind"] == kind]

    def numbers(self) -> list[tuple[int, int, int]]:
        """(attempt, restart count, generation) of every start of workers."""
        return [
            (event["attempt"], event["data"]["restart_count"], event["data"]["generation"])
            for event in self.events("workers_started")
        ]


def document(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text())
    assert isinstance(content, dict)
    return content


def run_in(state: Path) -> Run:
    """The only run of a state directory, or of what was taken in its place."""
    (path,) = (*state.glob("dlrover/runs/*"), *state.glob("runs/*"))
    return Run(path)


@dataclass(frozen=True, slots=True)
class Node:
    """One launcher of a job."""

    running: Running
    state: Path

    @property
    def run(self) -> Run:
        return run_in(self.state)

    def finish(self, timeout: float = 60.0) -> Finished:
        return self.running.finish(timeout)


@dataclass(slots=True)
class Job:
    """Starts the launchers of one job; each keeps its run in a directory of its own."""

    start: Callable[..., Running]
    directory: Path
    options: tuple[object, ...]
    nodes: list[Node] = field(default_factory=list)

    def node(self, *argv: object, **options: Any) -> Node:
        state = self.directory / f"node{len(self.nodes)}"
        env = {"XDG_STATE_HOME": str(state), **options.pop("env", {})}
        running = self.start([*self.options, *argv], env=env, **options)
        node = Node(running, state)
        self.nodes.append(node)
        return node

    def finish(self, timeout: float = 60.0) -> list[Finished]:
        """Wait for the end of all."""
        return [node.finish(timeout) for node in self.nodes]

    def assert_all_exit_with(self, code: int, timeout: float = 60.0) -> list[Finished]:
        """Wait for the end of all; what every node said is shown if one of them ends otherwise."""
        ended = self.finish(timeout)
        everything = "\n".join(map(repr, ended))
        assert [each.returncode for each in ended] == [code] * len(ended), everything
        return ended

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


def c10d_job(
    start: Callable[..., Running],
    directory: Path,
    *options: object,
    nnodes: str,
    conf: str = QUICK,
    port: int | None = None,
) -> Job:
    """A job whose nodes meet by torch's c10d rendezvous, in the first node's process."""
    return Job(
        start,
        directory,
        (
            f"--nnodes={nnodes}",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=localhost:{port or free_port()}",
            "--rdzv-id=job",
            f"--rdzv-conf={conf}",
            "--local-addr=localhost",
            *options,
        ),
    )


def static_job(start: Callable[..., Running], directory: Path, nnodes: int) -> Job:
    """A job whose nodes know their rank; give each --node-rank."""
    return Job(
        start,
        directory,
        (f"--nnodes={nnodes}", f"--master-port={free_port()}", "--rdzv-conf=timeout=60"),
    )
