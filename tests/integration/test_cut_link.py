"""Two hosts in network namespaces, and a link between them that is cut in the middle of a job."""

import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.launcher import Running
from tests.harness.scripts import Scripts

pytestmark = [pytest.mark.full, pytest.mark.timeout(200)]

CONF = "last_call_timeout=2,join_timeout=20,read_timeout=5"

STEPPING = """\
import torch, torch.distributed as dist
import dlrover_cli

dist.init_process_group("gloo")
for step in range(10_000):
    dist.all_reduce(torch.ones(1))
    dlrover_cli.heartbeat()
    if step == 20:
        say(f"rank {rank} steps in a world of {world_size}")
    if world_size == 1 and step == 40:
        break
    time.sleep(0.02)
dist.destroy_process_group()
"""


@dataclass(frozen=True, slots=True)
class Host:
    """One end of the link."""

    namespace: str
    address: str

    def command(self) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "dlrover_cli"]


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    tag = uuid.uuid4().hex[:6]
    pair = (Host(f"dlr{tag}a", "10.77.0.1"), Host(f"dlr{tag}b", "10.77.0.2"))
    try:
        for host in pair:
            _ip("netns", "add", host.namespace)
            # `ip netns exec` puts these in the place of /etc's: names resolve without a network.
            etc = Path("/etc/netns", host.namespace)
            etc.mkdir(parents=True)
            (etc / "resolv.conf").write_text("")
            known = "".join(f"{other.address} {other.namespace}\n" for other in pair)
            (etc / "hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n{known}")
            _ip("-n", host.namespace, "link", "set", "lo", "up")
        ends = [{"name": "e0", "netns": host.namespace} for host in pair]
        _ip(
            *("link", "add", "e0", "netns", ends[0]["netns"], "type", "veth"),
            *("peer", "name", "e0", "netns", ends[1]["netns"]),
        )
        for host in pair:
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "e0")
            _ip("-n", host.namespace, "link", "set", "e0", "up")
        yield pair
    finally:
        for host in pair:
            subprocess.run(["ip", "netns", "del", host.namespace], check=False)
            shutil.rmtree(Path("/etc/netns", host.namespace), ignore_errors=True)


def test_a_cut_link_is_noticed_and_not_waited_on_for_ever(
    hosts: tuple[Host, Host], start: Callable[..., Running], scripts: Scripts, tmp_path: Path
) -> None:
    script = scripts.write("stepping.py", STEPPING)
    here, there = hosts
    nodes = [
        start(
            [
                "--nnodes=1:2",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={here.address}:29400",
                "--rdzv-id=cut",
                f"--rdzv-conf={CONF},is_host={int(host is here)}",
                f"--local-addr={host.address}",
                "--hang-timeout=4",
                "--max-restarts=2",
                f"--result-file={tmp_path / host.namespace}.json",
                str(script),
            ],
            command=host.command(),
            env={"GLOO_SOCKET_IFNAME": "e0"},
        )
        for host in hosts
    ]
    for node in nodes:
        node.wait_for("steps in a world of 2", deadline=60)
    _ip("-n", here.namespace, "link", "set", "e0", "down")

    survivor = nodes[0].finish(timeout=90)
    cut_off = nodes[1].finish(timeout=90)

    assert survivor.returncode == 0, survivor
    assert "has not moved" in survivor.stderr
    assert "steps in a world of 1" in survivor.stdout
    assert cut_off.returncode == 80, cut_off
    result = json.loads((tmp_path / f"{there.namespace}.json").read_text())
    assert result["outcome"] == "rendezvous_failed"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
