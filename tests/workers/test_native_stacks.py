"""Native stacks with py-spy, and why there are none."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrover_cli.workers import native_stacks as native


@pytest.fixture
def sleeping() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def fake_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    program = tmp_path / "py-spy"
    program.write_text("\n".join(("#!/bin/sh", *lines, "exit 1", "")))
    program.chmod(0o755)
    monkeypatch.setattr(native, "py_spy", lambda: str(program))


@pytest.mark.skipif(native.py_spy() is None, reason="py-spy is not installed")
@pytest.mark.skipif(os.getuid() != 0, reason="the kernel may not allow it")
def test_the_c_functions_are_shown(sleeping: int) -> None:
    text = native.native_stacks({3: sleeping}, 30.0)[3]
    assert "sleep (" in text
    assert "<module>" in text


def test_that_it_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "py_spy", lambda: None)
    assert native.native_stacks({0: 1}, 1.0) == {
        0: "no native stack: py-spy is not installed here: pip install py-spy"
    }


def test_what_it_complains_of_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_py_spy(tmp_path, monkeypatch, "echo 'Error: no such process' >&2", "echo main >&2")
    assert native.native_stacks({0: 1}, 10.0) == {0: "no native stack: py-spy: no such process"}


def test_what_is_not_allowed_is_said_with_what_would_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scope").write_text("1\n")
    monkeypatch.setattr(native, "_PTRACE_SCOPE", tmp_path / "scope")
    fake_py_spy(tmp_path, monkeypatch, "echo 'Permission Denied: Try sudo' >&2")
    text = native.native_stacks({0: 1}, 10.0)[0]
    assert "may not look into the process (kernel.yama.ptrace_scope is 1)" in text
    assert "CAP_SYS_PTRACE" in text


def test_one_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_py_spy(tmp_path, monkeypatch, "exec sleep 60")
    assert native.native_stacks({0: 1}, 0.1) == {
        0: "no native stack: py-spy took longer than 0.1 s"
    }
