"""A file with a fault in it, wherever that is found, leaves nothing behind."""

from pathlib import Path

import pytest

from dlrover_cli.errors import UsageError
from dlrover_cli.jobs.submission import submit
from tests.jobs.test_job_file import BAD_JOBS

GOOD = "good: {engine: cmd_line, properties: {command: ['true']}}\n"
FOUND_LATER = [
    ("bad:\n  engine: torhc\n", "bad.yaml:3: ", "torhc"),
    ("bad:\n  engine: torch\n  platform: moon\n", "bad.yaml:3: ", "moon"),
    (
        "bad:\n  engine: torch\n  plugin: no_such_module::Plugin\n",
        "bad.yaml:4: ",
        "no_such_module",
    ),
    ("bad:\n  engine: torch\n  prperties: {}\n", "bad.yaml:4: ", "'prperties'"),
    ("bad:\n  engine: torch\n", "bad.yaml:2: ", "needs a script"),
    (
        "bad:\n  engine: torch\n  properties:\n    script: 5\n",
        "bad.yaml:5: ",
        "script takes a text",
    ),
    ("bad:\n  engine: torch\n  properties:\n    scrpt: t\n", "bad.yaml:5: ", "scrpt is not a prop"),
    (
        "bad:\n  engine: torch\n  properties:\n    script: t.py\n    args: [3]\n",
        "bad.yaml:6: ",
        "args[0] takes a text",
    ),
    (
        "bad:\n  engine: torch\n  properties: {script: t.py,\n    nnodes: x}\n",
        "bad.yaml:5: ",
        "nnodes takes a number",
    ),
    ("bad:\n  engine: cmd_line\n  properties: {command: ls -l}\n", "bad.yaml:4: ", "command takes"),
    ("bad:\n  engine: python\n", "bad.yaml:2: ", "script is missing"),
]


@pytest.mark.parametrize(
    "text, place, sentence",
    [
        *((text, "bad.yaml", sentence) for text, _line, sentence, _hint in BAD_JOBS),
        *((GOOD + text, place, sentence) for text, place, sentence in FOUND_LATER),
    ],
)
def test_a_bad_file_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        submit(Path("bad.yaml"), {"XDG_STATE_HOME": f"{tmp_path}/state"}, pytest.fail)
    assert sentence in caught.value.message
    assert place in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]
