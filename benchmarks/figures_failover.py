"""How soon a survivor learns of a peer's abort.

    python -m benchmarks.figures_failover                  ten jobs of two nodes, ten of three
    python -m benchmarks.figures_failover --repeat 30

One node's worker fails, its extension says abort. From the moment at which that node has the
decision, how long until the workers of the other nodes are dead, and until their agents are gone?
Fails if the slowest took a second or more. The store is outside of the agents; all agents are real
processes on this machine, so the clocks are one.
"""

import argparse
import json
import os
import select
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.agents import (
    Agent,
    Field,
    JobFailed,
    field_for_a_job,
    meeting_at,
    store_outside_the_agents,
)
from benchmarks.results import percentile, surroundings

LIMIT = 1.0
ABORTED = 82

WORKER = """\
import os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
here.joinpath(os.environ["RANK"]).touch()
while len(list(here.iterdir())) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.002)
if os.environ.get("FAILS") == "1":
    os._exit(3)
time.sleep(600)
"""
EXTENSION = """\
from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy


class Abort(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, info):
        return FailoverStrategy.ABORTION_FAILOVER
"""


@dataclass(slots=True)
class Latencies:
    """Seconds after the decision, one entry per survivor and job."""

    nodes: int
    workers_dead: list[float] = field(default_factory=list)
    agent_gone: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.figures_failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeat", type=int, default=10, help="jobs per number of nodes")
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 3], help="nodes per job")
    parser.add_argument("--json", action="store_true", help="print the samples instead")
    options = parser.parse_args(arguments)
    measured = [Latencies(nodes) for nodes in options.nodes]
    with store_outside_the_agents() as port:
        for _ in range(options.repeat):
            for latencies in measured:
                measure(latencies, port)
    if options.json:
        print(json.dumps([vars_of(each) for each in measured], indent=2))
    else:
        print(markdown(measured))
    slowest = max(seconds for each in measured for seconds in each.agent_gone)
    return 0 if slowest < LIMIT else 1


def measure(latencies: Latencies, port: int) -> None:
    """One job: abort it and see when the others are gone."""
    with field_for_a_job() as field_:
        decider, *survivors = start_agents(field_, port, latencies.nodes)
        ended = wait_for_all([decider, *survivors])
        for agent in (decider, *survivors):
            agent.journal.read()
            if agent.process.returncode != ABORTED:
                raise JobFailed(agent.stderr.read_text())
        [decision] = decider.journal.of_kind("decision")
        for agent in survivors:
            dead = max(event["time"] for event in agent.journal.of_kind("worker_exited"))
            latencies.workers_dead.append(dead - decision["time"])
            latencies.agent_gone.append(ended[agent.pid] - decision["time"])


def start_agents(field_: Field, port: int, nodes: int) -> list[Agent]:
    """The first one's worker will fail."""
    (field_.directory / "worker.py").write_text(WORKER)
    (field_.directory / "extension.py").write_text(EXTENSION)
    (field_.directory / "started").mkdir()
    options = [
        *meeting_at(port, nodes),
        "--dynamic_failover_extension=extension::Abort",
        "worker.py",
        field_.directory / "started",
    ]
    return [
        field_.agent(str(number), options, {"FAILS": "1" if number == 0 else "0"})
        for number in range(nodes)
    ]


def wait_for_all(agents: Sequence[Agent], timeout: float = 120.0) -> dict[int, float]:
    """When each agent's process ended (`time.time`), seen at once and not by polling."""
    descriptors = {os.pidfd_open(agent.pid): agent for agent in agents}
    ended: dict[int, float] = {}
    deadline = time.monotonic() + timeout
    try:
        waiting = set(descriptors)
        while waiting:
            left = deadline - time.monotonic()
            ready, _, _ = select.select(waiting, [], [], max(0.0, left))
            if not ready:
                raise JobFailed(f"still running after {timeout:g} s")
            for descriptor in ready:
                ended[descriptors[descriptor].pid] = time.time()
                descriptors[descriptor].process.wait()
                waiting.discard(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return ended


def markdown(measured: Sequence[Latencies]) -> str:
    lines = [
        "Seconds after the decision to abort. "
        + ", ".join(f"{k} {v}" for k, v in surroundings().items())
        + ".",
        "",
        "| nodes | survivors' | median | p95 | max | samples |",
        "|---|---|---|---|---|---|",
    ]
    for each in measured:
        for what, seconds in (
            ("workers are dead", each.workers_dead),
            ("agents are gone", each.agent_gone),
        ):
            lines.append(
                f"| {each.nodes} | {what} | {statistics.median(seconds):.3f} "
                f"| {percentile(seconds, 0.95):.3f} | {max(seconds):.3f} | {len(seconds)} |"
            )
    return "\n".join(lines)


def vars_of(latencies: Latencies) -> dict[str, object]:
    return {
        "nodes": latencies.nodes,
        "workers_dead": latencies.workers_dead,
        "agent_gone": latencies.agent_gone,
    }


if __name__ == "__main__":
    sys.exit(main())
