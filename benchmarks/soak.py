"""Hundreds of random faults in a row: is the work right in the end, and is anything left over?

    python -m benchmarks.soak                       200 faults, one node, two workers
    python -m benchmarks.soak --nodes 2             two nodes with two workers each
    python -m benchmarks.soak --no-hangs            quicker: crashes and kills only
    python -m benchmarks.soak --faults 20 --seed 7

The job counts steps in a checkpoint. In every attempt but the last something hits one of its
workers: an exception, an exit, a signal from inside or from outside at any moment, a hang, a
stopped process. Meanwhile the agents are watched: descriptors, threads, memory, ports, processes,
files. The summary is Markdown; the exit code is 1 if anything was wrong.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.agents import (
    Agent,
    Field,
    field_for_a_job,
    meeting_at,
    store_outside_the_agents,
)
from benchmarks.results import percentile, surroundings
from benchmarks.soak_worker import chained

WORKER = Path(__file__).with_name("soak_worker.py")
STEPS = 1000
HANG_TIMEOUT = 2.0
WARM_UP = 10
"""Attempts before the agents' resources are compared."""

# What hits, how often (of 100), and as what the agent has to see it.
FAULTS = {
    "exception": (15, "exception"),
    "exit": (10, "exit"),
    "sys.exit": (8, "exit"),
    "start-up": (5, "start-up"),
    "SIGKILL": (12, "signal"),
    "SIGSEGV": (8, "signal"),
    "SIGABRT": (5, "signal"),
    "SIGBUS": (3, "signal"),
    "SIGTERM": (4, "signal"),
    "from outside": (12, "signal"),
    "all from outside": (4, "signal"),
    "hang": (10, "hang"),
    "SIGSTOP": (4, "hang"),
}
HANGS = ("hang", "SIGSTOP")
RULES = '[[rules]]\nname = "soak"\nstrategy = "normal"\nbackoff = 0\n'


@dataclass(frozen=True, slots=True)
class Sample:
    """What one agent holds at the start of an attempt."""

    descriptors: int
    threads: int
    memory_kb: int
    ports: frozenset[int]
    processes: int
    zombies: int
    files: int


@dataclass(slots=True)
class Watched:
    """One agent, its samples, and the workers of the attempt that is under way."""

    agent: Agent
    samples: list[Sample] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill from outside that is due at some moment."""

    at: float
    pids: tuple[int, ...]


@dataclass(slots=True)
class Soak:
    """One soak under way."""

    where: Field
    faults: list[dict[str, Any]]
    random: random.Random
    watched: list[Watched]
    kills: list[Kill] = field(default_factory=list)
    announced: Counter[int] = field(default_factory=Counter)

    def run(self, deadline: float) -> None:
        """Watch and kill until every agent has ended, or the time is up."""
        while any(each.agent.process.poll() is None for each in self.watched):
            for each in self.watched:
                for event in each.agent.journal.read():
                    if event["kind"] == "workers_started":
                        self._on_start(each, event)
            self._kill_what_is_due()
            if time.monotonic() > deadline:
                return
            time.sleep(0.002)
        for each in self.watched:
            each.agent.journal.read()

    def _on_start(self, watched: Watched, event: dict[str, Any]) -> None:
        watched.samples.append(sample(watched.agent, self.where))
        watched.workers = [worker["pid"] for worker in event["data"]["workers"]]
        self.announced[event["attempt"]] += 1
        if self.announced[event["attempt"]] < len(self.watched):
            return
        attempt = event["attempt"]
        fault = self.faults[attempt] if attempt < len(self.faults) else None
        if fault is not None and fault["kind"] in ("from outside", "all from outside"):
            victims = self.random.choice(self.watched).workers
            if fault["kind"] == "from outside":
                victims = [self.random.choice(victims)]
            # From before the interpreter is up to well into the steps.
            at = time.monotonic() + self.random.uniform(0, 0.2)
            self.kills.append(Kill(at, tuple(victims)))

    def _kill_what_is_due(self) -> None:
        now = time.monotonic()
        for kill in [each for each in self.kills if each.at <= now]:
            self.kills.remove(kill)
            for pid in kill.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(field_for_a_job())
        meeting: list[str] = []
        if options.nodes > 1:
            port = stack.enter_context(store_outside_the_agents())
            meeting = meeting_at(port, options.nodes)
        soak = begin(where, meeting, options, random.Random(seed))
        soak.run(started + 60 + options.faults * (5 + 5 * options.nodes))
        problems = list(problems_of(soak))
        print(markdown(soak, options, seed, time.monotonic() - started, problems))
        if problems and options.keep:
            keep(where, options.keep)
    return 1 if problems else 0


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--faults", type=int, default=200, help="how many faults in a row")
    parser.add_argument("--nodes", type=int, default=1, help="agents of the job")
    parser.add_argument("--workers", type=int, default=2, help="workers per node")
    parser.add_argument("--no-hangs", action="store_true", help="crashes and kills only")
    parser.add_argument("--seed", type=int, help="repeat a soak; its summary names the seed")
    parser.add_argument("--keep", type=Path, help="where to keep the files of one that went wrong")
    return parser.parse_args(arguments)


def begin(
    where: Field, meeting: Sequence[str], options: argparse.Namespace, rng: random.Random
) -> Soak:
    """Write the plan and start the agents."""
    faults = plan(options, rng)
    document = {"steps": STEPS, "faults": faults}
    (where.directory / "plan.json").write_text(json.dumps(document))
    (where.directory / "rules.toml").write_text(RULES)
    command = [
        *meeting,
        f"--nproc-per-node={options.workers}",
        f"--max-restarts={options.faults + 10}",
        "--failover_rules=rules.toml",
        *([] if options.no_hangs else [f"--hang_timeout={HANG_TIMEOUT}"]),
        WORKER,
    ]
    environ = {"SOAK_DIRECTORY": str(where.directory)}
    agents = [where.agent(str(node), command, environ) for node in range(options.nodes)]
    return Soak(where, faults, rng, [Watched(agent) for agent in agents])


def plan(options: argparse.Namespace, rng: random.Random) -> list[dict[str, Any]]:
    """What hits whom, one entry per attempt."""
    kinds = [kind for kind in FAULTS if not (options.no_hangs and kind in HANGS)]
    weights = [FAULTS[kind][0] for kind in kinds]
    return [
        {
            "kind": rng.choices(kinds, weights)[0],
            "rank": rng.randrange(options.nodes * options.workers),
            "after": rng.choice([0, 1, rng.randrange(2, 20)]),
            "code": rng.choice([1, 2, 80, 82, 137, rng.randrange(1, 256)]),
            "children": rng.random() < 0.3,
        }
        for _ in range(options.faults)
    ]


# ---- what the agents hold ----------------------------------------------------------------------


def sample(agent: Agent, where: Field) -> Sample:
    """A look at an agent's process and at everything it started."""
    tree = processes_below(agent.pid)
    status = read(f"/proc/{agent.pid}/status")
    return Sample(
        descriptors=count_in(f"/proc/{agent.pid}/fd"),
        threads=count_in(f"/proc/{agent.pid}/task"),
        memory_kb=int(status.partition("VmRSS:")[2].split()[0]) if "VmRSS:" in status else 0,
        ports=frozenset(listening_ports([agent.pid, *tree])),
        processes=len(tree),
        zombies=sum(is_zombie(pid) for pid in tree),
        files=sum(1 for _ in where.temporary.rglob("*")),
    )


def processes_below(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            fields = read(str(entry / "stat")).rpartition(")")[2].split()
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def is_zombie(pid: int) -> bool:
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[:1] == ["Z"]


def listening_ports(pids: Iterable[int]) -> set[int]:
    """The TCP ports on which these processes listen."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    inodes.add(os.readlink(descriptor))
    return {port for port, inode in listeners() if f"socket:[{inode}]" in inodes}


def listeners() -> Iterable[tuple[int, str]]:
    for table in ("tcp", "tcp6"):
        for row in read(f"/proc/net/{table}").splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A":
                yield int(fields[1].rpartition(":")[2], 16), fields[9]


def count_in(directory: str) -> int:
    try:
        return len(os.listdir(directory))
    except OSError:
        return 0


def read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


# ---- what was wrong ----------------------------------------------------------------------------


def problems_of(soak: Soak) -> Iterable[str]:
    """Everything that is not as it should be, one sentence each."""
    for number, each in enumerate(soak.watched):
        code = each.agent.process.poll()
        if code is None:
            yield f"agent {number} is still running in attempt {len(each.samples) - 1}"
        elif code != 0:
            yield f"agent {number} exited with {code}: {last_words(each.agent)}"
    yield from wrong_work(soak)
    yield from wrong_numbers(soak)
    yield from misjudged(soak)
    yield from left_over(soak)
    for number, each in enumerate(soak.watched):
        for name, before, after in growth(each.samples):
            yield f"agent {number}: {name} grew from {before:g} to {after:g}"


def wrong_work(soak: Soak) -> Iterable[str]:
    digest = ""
    for step in range(1, STEPS + 1):
        digest = chained(digest, step)
    ranks = sum(len(each.workers) for each in soak.watched)
    for rank in range(ranks):
        said = read(str(soak.where.directory / f"end.{rank}"))
        if said != f"{STEPS} {digest}":
            yield f"rank {rank} ended with {said.partition(' ')[0] or 'nothing'}, not {STEPS} steps"


def wrong_numbers(soak: Soak) -> Iterable[str]:
    expected = [(attempt, attempt, 0) for attempt in range(len(soak.faults) + 1)]
    for number, each in enumerate(soak.watched):
        numbers = [
            (event["attempt"], event["data"]["restart_count"], event["data"]["generation"])
            for event in each.agent.journal.of_kind("workers_started")
        ]
        if numbers != expected:
            wrong = next(
                (n for n, e in zip(numbers, expected, strict=False) if n != e), len(numbers)
            )
            yield f"agent {number}: the attempts are not counted one by one, from {wrong} on"


def misjudged(soak: Soak) -> Iterable[str]:
    """Decisions whose trigger is not what was done to the workers."""
    for event in soak.watched[0].agent.journal.of_kind("decision"):
        fault = soak.faults[event["attempt"]]
        expected, seen = FAULTS[fault["kind"]][1], event["data"]["trigger"]
        if seen != expected:
            yield f"attempt {event['attempt']}: {fault['kind']} was taken for {seen}"


def left_over(soak: Soak) -> Iterable[str]:
    """Processes, ports and files that outlive the job."""
    needle = f"RACE_DIRECTORY={soak.where.directory}\0".encode()
    deadline = time.monotonic() + 5
    while (left := processes_with(needle)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if left:
        yield f"processes were left: {left}"
    ports = {port for each in soak.watched for s in each.samples for port in s.ports}
    still = ports & {port for port, _inode in listeners()}
    if still:
        yield f"ports are still open: {sorted(still)}"
    # torch makes its compile cache when it is loaded, under any launcher, and keeps it.
    left = soak.where.temporary.rglob("*")
    files = [str(path) for path in left if not path.name.startswith("torchinductor_")]
    if files:
        yield f"{len(files)} temporary files were left, such as {files[0]}"
    beats = soak.where.directory / "beats"
    if beats.exists() and Path(beats.read_text()).exists():
        yield f"the workers' pages were left in {beats.read_text()}"


def processes_with(needle: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if needle in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


MEASURES: dict[str, tuple[Callable[[Sample], float], float]] = {
    "open descriptors": (lambda each: each.descriptors, 2),
    "threads": (lambda each: each.threads, 2),
    "resident memory in MB": (lambda each: each.memory_kb // 1024, 25),
    "listening ports": (lambda each: len(each.ports), 1),
    "processes": (lambda each: each.processes, 2),
    "zombies": (lambda each: each.zombies, 2),
    "temporary files": (lambda each: each.files, 2),
}
"""What is compared between the first attempts and the last, and how much more is tolerated."""


def growth(samples: Sequence[Sample]) -> Iterable[tuple[str, float, float]]:
    """What has grown beyond what is tolerated: name, before, after."""
    for name, (measure, tolerated) in MEASURES.items():
        before, after = ends(samples, measure)
        if after > before + tolerated:
            yield name, before, after


def ends(samples: Sequence[Sample], measure: Callable[[Sample], float]) -> tuple[float, float]:
    """The least over the first attempts after the warm-up, and over the last ones.

    A look may come while something old is still being closed; what leaks is there in every look.
    """
    values = [measure(each) for each in samples]
    if not values:
        return 0.0, 0.0
    few = max(3, min(20, len(values) // 4))
    skipped = WARM_UP if len(values) > 4 * WARM_UP else 0
    first = values[skipped : skipped + few]
    return min(first), min(values[-few:])


# ---- the summary -------------------------------------------------------------------------------


def markdown(
    soak: Soak,
    options: argparse.Namespace,
    seed: int,
    seconds: float,
    problems: Sequence[str],
) -> str:
    kinds = Counter(fault["kind"] for fault in soak.faults)
    lines = [
        f"{len(soak.faults)} faults, {options.nodes} node(s) with {options.workers} workers, "
        f"seed {seed}, {seconds:.0f} s. "
        + ", ".join(f"{k} {v}" for k, v in surroundings().items())
        + ".",
        "",
        "Faults: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) + ".",
        "",
        *recovery_table(soak),
        "",
        "| agent | " + " | ".join(MEASURES) + " |",
        "|---|" + "---|" * len(MEASURES),
    ]
    for number, each in enumerate(soak.watched):
        cells = []
        for measure, _ in MEASURES.values():
            before, after = ends(each.samples, measure)
            cells.append(f"{before:g} → {after:g}")
        lines.append(f"| {number} | " + " | ".join(cells) + " |")
    lines += ["", *(f"- WRONG: {problem}" for problem in problems)]
    if not problems:
        lines.append(
            f"The job ended with the right count of {STEPS} steps on every rank; no process, port "
            "or temporary file was left."
        )
    return "\n".join(lines)


def recovery_table(soak: Soak) -> list[str]:
    """From the decision to the next workers, and from a hang's last step to its decision."""
    events = soak.watched[0].agent.journal.events
    decided = {e["attempt"]: e for e in events if e["kind"] == "decision"}
    started = {e["attempt"]: e["time"] for e in events if e["kind"] == "workers_started"}
    exits: dict[int, float] = {}
    for event in events:
        if event["kind"] == "worker_exited" and event["attempt"] in decided:
            exits.setdefault(event["attempt"], event["time"])
    rows = {
        "first worker gone → decision": [
            decided[attempt]["time"] - at
            for attempt, at in exits.items()
            if at <= decided[attempt]["time"]
        ],
        "decision → next workers": [
            started[attempt + 1] - event["time"]
            for attempt, event in decided.items()
            if attempt + 1 in started
        ],
    }
    lines = ["| seconds | median | p95 | max |", "|---|---|---|---|"]
    for name, seconds in rows.items():
        if seconds:
            lines.append(
                f"| {name} | {statistics.median(seconds):.3f} "
                f"| {percentile(seconds, 0.95):.3f} | {max(seconds):.3f} |"
            )
    return lines


def last_words(agent: Agent) -> str:
    lines = agent.stderr.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing on stderr"


def keep(where: Field, destination: Path) -> None:
    shutil.copytree(where.directory, destination, dirs_exist_ok=True, symlinks=True)
    print(f"its files are kept in {destination}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
