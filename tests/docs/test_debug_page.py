"""docs/how-to/debug.md: its sessions, typed at a real terminal."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.console import read_page
from tests.harness.launcher import Running

PAGE = read_page(Path(__file__).parents[2] / "docs" / "how-to" / "debug.md")
SESSIONS = re.findall(r"^```text session\n(.*?)^```$", PAGE.text, re.MULTILINE | re.DOTALL)
PROMPT = "(Pdb) "


@pytest.mark.full
@pytest.mark.parametrize("session", SESSIONS, ids=["breakpoint", "post-mortem"])
def test_a_session_goes_as_the_page_shows(
    session: str, start: Callable[..., Running], tmp_path: Path
) -> None:
    for name, text in PAGE.files:
        if name != "session":
            (tmp_path / name).write_text(text)
    command, *lines = session.splitlines()
    argv = shlex.split(command.removeprefix("$ dlrover-run "))
    running = start(argv, tty=True, cwd=tmp_path)
    prompts = 0
    for line in lines:
        if line.startswith(PROMPT):
            prompts += 1
            running.wait_for(lambda seen: seen.stdout.count(PROMPT) >= prompts)  # noqa: B023
            running.type(line.removeprefix(PROMPT).encode() + b"\r")
    shown = running.finish().stdout
    wanted = [line for line in lines if not line.startswith(PROMPT)]
    missing = [line for line in wanted if not _is_in(line, shown)]
    assert not missing, f"{missing} in {shown}"


def _is_in(line: str, shown: str) -> bool:
    return re.search(".*".join(map(re.escape, line.split("..."))), shown) is not None
