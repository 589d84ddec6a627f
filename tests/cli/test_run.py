"""`main` and the console script: what they hand on, what they say, what they exit with."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dlrover_cli.cli import run
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError, LaunchError, RendezvousFailed
from tests.cli.program import run_program


@pytest.fixture(autouse=True)
def clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("PET_", "DLROVER_")) and name != "DLROVER_TEST_TOKEN":
            monkeypatch.delenv(name)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[LaunchSettings, list[str]]]:
    """What reached the launcher, which is not started."""
    calls: list[tuple[LaunchSettings, list[str]]] = []
    stand_in(monkeypatch, "run", prepare=lambda settings, argv: calls.append((settings, argv)))
    return calls


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> None:
    module = ModuleType(f"dlrover_cli.launch.{name}")
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def failing_launch(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def prepare(settings: LaunchSettings, argv: list[str]) -> None:
        raise error

    stand_in(monkeypatch, "run", prepare=prepare)


def console(monkeypatch: pytest.MonkeyPatch, *argv: str) -> object:
    monkeypatch.setattr(sys, "argv", ["dlrover-run", *argv])
    monkeypatch.setattr(run, "_exit", sys.exit)  # the real one ends this process at once
    with pytest.raises(SystemExit) as caught:
        run.console()
    return caught.value.code


def test_main_hands_settings_and_the_command_line_to_the_launcher(launched) -> None:
    argv = ["-mt3", "--nn", "2", "--metrics_handler=m::A", "pkg.train", "--lr", "1", "--help"]
    run.main(argv)
    [(settings, seen)] = launched
    assert seen == argv
    assert (settings.module, settings.tee, settings.nnodes) == (True, "3", "2")
    assert settings.metrics_handler == ("m::A",)
    assert settings.training_script == "pkg.train"
    assert settings.training_script_args == ("--lr", "1", "--help")


def test_main_reads_the_process_arguments_if_it_gets_none(launched, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dlrover-run", "--nnodes=3", "t.py"])
    run.main()
    assert launched[0][0].nnodes == "3"


def test_main_reads_environment_and_config_file(launched, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PET_NNODES", "3")
    (tmp_path / "dlrover.toml").write_text("max_restarts = 2\n")
    run.main(["t.py"])
    settings = launched[0][0]
    assert (settings.nnodes, settings.max_restarts) == ("3", 2)
    assert str(settings.source_of("max_restarts")) == "dlrover.toml:max_restarts"


@pytest.mark.parametrize(
    "argv, message, hint",
    [
        (["--nnode=2:", "--bogus", "t.py"], "There is no option --bogus.", "The script's own"),
        (["--nproc-per-nod", "--standalone"], "--nproc-per-nod needs a value", "Write --nproc-per"),
        ([], "There is no script to run.", "Put it after the options"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_explained_and_ends_in_exit_code_2(
    launched, capsys, argv: list[str], message: str, hint: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run.main(argv)
    assert caught.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"dlrover-run: error: {message}")
    assert second.startswith(f"hint: {hint}")
    assert launched == []


def test_a_bad_variable_or_config_file_is_explained_the_same_way(
    launched, capsys, monkeypatch, tmp_path: Path
) -> None:
    (tmp_path / "dlrover.toml").write_text("max_restart = 2\n")
    with pytest.raises(SystemExit) as caught:
        run.main(["t.py"])
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "dlrover-run: error: dlrover.toml:1: max_restart is not a setting.\n"
        "hint: Did you mean max_restarts?\n"
    )


@pytest.mark.parametrize("also", [[], ["--dry-run"]])
def test_main_raises_a_value_error_where_torchruns_does(also: list[str]) -> None:
    with pytest.raises(ValueError, match="contradict each other"):
        run.main(["--no-python", "-m", *also, "t"])
    with pytest.raises(ConfigError, match="above its maximum"):
        run.main(["--nnodes=4:1", *also, "t.py"])


def test_the_console_explains_what_main_raises(monkeypatch, capsys) -> None:
    assert console(monkeypatch, "--nnodes=4:1", "t.py") == 2
    assert capsys.readouterr().err.startswith("dlrover-run: error: --nnodes has its minimum, 4,")


@pytest.mark.parametrize(
    "error, code",
    [
        (RendezvousFailed("Nobody came.", hint="Start the others."), 80),
        (LaunchError("The disk is full.", hint="Make room."), 1),
    ],
)
def test_each_error_has_its_exit_code(monkeypatch, capsys, error: Exception, code: int) -> None:
    failing_launch(monkeypatch, error)
    assert console(monkeypatch, "t.py") == code
    assert capsys.readouterr().err == f"dlrover-run: error: {error}\nhint: {error.hint}\n"


def test_a_run_that_ends_badly_exits_with_the_outcomes_code(monkeypatch, capsys) -> None:
    failing_launch(monkeypatch, RuntimeError("t.py FAILED"))
    stand_in(monkeypatch, "outcome", exit_code_of=lambda error: 7)
    assert console(monkeypatch, "t.py") == 7
    assert capsys.readouterr().err == "dlrover-run: t.py FAILED\n"


def test_a_bug_keeps_its_traceback(monkeypatch) -> None:
    failing_launch(monkeypatch, ZeroDivisionError())
    stand_in(monkeypatch, "outcome", exit_code_of=lambda error: None)
    monkeypatch.setattr(sys, "argv", ["dlrover-run", "t.py"])
    with pytest.raises(ZeroDivisionError):
        run.console()


def test_ctrl_c_exits_with_130(monkeypatch) -> None:
    failing_launch(monkeypatch, KeyboardInterrupt())
    assert console(monkeypatch, "t.py") == 130


def test_success_exits_with_0(launched, monkeypatch) -> None:
    assert console(monkeypatch, "t.py") == 0
    assert len(launched) == 1


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cli.test_plan_view import PLAN

    stand_in(monkeypatch, "plan", make_plan=lambda settings: PLAN)


def test_a_dry_run_shows_the_plan_and_starts_nothing(planned, launched, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        run.main(["--dry_run", "t.py"])
    assert caught.value.code == 0
    assert "The same with torchrun" in capsys.readouterr().out
    assert launched == []


def test_a_dry_run_with_json_prints_one_document(planned, capsys) -> None:
    import json

    with pytest.raises(SystemExit):
        run.main(["--dry-run", "--json", "t.py"])
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


def test_the_module_is_the_console_script() -> None:
    found = run_program("--nnodes=0", "t.py")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr == (
        "dlrover-run: error: --nnodes needs at least one node, not 0.\n"
        "hint: Write --nnodes=2 or, for an elastic job, --nnodes=1:4\n"
    )
