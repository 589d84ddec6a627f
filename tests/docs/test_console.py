"""The mechanism that runs the pages' commands notices when a page and the program differ."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.console import prepare, read_page, run_block
from tests.harness.launcher import Finished


@pytest.mark.parametrize(
    "typed, problems",
    [
        ("$ echo one two\none ... two", 0),
        ("$ echo one\n$ echo two\ntwo", 0),
        ("$ echo one >&2\none", 0),
        ("$ exit_with() { return $1; }\n$ exit_with 3\n$ echo $?\n3", 0),
        ("$ cat given.toml\nkey = 1", 0),
        ("$ cat shown.toml\nkey = 2", 0),
        ("$ echo one\ntwo", 1),
        ("$ echo one\n$ echo two\none", 1),
        ("$ false", 1),
        ("$ false\n$ echo $?\n0", 1),
        ("$ no-such-command", 1),
        ("$ exit 0\n$ echo one", 1),
    ],
)
def test_a_difference_is_a_problem(
    launch: Callable[..., Finished], tmp_path: Path, typed: str, problems: int
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n```toml shown.toml\nkey = 2\n```\n\n```console\n{typed}\n```\n")
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "given.toml").write_text("key = 1\n")
    read = read_page(page)
    prepare(read, examples, tmp_path / "typed")
    [block] = read.blocks
    assert block.line == 7
    assert len(run_block(block, tmp_path / "typed", launch, {})) == problems
