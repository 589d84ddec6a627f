"""How long a rendezvous takes with many nodes: `python -m benchmarks.rendezvous_scale`.

Simulated agents, each with its own handler and its own connections to one store in a process of
its own, in a few processes with a lasting thread per agent. All start at once; the time is that
until the last one has its rank. Connecting is not part of it. Prints medians and a Markdown table.
"""

import argparse
import gc
import json
import os
import queue
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

OURS, TORCHS = "dlrover", "c10d"
# Real agents share no interpreter, whose lock hundreds of them would queue for.
_PROCESSES = 8
_HEAD_START = 0.2
_ROUND_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Figure:
    """The times of some rounds of one backend with so many nodes, in seconds."""

    backend: str
    nodes: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def row(self) -> str:
        times = f"{self.median:.3f} | {min(self.seconds):.3f} | {max(self.seconds):.3f}"
        return f"| {self.backend} | {self.nodes} | {times} | {len(self.seconds)} |"


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    if options.agents is not None:
        _be_agents(json.loads(options.agents))
        return
    figures: list[Figure] = []
    for nodes in options.nodes:
        for backend, most in ((OURS, max(options.nodes)), (TORCHS, options.c10d_up_to)):
            if nodes <= most:
                figure = Figure(backend, nodes, tuple(measure(backend, nodes, options.rounds)))
                print(f"{backend:8} {nodes:5} nodes  {figure.median:.3f} s", file=sys.stderr)
                figures.append(figure)
    print("| backend | nodes | median s | min s | max s | rounds |")
    print("|---|---|---|---|---|---|")
    for figure in figures:
        print(figure.row())
    _compare(figures)


def measure(backend: str, nodes: int, rounds: int) -> list[float]:
    """The seconds that each of some rounds took. The first one, of new nodes, is among them."""
    with _store() as port, _agents(backend, nodes, port) as processes:
        return [_time_round(processes) for _ in range(rounds)]


def _time_round(processes: Sequence["subprocess.Popen[str]"]) -> float:
    begin = time.monotonic() + _HEAD_START  # of the machine, not of the process
    for process in processes:
        _say(process, str(begin))
    return max(float(_hear(process)) for process in processes) - begin


def _compare(figures: Sequence[Figure]) -> None:
    ours = max((each for each in figures if each.backend == OURS), key=lambda each: each.nodes)
    torchs = [each for each in figures if each.backend == TORCHS]
    if torchs:
        theirs = max(torchs, key=lambda each: each.nodes)
        print(
            f"\n{ours.nodes} nodes with {OURS} take 1/{theirs.median / ours.median:.0f} "
            f"of the time of {theirs.nodes} nodes with {TORCHS}."
        )


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 16, 64, 256, 1024])
    parser.add_argument("--c10d-up-to", type=int, default=64, metavar="NODES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--agents", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


# ---- the processes ------------------------------------------------------------------------------


@contextmanager
def _store() -> Iterator[int]:
    from dlrover_cli.rendezvous.store_host import StoreHost

    host = StoreHost.spawn()
    try:
        yield host.open()
    finally:
        host.close()


@contextmanager
def _agents(backend: str, nodes: int, port: int) -> Iterator[list["subprocess.Popen[str]"]]:
    count = min(_PROCESSES, nodes)
    shares = [nodes // count + (index < nodes % count) for index in range(count)]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                __spec__.name if __spec__ else "benchmarks.rendezvous_scale",
                "--agents",
                json.dumps({"backend": backend, "share": share, "nodes": nodes, "port": port}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # torch has a line for each of the connections that end here.
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for share in shares
    ]
    try:
        for process in processes:
            _hear(process)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _be_agents(plan: dict[str, Any]) -> None:
    """One process with its share of the agents; takes points in time, returns points in time."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    threading.stack_size(256 * 1024)
    _look_up_nothing(plan["port"])
    make = _our_handler if plan["backend"] == OURS else _torchs_handler
    agents = [_Agent(make(plan["nodes"], plan["port"])) for _ in range(plan["share"])]
    _be_as_if_alone()
    _put("ready")
    for line in sys.stdin:
        for agent in agents:
            agent.begins.put(float(line))
        _put(str(max(agent.ends.get(timeout=_ROUND_SECONDS) for agent in agents)))
    os._exit(0)


def _be_as_if_alone() -> None:
    """What only an interpreter with a hundred agents has to bear: long collections of garbage for
    all of them at once, and everybody who waits for the lock waking up every few milliseconds."""
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(0.5)


class _Agent:
    """A handler and the thread that calls it, which lasts: ending it would be measured, too."""

    def __init__(self, handler: Any) -> None:
        self.begins: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.ends: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._handler = handler
        threading.Thread(target=self._run, name="agent", daemon=True).start()

    def _run(self) -> None:
        while True:
            begin = self.begins.get()
            time.sleep(max(0.0, begin - time.monotonic()))
            self._handler.next_rendezvous()
            self.ends.put(time.monotonic())


def _our_handler(nodes: int, port: int) -> Any:
    from torch.distributed import TCPStore

    from dlrover_cli.rendezvous.elastic import ElasticRendezvous
    from dlrover_cli.rendezvous.forming import Rules

    address = "127.0.0.1"
    store = TCPStore(address, port, wait_for_workers=False)
    host = _shared_host()
    rules = Rules(nodes, nodes)
    return ElasticRendezvous(
        store, "scale", rules, f"{address}:{port}", address, make_host=lambda: host
    )


def _torchs_handler(nodes: int, port: int) -> Any:
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

    address = "127.0.0.1"
    store = TCPStore(address, port, wait_for_workers=False, timeout=timedelta(seconds=60))
    backend = C10dRendezvousBackend(store, "scale")
    return DynamicRendezvousHandler.from_backend(
        "scale", store, backend, nodes, nodes, local_addr=address
    )


_host: list[Any] = []


def _shared_host() -> Any:
    """Each node has a process for its stores; only that of node rank 0 is ever asked."""
    from dlrover_cli.rendezvous.store_host import StoreHost

    if not _host:
        _host.append(StoreHost.spawn())
        _host[0].open()
    return _host[0]


def _look_up_nothing(port: int) -> None:
    """A name server that is slow would be measured instead."""
    from torch.distributed import TCPStore

    from dlrover_cli.rendezvous.no_lookups import spare_torch_its_lookups

    spare_torch_its_lookups(lambda: TCPStore("127.0.0.1", port, wait_for_workers=False))


def _say(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _hear(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"a process of simulated agents ended with {process.wait()}")
    return line


def _put(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
