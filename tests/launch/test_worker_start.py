"""Whether workers can be forked, what is loaded for them, and what is said if they cannot."""

import os
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from dlrover_cli.cli.run import read_settings
from dlrover_cli.launch.worker_start import (
    STANDARD_PRELOADS,
    WorkerStart,
    options_of_interpreter,
    plan_worker_start,
    preloads_of,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()


def planned(
    line: str,
    *,
    env: dict[str, str] | None = None,
    platform: str = "linux",
    options: tuple[str, ...] = (),
    modules: dict[str, ModuleType] | None = None,
) -> WorkerStart:
    return plan_worker_start(
        read_settings(line.split()),
        env or {},
        platform=platform,
        interpreter_options=options,
        modules=modules or {},
    )


def module_from(file: str) -> ModuleType:
    module = ModuleType("sitecustomize")
    module.__file__ = file
    return module


@pytest.mark.parametrize("line", ["train.py", "-m pkg.train", "--worker_start=warm train.py"])
def test_scripts_and_modules_are_forked(line: str) -> None:
    planned_start = planned(line, options=("-u",))
    assert planned_start.warm
    assert planned_start.reason is None


@pytest.mark.parametrize(
    "line", ["--worker_start=fresh train.py", "--no-python ./train", "--run-path train.py"]
)
def test_what_nobody_expects_to_be_forked_needs_no_reason(line: str) -> None:
    assert planned(line) == WorkerStart(warm=False)


def test_only_linux_forks() -> None:
    assert planned("train.py", platform="darwin").reason == (
        "warm workers need Linux, and this is darwin"
    )


@pytest.mark.parametrize("options", [("-O",), ("-u", "-P"), ("-I",), ("-X",), ("-W", "error")])
def test_options_that_a_fresh_worker_would_not_have_are_a_reason(options: tuple[str, ...]) -> None:
    reason = planned("train.py", options=options).reason
    shown = " ".join(option for option in options if option != "-u")
    assert reason == f"this launcher's interpreter was started with {shown}"


@pytest.mark.parametrize(
    "words,options",
    [
        (["python", "dlrover-run", "-m", "x"], ()),
        (["python", "-O", "-m", "dlrover_cli", "-u"], ("-O",)),
        (["python", "-u", "dlrover-run"], ("-u",)),
        (["python", "-X", "dev", "dlrover-run"], ("-X",)),
        (["python"], ()),
    ],
)
def test_options_stand_before_the_program(words: list[str], options: tuple[str, ...]) -> None:
    assert options_of_interpreter(words) == options


@pytest.mark.parametrize("name", ["PYTHONINSPECT", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE"])
def test_variables_about_the_start_are_a_reason(name: str) -> None:
    assert planned("train.py", env={name: ""}).warm
    reason = planned("train.py", env={name: "1"}).reason
    assert reason == f"{name} is set, which is about the start of an interpreter"


def test_another_interpreter_is_a_reason() -> None:
    assert planned("train.py", env={"PYTHON_EXEC": sys.executable}).warm
    reason = planned("train.py", env={"PYTHON_EXEC": "/other/python"}).reason
    assert reason == "PYTHON_EXEC names another interpreter, /other/python"


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_a_customisation_of_the_user_is_a_reason(name: str) -> None:
    of_the_distribution = os.path.join(os.path.dirname(os.__file__), f"{name}.py")
    assert planned("train.py", modules={name: module_from(of_the_distribution)}).warm
    reason = planned("train.py", modules={name: module_from("/home/me/custom.py")}).reason
    assert reason == "/home/me/custom.py is run at the start of every interpreter"


def test_what_is_no_text_is_a_reason(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "train.zip", "w") as archive:
        archive.writestr("__main__.py", "")
    (tmp_path / "package").mkdir()
    (tmp_path / "train.pyc").touch()
    for name in ("train.zip", "package", "train.pyc"):
        assert planned(name).reason == f"{name} is not the text of a script"


def test_binding_is_a_reason() -> None:
    reason = planned("--numa-binding=node train.py").reason
    assert reason == "--numa-binding binds a program as it is started"


@pytest.mark.parametrize(
    "asked,loaded",
    [
        ((), STANDARD_PRELOADS),
        (("auto",), STANDARD_PRELOADS),
        (("mine",), (*STANDARD_PRELOADS, "mine")),
        (("none",), ("torch",)),
        (("none", "mine", "yours"), ("torch", "mine", "yours")),
    ],
)
def test_torch_is_always_loaded(asked: tuple[str, ...], loaded: tuple[str, ...]) -> None:
    assert preloads_of(asked) == loaded


def test_workers_look_for_modules_beside_their_program(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link.py").symlink_to(tmp_path / "train.py")
    assert planned("sub/link.py").beside == str(tmp_path.resolve())
    assert planned("-m pkg.train").beside == os.getcwd()
