"""Extensions are loaded by real processes, which they may hang, end or crash."""

from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.doctor.commands import Commands, Ran
from dlrover_cli.doctor.extensions import check_extensions
from dlrover_cli.doctor.finding import Level
from tests.cli.program import ENVIRON
from tests.doctor.machines import answers, machine

GOOD = """
from dlrover_cli.contracts import DynamicAgentFailoverExtension
print("hello from the extension")
class Mine(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        return None
"""


def loaded(
    folder: Path,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    setting: str = "dynamic_failover_extension",
    seconds: float = 40.0,
) -> Any:
    """The finding about `mine::Mine` of a module with this text."""
    (folder / "mine.py").write_text(text)
    monkeypatch.chdir(folder)
    commands = Commands()

    def run(command: Any, environ: Any, patience: float) -> Ran:
        if "load_one" in " ".join(command):
            return commands.run(command, environ, patience)
        return Ran(0, '{"checked": []}')

    facts = {"run": run, "environ": ENVIRON, "seconds": seconds}
    flags = {setting: "mine::Mine" if setting != "metrics_handler" else ["mine::Mine"]}
    found, _ = check_extensions(machine(folder, flags=flags, **facts))
    return found


def test_one_that_loads_is_fine_whatever_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = loaded(tmp_path, GOOD, monkeypatch)
    assert found.level is Level.OK, found
    assert "mine::Mine (--dynamic-failover-extension) loads" in found.seen


@pytest.mark.parametrize(
    "text, words",
    [
        ("import no_such_module", "no_such_module"),
        (GOOD + "    def __init__(self): raise RuntimeError('no licence')", "no licence"),
        ("class Mine: pass", "DynamicAgentFailoverExtension"),
        ("import os; os._exit(7)", "with exit code 7"),
        ("import os; os.kill(os.getpid(), 11)", "ended the process that loaded it, with SIGSEGV"),
    ],
    ids=["import fails", "raises", "wrong base", "exits", "crashes"],
)
def test_one_that_cannot_be_used_is_a_problem_with_its_reason(
    tmp_path: Path, text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = loaded(tmp_path, text, monkeypatch)
    assert found.level is Level.PROBLEM
    assert words in found.seen
    assert found.fix


@pytest.mark.parametrize(
    "base", ["dlrover_cli.contracts.metrics", "torch.distributed.elastic.metrics"]
)
def test_a_metrics_handler_may_derive_from_either_base(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""
from {base} import MetricHandler
class Mine(MetricHandler):
    def emit(self, metric_data): pass
"""
    found = loaded(tmp_path, text, monkeypatch, setting="metrics_handler")
    assert found.level is Level.OK, found


def test_one_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That no process is left is seen by the suite.
    text = "import subprocess; subprocess.run(['sleep', '1000'])"
    found = loaded(tmp_path, text, monkeypatch, seconds=1.0)
    assert found.level is Level.PROBLEM
    assert "not loaded within 0.75 s" in found.seen


def test_installed_ones_that_are_broken_are_told_one_by_one(tmp_path: Path) -> None:
    checked = '{"checked": [{"error": "a is broken", "hint": null}, {"error": null}]}'
    [found] = check_extensions(machine(tmp_path, run=answers(Ran(1, checked))))
    assert found.level is Level.PROBLEM
    assert found.seen == "a is broken"


def test_an_installed_one_that_hangs_is_told(tmp_path: Path) -> None:
    [found] = check_extensions(machine(tmp_path, run=answers(Ran(None))))
    assert found.level is Level.PROBLEM
    assert "dlrover-job plugins check" in found.fix
