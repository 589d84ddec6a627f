"""docs/reference/torchrun-compat.md: what it says about values that are refused is what happens."""

import builtins
import re
import shlex
from pathlib import Path

import pytest
from torch.distributed import run as torchrun

from dlrover_cli.cli import run as ours

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "torchrun-compat.md"


def rows(heading: str) -> list[list[str]]:
    section = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[1:]]


REFUSED = [
    pytest.param(shlex.split(command), torchrun_does, we_do, id=command)
    for written, torchrun_does, we_do in rows("What is refused earlier, or in a sentence")
    for command in re.findall("`([^`]+)`", written)
]


def test_the_page_has_its_table() -> None:
    assert len(REFUSED) > 20


@pytest.mark.parametrize("options, torchrun_does, we_do", REFUSED)
def test_torchrun_does_what_the_page_says(
    monkeypatch, options: list[str], torchrun_does: str, we_do: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    arguments = torchrun.parse_args([*options, "t.py"])
    if torchrun_does.startswith("accepted"):
        torchrun.config_from_args(arguments)
        return
    [name] = re.findall("^`(\\w+)`", torchrun_does)
    with pytest.raises(getattr(builtins, name)):
        torchrun.config_from_args(arguments)


@pytest.mark.parametrize("options, torchrun_does, we_do", REFUSED)
def test_we_do_what_the_page_says(
    monkeypatch, tmp_path: Path, capsys, options: list[str], torchrun_does: str, we_do: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.py").touch()
    argv = [*options, "--dry-run", "--json", "t.py"]
    if we_do.startswith("accepted"):
        with pytest.raises(SystemExit) as caught:
            ours.main(argv)
        assert caught.value.code == 0
        return
    assert we_do.startswith("refused")
    with pytest.raises(ValueError, match=r"\S") as refused:
        ours.main(argv)
    assert refused.value.hint
    assert capsys.readouterr().out == ""
