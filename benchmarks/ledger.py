"""`dlrover-job list` among many past runs: real directories, a real ledger, real processes.

    python -m benchmarks.ledger                     10,000 finished runs, each command 20 times
    python -m benchmarks.ledger --runs 1000 --times 5

One run is recorded the way every run is, and copied under other names and times. Fails if a plain
`list` has a median of half a second or more.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import percentile, surroundings
from dlrover_cli import __version__
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.jobs.record import RunRecord
from dlrover_cli.jobs.run_files import JobDocument, RunFiles
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import state_directory

LIMIT_SECONDS = 0.5
COMMANDS = (
    ("list",),
    ("list", "-o", "json"),
    ("list", "--all", "-o", "json"),
    ("list", "--state", "failed"),
)


@dataclass(frozen=True, slots=True)
class Timing:
    """One process from its start to its end."""

    seconds: float
    on_processor: float


def main(args: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(args)
    with tempfile.TemporaryDirectory(prefix="ledger-") as name:
        env = {**os.environ, "XDG_STATE_HOME": name}
        make_runs(state_directory(env), options.runs)
        where = ", ".join(f"{name} {value}" for name, value in surroundings().items())
        print(f"{options.runs} finished runs with their directories. {where}.\n")
        print("| seconds | median | p95 | max | times | of it on a processor, median |")
        print("|---|---|---|---|---|---|")
        print(_row("`list` that builds the ledger", [_timed(env, ("list",))]), flush=True)
        timings = {}
        for command in COMMANDS:
            timings[command] = [_timed(env, command) for _ in range(options.times)]
            print(_row(f"`dlrover-job {' '.join(command)}`", timings[command]), flush=True)
    median = statistics.median(each.seconds for each in timings[COMMANDS[0]])
    return 1 if median >= LIMIT_SECONDS else 0


def make_runs(state: Path, number: int) -> None:
    """Finished runs, one after the other, the last one a minute ago."""
    runs = state / "runs"
    runs.mkdir(parents=True, mode=0o700)
    now = time.time()
    model = _recorded(runs / "model")
    for index in range(number):
        submitted = now - 60.0 * (number - index)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(submitted))
        run_id = f"{stamp}-{index:06x}"
        code = 3 if index % 10 == 0 else 0
        _copy(model, runs / run_id, run_id, submitted, code)
    _remove(model)


def _recorded(path: Path) -> RunFiles:
    files = RunFiles(path)
    path.mkdir(mode=0o700)
    document = JobDocument(
        run_id=files.run_id,
        name="train",
        platform="local",
        engine="torch",
        submission=files.run_id,
        submitted=time.time(),
        host=os.uname().nodename,
        cwd=os.getcwd(),
        version=__version__,
        argv=("--nproc-per-node=2", "train.py", "--epochs", "3"),
    )
    record = RunRecord.create(files, None, document, print)
    # Of a process that is gone, as those of past runs are.
    record.own(ProcessIdentity(os.getpid(), 1, ProcessIdentity.own().boot_id, document.host))
    for state in (RunState.STARTING, RunState.RUNNING):
        record.move(state)
    record.move(RunState.FINISHED, exit_code=0)
    with record.cleaning():
        pass
    record.close()
    files.result.write_text(json.dumps({"outcome": "succeeded", "exit_code": 0}))
    return files


def _copy(model: RunFiles, path: Path, run_id: str, submitted: float, code: int) -> None:
    files = RunFiles(path)
    logs = files.nodes / "host.1" / "logs" / "attempt_0"
    for rank in range(2):
        (logs / str(rank)).mkdir(parents=True)
        (logs / str(rank) / "stderr.log").write_text("step 1\n" * 100)
    document = json.loads(model.job.read_text())
    name = f"train-{int(submitted) % 7}"
    document.update(run_id=run_id, submission=run_id, submitted=submitted, name=name)
    files.job.write_text(json.dumps(document, indent=2))
    files.events.write_text(_events(model, run_id, submitted, code))
    files.result.write_text(model.result.read_text())
    files.runner_log.write_text("12:00:00 submitted\n")


def _events(model: RunFiles, run_id: str, submitted: float, code: int) -> str:
    lines = []
    for number, line in enumerate(model.events.read_text().splitlines()):
        event = json.loads(line)
        event.update(run_id=run_id, time=submitted + number)
        if event["data"].get("to") == "FINISHED" and code:
            event["data"].update(to="FAILED", exit_code=code, reason=f"rank 1 exited with {code}")
        lines.append(json.dumps(event) + "\n")
    return "".join(lines)


def _remove(files: RunFiles) -> None:
    for each in (files.job, files.events, files.result):
        each.unlink()
    files.path.rmdir()


def _timed(env: dict[str, str], command: Sequence[str]) -> Timing:
    program = Path(sys.executable).with_name("dlrover-job")
    processor = _processor_seconds()
    started = time.perf_counter()
    subprocess.run([program, *command], env=env, check=True, capture_output=True)
    return Timing(time.perf_counter() - started, _processor_seconds() - processor)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(what: str, timings: Sequence[Timing]) -> str:
    seconds = [each.seconds for each in timings]
    figures = (statistics.median(seconds), percentile(seconds, 0.95), max(seconds))
    processor = statistics.median(each.on_processor for each in timings)
    shown = " | ".join(f"{each:.3f}" for each in figures)
    return f"| {what} | {shown} | {len(timings)} | {processor:.3f} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ledger",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=20)
    return parser


if __name__ == "__main__":
    sys.exit(main())
