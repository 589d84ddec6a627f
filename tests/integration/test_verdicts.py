"""Ten well-known failures: the verdict names the rank and the cause, in at most 25 lines."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launcher import Finished, Launcher, Running, console_script
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.integration.jobs import run_in

pytestmark = pytest.mark.full

Launch = Callable[..., Finished]
Start = Callable[..., Running]
LAUNCH = ["--standalone", "--nproc-per-node=4"]

GLOO = """
import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=2))
"""
OTHERS_WAIT = "import signal\nsignal.sigtimedwait([], 60)"


@dataclass(frozen=True, slots=True)
class Case:
    """What a script does, and what has to be said of it."""

    body: str
    ranks: frozenset[int]
    """Any of these may be named."""
    words: str
    cause: str | None = None
    options: tuple[str, ...] = ()
    others: str = ""


CASES = {
    "an exception on one rank": Case(
        GLOO + "if rank == 2: raise ValueError('bad batch')\ndist.barrier()",
        frozenset({2}),
        "raised ValueError: bad batch",
    ),
    "an exception on all ranks": Case(
        "raise ValueError('bad config')", frozenset(range(4)), "raised ValueError: bad config"
    ),
    "a segmentation fault": Case(
        f"if rank == 1:\n    import ctypes\n    ctypes.string_at(0)\n{OTHERS_WAIT}",
        frozenset({1}),
        "crashed with a segmentation fault (SIGSEGV)",
        "a crash in native code",
    ),
    "a gloo time-out": Case(
        GLOO + "if rank == 3:\n    import time; time.sleep(60)\ndist.barrier()",
        frozenset({0, 1, 2}),
        "raised RuntimeError",
        "gloo time-out",
        others="rank 3 had not come to it, and stood at",
    ),
    "a gloo time-out of one rank for another": Case(
        GLOO + "def load():\n    import time; time.sleep(60)\n"
        "if rank == 0: load()\nelse: dist.recv(torch.zeros(1), src=0)",
        frozenset({1, 2, 3}),
        "raised RuntimeError",
        "gloo time-out",
        others="rank 0 had not come to it, and stood at",
    ),
    "a port in use": Case(
        "import socket\n"
        "if rank == 1:\n"
        "    first = socket.create_server(('127.0.0.1', 0))\n"
        "    socket.create_server(first.getsockname())\n"
        f"{OTHERS_WAIT}",
        frozenset({1}),
        "Address already in use",
        "port in use",
    ),
    "a missing module": Case(
        f"if rank == 3: import no_such_module_anywhere\n{OTHERS_WAIT}",
        frozenset({3}),
        "No module named 'no_such_module_anywhere'",
        "missing module",
    ),
    "a hang in a DataLoader": Case(
        "import torch, time, torch.distributed as dist, torch.utils.data as data\n"
        "dist.init_process_group('gloo')\n"
        "class Slow(data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, index): time.sleep(60)\n"
        "if rank == 2:\n"
        "    for batch in data.DataLoader(Slow(), num_workers=1): pass\n"
        "dist.barrier()\n",
        frozenset({2}),
        "hangs",
        "data loading",
        ("--hang-timeout=3", "--hang-start-grace=3"),
    ),
    "an exit code after the success of another rank": Case(
        "import glob, json\n"
        "if rank == 0: leave('done', pid=os.getpid()); sys.exit(0)\n"
        "if rank == 2:\n"
        "    while not (found := glob.glob(f'{DIRECTORY}/done.*.json')): time.sleep(0.01)\n"
        "    pid = json.load(open(found[0]))['pid']\n"
        "    while os.path.exists(f'/proc/{pid}'): time.sleep(0.01)\n"
        "    os._exit(7)\n"
        f"{OTHERS_WAIT}",
        frozenset({2}),
        "exited with code 7",
        others="rank 0 had succeeded; ranks 1 and 3 went down with it",
    ),
    "an exit with a text": Case(
        f"if rank == 2: sys.exit('no data in /data')\n{OTHERS_WAIT}",
        frozenset({2}),
        "exited with code 1: sys.exit('no data in /data') at ",
    ),
    "an exit code only": Case(
        f"if rank == 2: os._exit(7)\n{OTHERS_WAIT}", frozenset({2}), "exited with code 7"
    ),
}


def block_of(stderr: str) -> list[str]:
    """The lines of the verdict; there is one."""
    lines = stderr.splitlines()
    [start] = [n for n, line in enumerate(lines) if line.startswith("dlrover-run: FAILED: ")]
    end = next(n for n in range(start + 1, len(lines)) if not lines[n].startswith("  "))
    return lines[start:end]


def assert_said(case: Case, finished: Finished, state: Path) -> dict[str, Any]:
    block = block_of(finished.stderr)
    assert len(block) <= 25, block
    assert "/dlrover_cli/" not in finished.stderr, "no traceback of the launcher"
    assert case.words in block[0], block
    document: dict[str, Any] = json.loads((run_in(state).path / "result.json").read_text())[
        "verdict"
    ]
    assert document["rank"] in case.ranks, document
    assert block[0].startswith(f"dlrover-run: FAILED: rank {document['rank']} on "), block
    if case.cause is not None:
        assert document["cause"]["cause"] == case.cause, document
        assert any(line.startswith(f"  hint     {case.cause} (") for line in block), block
    assert case.others in document["others"], document
    assert Path(document["logs"]).is_dir()
    return document


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_names_rank_and_cause(
    launch: Launch, scripts: Scripts, tmp_path: Path, case: Case
) -> None:
    script = scripts.write("train.py", case.body)
    finished = launch([*LAUNCH, *case.options, str(script)], env={"XDG_STATE_HOME": str(tmp_path)})
    assert finished.returncode != 0
    document = assert_said(case, finished, tmp_path)
    files = {Path(frame["file"]).name for frame in document["frames"]}
    assert files <= {"train.py"}, "frames of packages are of no use"


@pytest.mark.parametrize(
    "signum,cause",
    [(signal.SIGTERM, "ended from outside"), (signal.SIGKILL, "killed from outside")],
)
def test_a_signal_from_outside_is_told_as_one(
    start: Start, scripts: Scripts, tmp_path: Path, signum: signal.Signals, cause: str
) -> None:
    script = scripts.write("train.py", f"leave('up', pid=os.getpid())\n{OTHERS_WAIT}")
    running = start([*LAUNCH, str(script)], env={"XDG_STATE_HOME": str(tmp_path)})
    up = eventually(lambda: found if len(found := scripts.facts("up")) == 4 else None, 60)
    os.kill(up[1]["pid"], signum)
    finished = running.finish()
    case = Case("", frozenset({1}), f"was killed by {signum.name}", cause)
    assert_said(case, finished, tmp_path)


MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Path]:
    """A control group in which a job may have 1.5 GiB."""
    path = MEMORY / f"dlrover-{tmp_path.name}-{os.getpid()}"
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(3 << 29))
    except OSError as error:
        pytest.skip(f"no memory groups (version 1) to be had here: {error}")
    yield path
    eventually(lambda: not (path / "cgroup.procs").read_text(), 10, what="the group is empty")
    path.rmdir()


def test_memory_that_ran_out_is_told_as_such(
    launcher: Launcher, scripts: Scripts, tmp_path: Path, group: Path
) -> None:
    script = scripts.write(
        "train.py", f"if rank == 1: much = bytearray(b'x') * (4 << 30)\n{OTHERS_WAIT}"
    )
    into_group = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", into_group, group, console_script("dlrover-run"), *LAUNCH, script],
        env=launcher.environment({"XDG_STATE_HOME": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    document = json.loads((run_in(tmp_path).path / "result.json").read_text())["verdict"]
    assert document["rank"] == 1
    assert document["what"].startswith("was killed by the kernel, which was out of memory")
    assert document["cause"]["cause"] == "out of memory"
    assert len(block_of(done.stderr)) <= 25
