"""`ask_extension` asks as the agent does, and leaves nothing behind."""

from pathlib import Path

import pytest

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.errors import PluginError
from dlrover_cli.testing import ask_extension, exit_failure
from tests.harness.processes import descendants_and_orphans

SOURCE = """
from dlrover_cli.contracts import *

class Patient(DynamicAgentFailoverExtension):
    def __init__(self):
        self.codes = []

    def get_user_failover_strategy(self, info):
        self.codes.append(info.root_cause.exit_code)
        print("asked about", self.codes[-1])
        if len(self.codes) == 1:
            return None
        if self.codes[-1] == 5:
            raise KeyError(5)
        return FailoverStrategy.NODE_FAILOVER
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "patient_extension.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_failures_follow_one_another(folder: Path, process_token: str) -> None:
    first, second, third = ask_extension(
        "patient_extension::Patient", exit_failure(1), exit_failure(2), exit_failure(5)
    )
    assert first is None
    assert second is not None
    assert second.strategy is FailoverStrategy.NODE_FAILOVER
    assert third is not None
    assert third.strategy is FailoverStrategy.NORMAL_FAILOVER
    assert "raised KeyError: 5" in third.problems[0]
    assert descendants_and_orphans(process_token) == []


def test_one_that_cannot_be_loaded_is_an_error(folder: Path) -> None:
    with pytest.raises(PluginError, match="there is no 'Patiently'") as caught:
        ask_extension("patient_extension::Patiently", exit_failure())
    assert caught.value.reason == "no-attribute"


def test_what_it_prints_is_printed_here(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask_extension("patient_extension::Patient", exit_failure(1), exit_failure(2))
    assert capsys.readouterr().out == "asked about 1\nasked about 2\n"
