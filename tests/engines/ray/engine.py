"""A Ray of the tests' own: a head and three nodes, in a namespace with loopback only."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.harness.processes import TOKEN_LENGTH, TOKEN_VARIABLE, kill_all

NODES = 3
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET."""


def missing() -> str:
    """Why the engine cannot be had here; empty if it can."""
    if find_spec("ray") is None:
        return "Ray is not installed: pip install -c constraints.txt 'dlrover-cli[ray]'"
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2"
    return ""


class RayEngine:
    """Started once for all tests; each begins with three nodes."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex[:TOKEN_LENGTH]
        self.namespace = f"dlr{self.token[:6]}"
        self.directory = Path(tempfile.mkdtemp(prefix="dlr-ray-"))
        self.programs = Path(sys.executable).parent
        self._etc = Path("/etc/netns", self.namespace)
        self.nodes: list[str] = []
        try:
            self._make_namespace()
            self._start()
        except BaseException:
            self.close()
            raise

    def environ(self) -> dict[str, str]:
        """What commands need to find this cluster and no other."""
        return {
            "RAY_ADDRESS": self.address,
            "RAY_TMPDIR": str(self.directory),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def command(self, *argv: str) -> list[str]:
        """A command line inside the namespace; the process is that of the command itself."""
        return ["ip", "netns", "exec", self.namespace, *argv]

    def ray_start(self, pid_file: Path) -> list[str]:
        """The command of one more node, which lives until its process is terminated."""
        command = [
            *(str(self.programs / "ray"), "start", "--block", f"--address={self.address}"),
            *("--num-cpus=1", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000"),
        ]
        return ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(pid_file), *command]

    def ensure(self, count: int = NODES) -> None:
        """Have at least so many nodes."""
        if len(self.nodes) < count:
            self.nodes = self._ask(op="add", count=count - len(self.nodes))

    def add(self) -> None:
        self.ensure(len(self.nodes) + 1)

    def wait_for(self, resource: str) -> None:
        """Until some node offers it."""
        assert self._ask(op="wait", resource=resource)

    def lose(self, node: str) -> float:
        """The machine is gone, with all that ran on it; when that was."""
        self.nodes.remove(node)
        return float(self._ask(op="lose", node=node))

    def lose_raylet(self, node: str) -> float:
        """Only Ray's own process is gone; when that was."""
        self.nodes.remove(node)
        return float(self._ask(op="lose_raylet", node=node))

    def hang(self, node: str) -> float:
        """Ray's own process hangs; when it began to. The node is lost for good with `lose`."""
        return float(self._ask(op="hang", node=node))

    def settle(self) -> None:
        """Until no node is there but ours."""
        assert self._ask(op="settle")

    def close(self) -> None:
        if process := getattr(self, "_process", None):
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
        kill_all(self.token)
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", self.namespace)
        shutil.rmtree(self._etc, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and all that it starts, is in the namespace meanwhile."""
        with open("/proc/thread-self/ns/net") as before:
            _enter(f"/run/netns/{self.namespace}")
            try:
                yield
            finally:
                _enter(f"/proc/self/fd/{before.fileno()}")

    def _make_namespace(self) -> None:
        _ip("netns", "add", self.namespace)
        # Ray looks up its own host; a name server is out of reach.
        self._etc.mkdir(parents=True)
        (self._etc / "resolv.conf").write_text("")
        (self._etc / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
        _ip("-n", self.namespace, "link", "set", "lo", "up")

    def _start(self) -> None:
        server = Path(__file__).with_name("cluster_server.py")
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                self.command(sys.executable, str(server)),
                env=os.environ
                | {
                    TOKEN_VARIABLE: self.token,
                    "RAY_TMPDIR": str(self.directory),
                    "RAY_USAGE_STATS_ENABLED": "0",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        started = self._answer()
        self.address: str = started["address"]
        self.dashboard = f"http://{started['dashboard']}"
        self.ensure()

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            log = (self.directory / "server.log").read_text(errors="replace")
            raise AssertionError(f"the cluster's server is gone:\n{log[-4000:]}")
        return json.loads(line)


def _enter(path: str) -> None:
    with open(path) as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
