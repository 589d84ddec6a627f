"""The status line on a terminal: the workers' output is as without it, and so is the terminal."""

import re
import signal
from pathlib import Path

import pytest

from dlrover_cli.launch.status.row import RELEASE
from tests.harness.waiting import eventually

FULL = pytest.mark.full
TERMINAL = {"TERM": "xterm", "CI": None, "NO_COLOR": None}
# All that the line sends lies between a saved and a restored cursor, but for steps up and down.
OURS = re.compile(r"\0337.*?\0338(?:\033D)?(?:\033\[[AB])?", re.DOTALL)
# Colours, bars, wide characters, a cleared screen, and a sequence in two writes.
NOISE = r"""
import sys, time
from pathlib import Path

def put(text, fd=1):
    os.write(fd, text.encode())

put("\033[31mred and still red")
while not Path(GO).exists():
    time.sleep(0.01)
for i in range(200):
    put(f" {i} 漢字\n\r" + "#" * (i % 70) + "\r")
put("\033[0m\033[2J\033[H")
put("x" * 500 + "\n")
"""


@pytest.fixture
def noise(scripts, tmp_path):
    """A script that makes noise once the file ``go`` is there."""
    return scripts.write("noise.py", NOISE, GO=str(tmp_path / "go"))


@pytest.fixture
def on_terminal(start):
    def run(*argv, size=(24, 80), env=None, **options):
        return start(argv, tty=True, size=size, env={**TERMINAL, **(env or {})}, **options)

    return run


def without_line(text: str) -> str:
    return OURS.sub("", text)


def test_the_workers_output_is_as_without_the_line(on_terminal, noise, tmp_path):
    shown = on_terminal(noise)
    shown.wait_for(lambda running: "attempt 0 · 1 rank" in running.stdout)
    Path(tmp_path / "go").touch()
    quiet = on_terminal("--quiet", noise)
    small = on_terminal(noise, size=(9, 80))
    finished, expected = shown.finish(), quiet.finish()
    assert finished.returncode == expected.returncode == 0
    assert "\0337" not in expected.stdout
    assert "\0337" not in small.finish().stdout
    assert without_line(finished.stdout) == expected.stdout
    assert finished.stdout.count(RELEASE) == 1
    assert RELEASE in OURS.findall(finished.stdout)[-1]


@pytest.mark.parametrize("worker_start", ["warm", pytest.param("fresh", marks=FULL)])
@pytest.mark.parametrize("how", ["Ctrl-C", pytest.param("SIGTERM", marks=FULL), "SIGKILL"])
def test_the_terminal_is_as_before_however_the_launcher_ends(how, worker_start, on_terminal, noise):
    running = on_terminal(f"--worker_start={worker_start}", noise)
    running.wait_for(lambda running: "attempt 0 · 1 rank" in running.stdout)
    if how == "Ctrl-C":
        running.type(b"\x03")
    else:
        running.signal(getattr(signal, how))
    eventually(lambda: RELEASE in running.stdout, 30)
    finished = running.finish()
    assert finished.returncode != 0
    assert OURS.findall(finished.stdout)[-1] == RELEASE


def test_the_terminal_is_as_before_if_the_launcher_is_killed_while_torch_loads(
    on_terminal, noise, tmp_path
):
    """Nobody else of the run can tell then; a module that never loads stands for torch."""
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(600)\n")
    running = on_terminal("--preload=endless", noise, env={"PYTHONPATH": str(tmp_path)})
    running.wait_for(lambda running: "preparing the workers" in running.stdout)
    running.signal(signal.SIGKILL)
    eventually(lambda: RELEASE in running.stdout, 30)
    assert OURS.findall(running.finish().stdout)[-1] == RELEASE


@FULL
def test_a_verdict_is_told_on_a_terminal_that_is_whole_again(on_terminal, scripts, tmp_path):
    body = "import time\nwhile not os.path.exists(GO): time.sleep(0.01)\nraise ValueError('no')\n"
    running = on_terminal(scripts.write("fails.py", body, GO=str(tmp_path / "go")))
    running.wait_for(lambda running: "attempt 0 · 1 rank" in running.stdout)
    Path(tmp_path / "go").touch()
    finished = running.finish()
    _, after = finished.stdout.split(RELEASE)
    assert "logs, events and result" in after
    assert "\0337" not in after
