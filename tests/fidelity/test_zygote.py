"""What can go wrong with the process that workers are forked from: said in a line, and survived."""

import json
import os
import shutil
import signal
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlrover_cli.workers.commands import CommandStarter, NurseryClient
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.streams import StreamPlan, WorkerStreams
from tests.fidelity.test_facts import DIFFERENCES, PROGRAMS, UNIQUE
from tests.harness.processes import descendants_and_orphans, is_alive, process_info
from tests.harness.waiting import eventually
from tests.workers.helpers import all_exits, next_exit, request

# Whether it was forked: a fresh interpreter has not loaded what the zygote has.
TELL = "import sys\nprint('warm' if 'selectors' in sys.modules else 'fresh', *sys.argv[1:])\n"

StartWarm = Callable[..., CommandStarter]


@pytest.fixture
def problems() -> list[str]:
    """The lines that would have gone to stderr."""
    return []


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    yield inbox
    inbox.close()


@pytest.fixture
def start_warm(
    process_token: str, problems: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StartWarm]:
    """`start_warm(module=text, …)`: a starter whose zygote loads these modules."""
    starters: list[CommandStarter] = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "preloads"))

    def start(*missing: str, beside: Path | None = None, **modules: str) -> CommandStarter:
        for name, text in modules.items():
            path = tmp_path / "preloads" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        zygote = NurseryClient.start_warm((*modules, *missing), beside and str(beside))
        starters.append(CommandStarter(problems.append, zygote))
        return starters[-1]

    yield start
    for starter in starters:
        starter.close(leave_survivors=False)


@pytest.fixture
def tell(tmp_path: Path) -> Path:
    script = tmp_path / "tell.py"
    script.write_text(TELL)
    return script


def output_of(starter: CommandStarter, inbox: Inbox, *scripts: Path, attempt: int = 0) -> list[str]:
    """What each script prints as a worker; all of them succeed."""
    directory = scripts[0].parent
    files = [directory / f"out.{attempt}.{rank}" for rank in range(len(scripts))]
    for file in files:
        file.write_text("")
    asked = request([("-u", str(script)) for script in scripts], attempt=attempt)
    launches = tuple(
        replace(launch, streams=WorkerStreams(StreamPlan(file=str(file)), StreamPlan()))
        for launch, file in zip(asked.launches, files, strict=True)
    )
    workers = starter.start(replace(asked, launches=launches), inbox)
    exits = all_exits(inbox, workers)
    workers.close()
    assert {exit_.status for exit_ in exits.values()} == {0}
    return [file.read_text().strip() for file in files]


def test_workers_are_forked(
    start_warm: StartWarm, inbox: Inbox, tell: Path, problems: list[str]
) -> None:
    assert output_of(start_warm(), inbox, tell, tell) == ["warm", "warm"]
    assert problems == []


@pytest.mark.parametrize(
    "text,problem",
    [
        ("raise ValueError('no licence')", "ValueError: no licence"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("raise MemoryError('no room')", "MemoryError: no room"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: "),
        ("x = = 1", "SyntaxError: invalid syntax (module.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_said_in_a_line(
    start_warm: StartWarm, inbox: Inbox, tell: Path, problems: list[str], text: str, problem: str
) -> None:
    assert output_of(start_warm(module=text), inbox, tell) == ["fresh"]
    line = f"module cannot be loaded ahead: {problem}; workers are started fresh"
    assert problems == [line]


def test_a_module_that_nobody_has_is_said_in_a_line(
    start_warm: StartWarm, inbox: Inbox, tell: Path, problems: list[str]
) -> None:
    assert output_of(start_warm("nobody.has.it"), inbox, tell) == ["fresh"]
    [line] = problems
    assert line.startswith("nobody.has.it cannot be loaded ahead: ModuleNotFoundError: ")


@pytest.mark.parametrize(
    "text,left",
    [
        ("import threading as t; t.Thread(target=t.Event().wait, daemon=True).start()", "thread"),
        ("import subprocess; p = subprocess.Popen(['sleep', '60'])", "process"),
    ],
)
def test_a_module_that_leaves_something_running_is_said_in_a_line(
    start_warm: StartWarm, inbox: Inbox, tell: Path, problems: list[str], text: str, left: str
) -> None:
    assert output_of(start_warm(module=text), inbox, tell) == ["fresh"]
    line = f"loading the modules for the workers has left a {left} running"
    assert problems == [f"{line}; workers are started fresh"]


def test_a_module_that_touches_a_gpu_is_said_in_a_line(
    start_warm: StartWarm, inbox: Inbox, tell: Path, problems: list[str]
) -> None:
    # What torch says in a fork of a process that has so much as counted its GPUs.
    spoiled = """
        import os, sys
        from types import SimpleNamespace
        pid = os.getpid()
        cuda = SimpleNamespace(_is_in_bad_fork=lambda: os.getpid() != pid)
        sys.modules["torch"] = SimpleNamespace(cuda=cuda)
        """
    starter = start_warm(module=textwrap.dedent(spoiled))
    assert output_of(starter, inbox, tell) == ["fresh"]
    line = "loading the modules for the workers has touched a GPU, which no fork survives"
    assert problems == [f"{line}; workers are started fresh"]


def test_a_module_that_forks_does_not_make_two_zygotes(
    start_warm: StartWarm, inbox: Inbox, tell: Path, problems: list[str]
) -> None:
    starter = start_warm(module="import os; os.fork() and os.wait()")
    assert output_of(starter, inbox, tell, tell) == ["warm", "warm"]
    assert problems == []


def test_what_a_module_prints_is_printed_once(
    start_warm: StartWarm, inbox: Inbox, tell: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    printing = "import ctypes; ctypes.CDLL(None).printf(b'from C\\n'); print('from Python')"
    assert output_of(start_warm(module=printing), inbox, tell, tell) == ["warm", "warm"]
    assert sorted(capfd.readouterr().out.splitlines()) == ["from C", "from Python"]


@pytest.mark.parametrize(
    "text", ["import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"], ids=["exit", "kill"]
)
def test_a_zygote_that_dies_before_its_first_worker_is_replaced(
    start_warm: StartWarm, inbox: Inbox, tell: Path, problems: list[str], text: str
) -> None:
    assert output_of(start_warm(module=text), inbox, tell) == ["fresh"]
    assert problems == ["the warm process has died; workers are started fresh"]


def test_a_zygote_that_is_killed_takes_its_workers_with_it_and_is_replaced(
    start_warm: StartWarm, inbox: Inbox, tell: Path, tmp_path: Path, problems: list[str]
) -> None:
    starter = start_warm()
    sleeper = tmp_path / "sleep.py"
    sleeper.write_text("import time; time.sleep(60)")
    workers = starter.start(request([("-u", str(sleeper))] * 2), inbox)
    pids = list(workers.pids().values())
    os.kill(process_info(pids[0]).parent, signal.SIGKILL)
    assert [next_exit(inbox).status for _ in pids] == [-signal.SIGKILL] * 2
    eventually(lambda: not any(map(is_alive, pids)), what="the end of the workers")
    workers.close()
    assert output_of(starter, inbox, tell, attempt=1) == ["fresh"]
    assert problems == ["the warm process has died; workers are started fresh"]


def test_children_that_wait_and_are_killed_are_not_missed(
    start_warm: StartWarm, inbox: Inbox, tell: Path, process_token: str, problems: list[str]
) -> None:
    starter = start_warm()
    assert output_of(starter, inbox, tell, tell) == ["warm", "warm"]
    standbys = waiting(process_token, 2)
    for pid in standbys:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not any(map(is_alive, standbys)), what="the end of those that waited")
    assert output_of(starter, inbox, tell, tell, attempt=1) == ["warm", "warm"]
    assert problems == []


def test_children_that_wait_become_the_next_workers(
    start_warm: StartWarm, inbox: Inbox, tmp_path: Path, process_token: str
) -> None:
    script = tmp_path / "pid.py"
    script.write_text("import os; print(os.getpid())")
    starter = start_warm()
    output_of(starter, inbox, script)
    [standby] = waiting(process_token, 1)
    assert output_of(starter, inbox, script, attempt=1) == [str(standby)]


def test_a_worker_that_has_waited_sees_what_a_fresh_one_sees(
    start_warm: StartWarm,
    inbox: Inbox,
    tmp_path: Path,
    process_token: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("observe.py", "beside.py"):
        shutil.copy(PROGRAMS / name, tmp_path / name)
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setenv("FACTS", str(tmp_path))
    monkeypatch.setenv("RANK", "0")
    warm = start_warm()
    output_of(warm, inbox, tmp_path / "observe.py")
    waiting(process_token, 1)
    output_of(warm, inbox, tmp_path / "observe.py", attempt=1)
    ours = json.loads((tmp_path / "0.json").read_text())
    output_of(start_warm("nobody.has.it"), inbox, tmp_path / "observe.py", attempt=2)
    theirs = json.loads((tmp_path / "0.json").read_text())
    facts = set(theirs) - set(DIFFERENCES) - UNIQUE
    assert {fact: ours[fact] for fact in facts} == {fact: theirs[fact] for fact in facts}


def waiting(token: str, count: int) -> list[int]:
    """The pids of the zygote's children when there are so many of them, and no workers."""

    def found() -> list[int]:
        ours = os.getpid()
        below = [p for p in descendants_and_orphans(token) if ours not in (p.pid, p.parent)]
        return [p.pid for p in below] if len(below) == count else []

    return eventually(found, what=f"{count} in waiting")


@pytest.mark.parametrize("kind", ["module", "package", "extension"])
def test_a_file_beside_the_script_that_hides_a_loaded_module_makes_workers_fresh(
    start_warm: StartWarm,
    inbox: Inbox,
    tmp_path: Path,
    tell: Path,
    problems: list[str],
    kind: str,
) -> None:
    (tmp_path / "queue").mkdir()
    file = {
        "module": tmp_path / "selectors.py",
        "package": tmp_path / "selectors" / "__init__.py",
        "extension": tmp_path / "selectors.abi3.so",
    }[kind]
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert output_of(start_warm(beside=tmp_path), inbox, tell) == ["fresh"]
    line = f"{file} hides selectors, which warm workers have loaded; workers are started fresh"
    assert problems == [line]


@pytest.mark.parametrize("name", ["os.py", "time.py", "typer.py", "__main__.py", "mine.py"])
def test_a_file_that_hides_nothing_is_no_reason(
    start_warm: StartWarm,
    inbox: Inbox,
    tmp_path: Path,
    tell: Path,
    problems: list[str],
    name: str,
) -> None:
    (tmp_path / name).touch()
    (tmp_path / "selectors").mkdir()  # no package, so the installed module comes first
    assert output_of(start_warm(beside=tmp_path), inbox, tell) == ["warm"]
    assert problems == []
