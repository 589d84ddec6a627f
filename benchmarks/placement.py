"""What asking an extender costs: `python -m benchmarks.placement`.

A session places a gang of as many agents as there are simulated nodes, one on each: without an
extender, and with one on loopback, in a process of its own, that agrees with everything. Prints
the times of sessions, the requests, and requests per second, as a Markdown table.
"""

import argparse
import json
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dlrover_cli.scheduling.builtins import built_ins
from dlrover_cli.scheduling.extenders import opened_extenders
from dlrover_cli.scheduling.model import JobView, NodeView, QueueView, SessionView, TaskView
from dlrover_cli.scheduling.options import from_options
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.session import hold_session
from dlrover_cli.scheduling.settings import ExtenderSettings


@dataclass(frozen=True, slots=True)
class Figure:
    """Sessions of one kind."""

    name: str
    agents: int
    seconds: tuple[float, ...]
    requests: int
    """Of one session."""

    def row(self) -> str:
        median = statistics.median(self.seconds)
        rate = f"{self.requests / median:,.0f}" if self.requests else "–"
        times = f"{median:.3f} | {max(self.seconds):.3f}"
        return f"| {self.name} | {self.agents} | {times} | {self.requests} | {rate} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--sessions", type=int, default=3)
    options = parser.parse_args(argv)
    figures: list[Figure] = []
    with _extender() as (url, count):
        extender = from_options(url, timeout="30s")
        for agents in options.agents:
            for name, extenders in (("without", ()), ("extender", (extender,))):
                figures.append(measure(name, agents, options.sessions, extenders, count))
                print(figures[-1].row(), file=sys.stderr)
    print("| | agents = nodes | median s | max s | requests | requests/s |")
    print("|---|---|---|---|---|---|")
    for figure in figures:
        print(figure.row())


def measure(
    name: str, agents: int, sessions: int, extenders: Sequence[ExtenderSettings], count: Any
) -> Figure:
    """Some sessions, one after the other, over kept connections."""
    seconds: list[float] = []
    before = count.value
    with opened_extenders(extenders, lambda line: print(line, file=sys.stderr)) as opened:
        for number in range(sessions):
            view = _view(agents, number)
            begin = time.perf_counter()
            decisions = hold_session(view, Panel(built_ins(), opened), ["allocate"])
            seconds.append(time.perf_counter() - begin)
            placed = sum(len(job.placed) for job in decisions.started)
            assert placed == agents, f"{placed} of {agents} agents have a node: {decisions.waiting}"
    return Figure(name, agents, tuple(seconds), (count.value - before) // sessions)


def _view(agents: int, number: int) -> SessionView:
    needs = {"cpu": 8.0, "nvidia.com/gpu": 8.0}
    tasks = tuple(
        TaskView("default", f"agent-{index}", f"{number}-{index}", "job", needs)
        for index in range(agents)
    )
    job = JobView("job", "job", "default", "default", min_available=agents, tasks=tasks)
    nodes = tuple(NodeView(f"node-{index}", needs) for index in range(agents))
    return SessionView(str(number), (job,), nodes, (QueueView("default"),))


# ---- the extender ------------------------------------------------------------------------------


@contextmanager
def _extender() -> Iterator[tuple[str, Any]]:
    """Its address, and a number in shared memory that counts its requests."""
    context = multiprocessing.get_context("spawn")
    count = context.Value("i", 0)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    process = context.Process(target=_serve, args=(listener, count), daemon=True)
    process.start()
    listener.close()
    try:
        yield url, count
    finally:
        process.kill()
        process.join()


def _serve(listener: socket.socket, count: Any) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # the answer in one packet
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with count.get_lock():
                count.value += 1
            content = _ANSWERS.get(self.path, b"{}")
            self.send_response_only(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


_ANSWERS = {
    f"/{verb}": json.dumps(answer).encode()
    for verb, answer in {
        "jobEnqueueable": {"status": 1},
        "predicate": {"code": 0, "errorMessage": ""},
        "prioritize": {"nodeScore": {}},
        "jobReady": {"status": True},
    }.items()
}


if __name__ == "__main__":
    main()
