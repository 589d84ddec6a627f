"""Runs code that hosts stores in an interpreter of its own, where it may fork and be killed."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

_PRELUDE = """
import json, os, socket, sys, time
from datetime import timedelta
from torch.distributed import TCPStore
from dlrover_cli.rendezvous import store_host, store_process
from dlrover_cli.rendezvous.no_lookups import forbid_lookups
from dlrover_cli.rendezvous.store_host import PortTaken, StoreHost

def tell(**facts):
    print(json.dumps(facts), flush=True)

def connect(port):
    return TCPStore("127.0.0.1", port, timeout=timedelta(seconds=20))
"""


def agent_code(code: str) -> str:
    """A program around these lines; `tell(name=value, …)` prints facts for the test."""
    return _PRELUDE + textwrap.dedent(code)


def agent(code: str, prefix: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Start it. It ends with its stdin at the latest, if it reads that."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", agent_code(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def facts_of(code: str, prefix: Sequence[str] = ()) -> dict[str, Any]:
    """Run it to its end; what it told, and what it said on stderr as `stderr`."""
    with agent(code, prefix) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    facts: dict[str, Any] = {"stderr": stderr}
    for line in stdout.splitlines():
        facts.update(json.loads(line))
    return facts


def next_facts(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next line that it told."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=10)[1]
    facts: dict[str, Any] = json.loads(line)
    return facts
