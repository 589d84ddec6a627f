"""Jobs of several nodes for failover tests: the store outside or inside of the agents.

Whoever starts agents by hand starts one again that ended with 81: `Nodes.finish` does what a shell
loop would do. The worker of the tests needs no torch; it says who it is and fails as it is told.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlrover_cli.exit_codes import ExitCode
from tests.harness.launcher import Finished, LaunchFailed, Running, scrubbed
from tests.harness.processes import TOKEN_VARIABLE
from tests.harness.scripts import Scripts
from tests.integration.jobs import Job, Node, Run, free_port

NORMAL = "NORMAL_FAILOVER"
NODE = "NODE_FAILOVER"
GLOBAL = "GLOBAL_FAILOVER"
ABORTION = "ABORTION_FAILOVER"

Numbers = tuple[int, int, int]
"""Attempt, restart count, generation."""

# A round that may start with fewer nodes waits a second for more.
CONF = "join_timeout=60,last_call_timeout=1"

_HOST_A_STORE = """\
import os, sys
from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
os._exit(0)
"""


@contextmanager
def store_process() -> Iterator[int]:
    """The port of a TCPStore in a process of its own, which ends with the block or with us."""
    # Not of any one test, so it does not carry its token.
    environ = {k: v for k, v in scrubbed(os.environ).items() if k != TOKEN_VARIABLE}
    with subprocess.Popen(
        [sys.executable, "-c", _HOST_A_STORE],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()


@dataclass(slots=True)
class Life:
    """One node through all of its launchers: the first one, and those that replaced it."""

    name: str
    argv: tuple[object, ...]
    options: dict[str, Any]
    launchers: list[Node] = field(default_factory=list)
    endings: list[Finished] = field(default_factory=list)

    @property
    def current(self) -> Node:
        return self.launchers[-1]

    @property
    def running(self) -> Running:
        return self.current.running

    @property
    def is_over(self) -> bool:
        return len(self.endings) == len(self.launchers)

    @property
    def codes(self) -> list[int]:
        return [finished.returncode for finished in self.endings]

    @property
    def runs(self) -> list[Run]:
        return [node.run for node in self.launchers]

    @property
    def numbers(self) -> list[Numbers]:
        """Those of every start of workers on this node."""
        return [number for run in self.runs for number in run.numbers()]

    def decisions(self) -> list[dict[str, Any]]:
        """What was decided, in the words that all nodes share."""
        found = [event["data"] for run in self.runs for event in run.events("decision")]
        return [{key: value for key, value in each.items() if key != "is_first"} for each in found]

    def acted_first(self) -> int:
        """How many decisions this node was the first to act on."""
        events = [event for run in self.runs for event in run.events("decision")]
        return sum(event["data"]["is_first"] for event in events)

    def __repr__(self) -> str:
        return f"node {self.name}:\n" + "\n".join(map(repr, self.endings))


@dataclass(slots=True)
class Nodes:
    """The nodes of one job. Options hold for all of them; `join` takes more for one."""

    job: Job
    lives: dict[str, Life] = field(default_factory=dict)

    def join(self, name: str, *argv: object, env: Mapping[str, str] | None = None) -> Life:
        """Start a node; its workers see its name as `NODE`."""
        life = Life(name, argv, {"env": {"NODE": name, **(env or {})}})
        self.lives[name] = life
        self.launch(life)
        return life

    def launch(self, life: Life) -> Node:
        """Start the node's next launcher."""
        node = self.job.node(*life.argv, **life.options)
        life.launchers.append(node)
        return node

    def finish(self, timeout: float = 60.0, *, relaunch: bool = True) -> list[Life]:
        """Wait for every node to end; one that ends with 81 is started again unless told not to."""
        return self.finish_these(self.lives.values(), timeout, relaunch=relaunch)

    def finish_these(
        self, lives: Iterable[Life], timeout: float = 60.0, *, relaunch: bool = True
    ) -> list[Life]:
        lives = list(lives)
        deadline = time.monotonic() + timeout
        while [life for life in lives if not self._look_after(life, relaunch)]:
            if time.monotonic() >= deadline:
                raise LaunchFailed(self._report(lives, f"still running after {timeout:g} s"))
            time.sleep(0.005)
        return lives

    def _look_after(self, life: Life, relaunch: bool) -> bool:
        if life.is_over:
            return True
        if life.running.poll() is None:
            return False
        life.endings.append(life.current.finish())
        if relaunch and life.codes[-1] == ExitCode.REPLACE_NODE:
            self.launch(life)
        return life.is_over

    def _report(self, lives: Iterable[Life], what: str) -> str:
        parts = [what]
        for life in lives:
            parts.append(repr(life))
            if not life.is_over:
                parts += ["--- still running, stdout", life.running.stdout[-2000:]]
                parts += ["--- still running, stderr", life.running.stderr[-4000:]]
        return "\n".join(parts)


def nodes_of(
    start: Callable[..., Running],
    directory: Path,
    *options: object,
    nnodes: str,
    store: int | None,
    conf: str = CONF,
    backend: str | None = None,
) -> Nodes:
    """Nodes that meet by our rendezvous in a store outside of the agents, `store` being its port.

    Without one, they meet by torch's c10d, and the first agent hosts the store.
    """
    common = (
        f"--nnodes={nnodes}",
        f"--rdzv-backend={backend or ('c10d' if store is None else 'dlrover')}",
        f"--rdzv-endpoint=127.0.0.1:{store or free_port()}",
        # Many jobs meet over the same store; the id keeps them apart.
        f"--rdzv-id={uuid.uuid4().hex}",
        f"--rdzv-conf={conf}" + ("" if store is None else ",is_host=0"),
        "--local-addr=127.0.0.1",
    )
    return Nodes(Job(start, directory, (*common, *options)))


def one_node(start: Callable[..., Running], directory: Path, *options: object) -> Nodes:
    """A node on its own, without any rendezvous endpoint."""
    return Nodes(Job(start, directory, options))


def has_recorded(life: Life, kind: str, count: int = 1) -> bool:
    """Whether the node's current launcher has recorded so many events of this kind."""
    runs = life.current.state / "dlrover" / "runs"
    if not any(runs.glob("*/nodes/*/events.jsonl")):
        return False
    return len(life.current.run.events(kind)) >= count


# ---- the worker and the extensions of these tests ----------------------------------------------

_WORKER = """\
node = os.environ.get("NODE", "")


def everybody_started():
    return all(
        os.path.exists(os.path.join(DIRECTORY, f"start.{each}.{attempt}.json"))
        for each in range(world_size)
    )


def hit():
    if FAULT == "exception":
        raise RuntimeError("broken on purpose")
    if FAULT == "exit":
        os._exit(EXIT_CODE)
    if FAULT == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "SIGSEGV":
        import ctypes
        ctypes.string_at(0)
    if FAULT == "start-up":
        import a_module_that_is_nowhere


struck = os.path.join(DIRECTORY, "struck")
is_faulty = (
    node in VICTIM and local_rank == 0 and attempt < ATTEMPTS and STRIKES_AT in (0, world_size)
)
if not (is_faulty and FAULT == "start-up"):
    import dlrover_cli
    dlrover_cli.heartbeat()
leave(
    "start",
    node=node,
    group_rank=int(os.environ["GROUP_RANK"]),
    world_size=world_size,
    restart_count=int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
    generation=int(os.environ["DLROVER_GENERATION"]),
)
if attempt >= ATTEMPTS or (STRIKES_AT and os.path.exists(struck)):
    leave("end")
    sys.exit()
if is_faulty and FAULT != "hang":
    while not everybody_started():
        time.sleep(0.002)
    open(struck, "w").close()
    hit()
while True:
    time.sleep(60)
"""

EXTENSIONS = """\
from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy


class Says(DynamicAgentFailoverExtension):
    answer = None

    def get_user_failover_strategy(self, info):
        return self.answer


class Normal(Says):
    answer = FailoverStrategy.NORMAL_FAILOVER


class Node(Says):
    answer = FailoverStrategy.NODE_FAILOVER


class Global(Says):
    answer = FailoverStrategy.GLOBAL_FAILOVER


class Abortion(Says):
    answer = FailoverStrategy.ABORTION_FAILOVER
"""

EXTENSION_OF = {
    NORMAL: "exts::Normal",
    NODE: "exts::Node",
    GLOBAL: "exts::Global",
    ABORTION: "exts::Abortion",
    "none": "exts::Says",
}


def faulty_worker(
    scripts: Scripts,
    fault: str,
    victim: str,
    *,
    attempts: int = 1,
    strikes_at: int = 0,
    exit_code: int = 7,
) -> Path:
    """The first worker of the node `victim` fails in its first attempts; all others wait for it.

    fault: "exception", "exit", "SIGKILL", "SIGSEGV", "hang" or "start-up". It strikes when every
    rank has left its `start`. Attempts after that leave `end` and succeed. For jobs that may begin
    with fewer nodes: with `strikes_at` it strikes once, in a world of that size. `victim` may name
    several nodes, one letter each.
    """
    if strikes_at:
        attempts = 1000
    return scripts.write(
        "faulty.py",
        _WORKER,
        FAULT=fault,
        VICTIM=victim,
        ATTEMPTS=attempts,
        STRIKES_AT=strikes_at,
        EXIT_CODE=exit_code,
    )


def extension(scripts: Scripts, strategy: str) -> str:
    """The option for an extension that always gives this answer; "none" has no opinion."""
    (scripts.directory / "exts.py").write_text(EXTENSIONS)
    return f"--dynamic_failover_extension={EXTENSION_OF[strategy]}"
