"""The line that the plan shows means the same to torchrun."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.distributed.run import parse_args

from dlrover_cli.cli.run import read_settings
from dlrover_cli.launch.torchrun import _unambiguous_arguments, torchrun_arguments

OPTIONS = (
    *("--nnodes=1:4", "--nproc-per-node=2", "--standalone", "--rdzv-backend=c10d"),
    *("--rdzv-conf=a=1,b=2", "-r3", "-t0:1,1:2", "-m", "--role=a b", "--max-restarts=3"),
    *("--duplicate-stdout-filters=a,,b,c", "--log-dir=x y", "--numa-binding=node"),
    *("--shutdown-timeout=7", "--master-port=0", "--monitor-interval=0.5", "--virtual-local-rank"),
    *("--local-addr=-1", "--signals-to-handle=SIGTERM", "--node-rank=1", "--start-method=fork"),
)


@given(
    options=st.lists(st.sampled_from(OPTIONS), unique=True),
    script=st.sampled_from(["train.py", "-odd.py", "a b.py"]),
    arguments=st.lists(st.sampled_from(["--lr", "0.1", "--", "-h", "two words", ""]), max_size=4),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
def test_torchrun_reads_the_line_as_it_reads_the_original(
    options: list[str],
    script: str,
    arguments: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
    argv = [*options, "--", script, *arguments]
    line = torchrun_arguments(read_settings(argv))
    assert vars(parse_args(list(line))) == vars(parse_args(argv))


def test_a_default_of_ours_wins_over_a_variable_that_torchrun_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    variables = {"PET_NNODES": "4", "PET_STANDALONE": "1", "PET_LOG_DIR": "logs", "PET_ROLE": "x"}
    ours = {"DLROVER_NNODES": "1:1", "DLROVER_STANDALONE": "0", "DLROVER_ROLE": "y"}
    for name, value in {**variables, **ours}.items():
        monkeypatch.setenv(name, value)
    environ = dict(variables)
    arguments = _unambiguous_arguments(read_settings(["train.py"]), environ)
    assert set(arguments) == {"--nnodes=1:1", "--role=y", "--log-dir=logs", "train.py"}
    assert "PET_STANDALONE" not in environ, "a flag cannot be denied on the command line"
    assert "PET_NNODES" in environ


def test_our_rendezvous_is_c10d_to_torchrun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = read_settings(["--rdzv-backend=dlrover", "--rdzv-endpoint=n:1", "train.py"])
    line = torchrun_arguments(settings)
    assert line == ("--rdzv-backend=c10d", "--rdzv-endpoint=n:1", "train.py")
