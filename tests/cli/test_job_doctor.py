"""`dlrover-job doctor` on machines that really have something wrong with them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.cli.job import main
from dlrover_cli.errors import UsageError
from tests.cli.program import ENVIRON, run_python
from tests.harness.waiting import eventually

DOCTOR = ["-c", "from dlrover_cli.cli.job import console; console()", "doctor"]


Doctor = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Its exit code and its document, from this process."""

    def ask(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main(["doctor", "--json", *arguments])
        return code, json.loads(capsys.readouterr().out)

    return ask


def in_a_namespace(*flags: str, prepare: str, check: str) -> tuple[int, dict[str, Any]]:
    """The same in namespaces of its own, after some commands of a shell there."""
    unshare = ["unshare", *flags, *([] if os.getuid() == 0 else ["--map-root-user"])]
    probe = [*unshare, "sh", "-c", prepare]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("namespaces are not permitted here")
    script = f'{prepare}; exec "$@"'
    command = [*unshare, "sh", "-c", script, "sh", sys.executable, *DOCTOR, "--json", check]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRON)
    return finished.returncode, json.loads(finished.stdout)


def only(document: dict[str, Any]) -> dict[str, str]:
    [finding] = document["findings"]
    return finding  # type: ignore[no-any-return]


def test_a_port_that_is_taken_is_told_with_who_has_it(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, document = doctor("endpoint", "--rdzv-endpoint", f"127.0.0.1:{port}")
    assert code == 0
    assert document["worst"] == "warning"
    assert f"{port} is taken by" in document["findings"][-1]["seen"]
    assert f"(pid {os.getpid()})" in document["findings"][-1]["seen"]


def test_the_endpoint_of_a_settings_file_is_looked_at(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dlrover.toml").write_text('rdzv_endpoint = "nobody.invalid:29400"\n')
    code, document = doctor("endpoint")
    assert code == 1
    assert only(document)["seen"].startswith("nobody.invalid cannot be looked up")


def test_a_settings_file_that_cannot_be_read_is_a_problem_and_not_the_end(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dlrover.toml").write_text("nodes = 2\n")
    code, document = doctor("python")
    assert code == 1
    assert [each["check"] for each in document["findings"]] == ["settings", "python"]
    assert "nnodes" in document["findings"][0]["fix"]


def test_shared_memory_that_is_really_small_is_a_problem() -> None:
    code, document = in_a_namespace(
        "--mount", prepare="mount -t tmpfs -o size=1m none /dev/shm", check="shm"
    )
    assert code == 1
    assert only(document)["level"] == "problem"
    assert "of 1.0 MB are free" in only(document)["seen"]


@pytest.mark.full
def test_a_network_without_names_is_told(tmp_path: Path) -> None:
    for name, text in {"hosts": "", "resolv.conf": "nameserver 192.0.2.1\n"}.items():
        (tmp_path / name).write_text(text)
    mounts = [f"mount --bind {tmp_path}/{name} /etc/{name}" for name in ("hosts", "resolv.conf")]
    code, document = in_a_namespace(
        "--mount", "--net", prepare=" && ".join(mounts), check="hostname"
    )
    assert code == 0
    assert "cannot be looked up" in only(document)["seen"]


@pytest.mark.full
def test_a_state_directory_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    # Even root cannot write there, whom no bits of a folder hold back.
    prepare = f"mount -t tmpfs -o ro none {tmp_path} && export XDG_STATE_HOME={tmp_path}"
    code, document = in_a_namespace("--mount", prepare=prepare, check="state")
    assert code == 1
    assert "cannot be written" in only(document)["seen"]


@pytest.mark.full
def test_all_of_it_is_one_document_for_a_program(doctor: Doctor) -> None:
    code, document = doctor("--timeout", "100")
    assert document["schema_version"] == 1
    assert (document["worst"] == "problem") == (code == 1)
    assert {"torch", "devices", "clock"} <= {each["about"] for each in document["findings"]}
    assert all(each["level"] == "ok" or each["fix"] for each in document["findings"])


def test_a_pipe_gets_a_line_for_each_finding_without_colours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["doctor", "shm", "limits"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "\033" in line] == []
    assert len([line for line in lines if line.startswith(("ok ", "warning ", "problem "))]) == 5
    assert lines[-1].endswith(" fine")


@pytest.mark.parametrize(
    "environ, is_plain", [({"TERM": "dumb"}, True), ({"NO_COLOR": "1"}, True), ({}, False)]
)
def test_a_terminal_that_wants_no_colours_gets_none(
    environ: dict[str, str], is_plain: bool
) -> None:
    usual = {"TERM": "xterm", "COLUMNS": "80"}
    terminal, other_end = os.openpty()
    with subprocess.Popen(
        [sys.executable, *DOCTOR, "shm"],
        env={name: text for name, text in ENVIRON.items() if name not in ("NO_COLOR", "CI")}
        | usual
        | environ,
        stdin=subprocess.DEVNULL,
        stdout=other_end,
        stderr=other_end,
    ) as running:
        os.close(other_end)
        assert running.wait(60) == 0
    shown = os.read(terminal, 100_000).decode()
    os.close(terminal)
    assert "/dev/shm" in shown
    assert ("\033" not in shown) == is_plain


def test_ctrl_c_ends_it_and_all_that_it_has_started(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(1000)\n"
    )
    arguments = ["extensions", "--dynamic-failover-extension", "slow::Slow", "--timeout", "500"]
    with subprocess.Popen(
        [sys.executable, *DOCTOR, *arguments],
        cwd=tmp_path,
        env={**os.environ, **ENVIRON},
        stdout=subprocess.DEVNULL,
    ) as running:
        eventually((tmp_path / "loading").exists, 60, what="the extension is being loaded")
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130


def test_neither_help_nor_a_cheap_check_imports_torch() -> None:
    for arguments in (["--help"], ["python"]):
        found = run_python("-X", "importtime", *DOCTOR, *arguments)
        assert found.returncode == 0
        assert not any(line.endswith(" torch") for line in found.stderr.splitlines())


@pytest.mark.parametrize(
    "arguments, words",
    [(["shn"], "did you mean 'shm'?"), (["shm", "--timeout", "0"], "more than 0")],
)
def test_what_cannot_be_asked_is_refused_with_2(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        main(["doctor", *arguments])
    assert words in f"{caught.value.message} {caught.value.hint}"
