"""The status line on a real terminal's screen: what a person sees, before, during and after."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.engines import need_program
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually

# Prints lines as fast as it is told to: the file `count` says how many there should be.
LINES = r"""
import time
from pathlib import Path

done = 0
while True:
    text = Path(COUNT).read_text()
    if text == "end":
        break
    if text == "reset":
        os.write(1, b"\033c" + b"\n" * 30)  # to the last row, with no margins
        done, text = 0, ""
        Path(COUNT).write_text("")
    while done < int(text or 0):
        done += 1
        os.write(1, f"line {done}\n".encode())
    time.sleep(0.02)
"""
SECONDS = 60.0


class Screen:
    """A terminal of tmux with a shell in it."""

    def __init__(self, directory: Path, rows: int = 20, columns: int = 90) -> None:
        self._tmux = [need_program("tmux", "tmux"), "-S", str(directory / "tmux")]
        environ = {
            "XDG_STATE_HOME": str(directory / "state"),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "PS1": "$ ",
            "TERM": "tmux",
        }
        shell = [f"{name}={value}" for name, value in environ.items()]
        size = ["-x", str(columns), "-y", str(rows)]
        # Quoted parts as they are: tmux would have a shell read one word.
        self.run(
            "-f", os.devnull, "new-session", "-d", *size, "env", "-i", *shell, "bash", "--norc"
        )

    def run(self, *arguments: str) -> str:
        command = [*self._tmux, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def type(self, *keys: str) -> None:
        self.run("send-keys", *keys)

    def rows(self) -> list[str]:
        return self.run("capture-pane", "-p").split("\n")[:-1]

    def history(self) -> str:
        return self.run("capture-pane", "-p", "-S", "-")

    def wait(self, condition: Callable[[list[str]], bool]) -> list[str]:
        try:
            eventually(lambda: condition(self.rows()), SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n" + "\n".join(self.rows())) from None
        return self.rows()


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    made = Screen(tmp_path)
    yield made
    made.run("kill-server")


def shown(rows: list[str]) -> list[str]:
    return [row for row in rows if row.strip()]


@pytest.mark.full
def test_lines_scroll_above_it_through_resizes_stops_and_its_end(
    screen: Screen, scripts: Scripts, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    count.write_text("")
    script = scripts.write("lines.py", LINES, COUNT=str(count))
    screen.type(f"clear; dlrover-run {script}", "Enter")
    screen.wait(lambda rows: "attempt 0 · 1 rank" in rows[-1])

    count.write_text("100")
    rows = screen.wait(lambda rows: "line 100" in rows)
    assert rows[-1].startswith("dlrover-run: attempt 0")
    assert rows[-20:-2] == [f"line {number}" for number in range(83, 101)]

    screen.run("resize-window", "-x", "60", "-y", "14")
    screen.wait(lambda rows: len(rows) == 14 and rows[-1].startswith("dlrover-run: attempt 0"))
    count.write_text("200")
    rows = screen.wait(lambda rows: "line 200" in rows)
    assert rows[-1].startswith("dlrover-run: attempt 0")
    assert rows[-3] == "line 200"

    written = [row for row in screen.history().splitlines() if row.startswith("line ")]
    assert written == [f"line {number}" for number in range(1, 201)]

    screen.type("C-z")
    screen.wait(lambda rows: shown(rows)[-1] == "$")
    assert not any("attempt 0" in row for row in screen.rows())
    screen.type("clear; seq 50", "Enter")
    screen.wait(lambda rows: rows[-2:] == ["50", "$"])  # the shell has the last row
    screen.type("fg", "Enter")
    screen.wait(lambda rows: rows[-1].startswith("dlrover-run: attempt 0"))

    count.write_text("reset")
    screen.wait(lambda rows: count.read_text() == "")
    screen.wait(lambda rows: rows[-1].startswith("dlrover-run: attempt 0"))
    total = 0

    def scrolls(rows: list[str]) -> bool:
        nonlocal total
        total += 1
        count.write_text(str(total))
        return all(row.startswith("line ") for row in rows[:-2])

    rows = screen.wait(scrolls)
    assert rows[-1].startswith("dlrover-run: attempt 0")

    count.write_text("end")
    screen.wait(lambda rows: shown(rows)[-1] == "$")
    assert not any("attempt 0" in row for row in screen.rows())
    screen.type("clear; seq 50", "Enter")
    screen.wait(lambda rows: rows[-1] == "$" and rows[-2] == "50")
