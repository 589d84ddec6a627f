"""From what the user typed to what the agent is built from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

from dlrover_cli.agent.logs import RunLogsSpecs
from dlrover_cli.cli.run import read_settings
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import ConfigError
from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.launch.from_settings import config_of


def settings(line: str) -> LaunchSettings:
    return read_settings([*line.split(), "train.py"])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], LaunchConfig]:
    monkeypatch.chdir(tmp_path)
    return lambda line: config_of(settings(line), tmp_path / "run", print)


class TestPlaceToMeet:
    @pytest.mark.parametrize(
        "line",
        [
            *("", "--standalone", "--master-port=0", "--standalone --rdzv-backend=c10d"),
            *("--standalone --nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-id=x --nnodes=1:1"),
            "--rdzv-backend=c10d --rdzv-endpoint=localhost:0",
        ],
    )
    def test_one_node_on_its_own_meets_nobody(
        self, config: Callable[[str], LaunchConfig], line: str
    ) -> None:
        assert config(line).is_local

    @pytest.mark.parametrize(
        "line,endpoint",
        [
            ("--master-port=123", "127.0.0.1:123"),
            ("--nnodes=2", "127.0.0.1:29500"),
            ("--nnodes=2 --master-addr=host", "host:29500"),
            ("--nnodes=2 --rdzv-endpoint=host:5 --master-port=9", "host:5"),
            ("--nnodes=2 --master-addr=::1 --master-port=7", "::1:7"),
        ],
    )
    def test_the_static_endpoint_is_torchruns(
        self, config: Callable[[str], LaunchConfig], line: str, endpoint: str
    ) -> None:
        made = config(line)
        assert not made.is_local
        assert made.rdzv_endpoint == endpoint
        assert made.rdzv_configs["rank"] == 0

    def test_standalone_is_one_node(self, config: Callable[[str], LaunchConfig]) -> None:
        with pytest.raises(ConfigError, match="--standalone is for one node, and --nnodes asks"):
            config("--standalone --nnodes=2:4")

    @pytest.mark.parametrize("line", ["--nnodes=2 --node-rank=2", "--master-port=5 --node-rank=1"])
    def test_a_rank_that_no_node_can_have_is_refused(
        self, config: Callable[[str], LaunchConfig], line: str
    ) -> None:
        with pytest.raises(ConfigError, match="ranks go from 0 to"):
            config(line)

    def test_a_handler_of_ones_own_gets_all_that_was_said(
        self, config: Callable[[str], LaunchConfig]
    ) -> None:
        made = config("--rdzv_handler=a::B --node-rank=7 --rdzv-conf=x=1")
        assert not made.is_local
        assert made.rdzv_configs["x"] == "1"
        assert made.rdzv_configs["rank"] == 7


class TestLogs:
    def test_logs_go_into_the_run_directory_or_where_they_are_sent(
        self, config: Callable[[str], LaunchConfig], tmp_path: Path
    ) -> None:
        specs = config("-r 3 -t 0:1,10:2").logs_specs
        assert isinstance(specs, RunLogsSpecs)
        assert specs.root_log_dir == str(tmp_path / "run")
        assert specs._redirects == Std.ALL
        assert specs._tee == {0: Std.OUT, 10: Std.ERR}
        specs = config(f"--log-dir={tmp_path}/logs --local-ranks-filter=0,2").logs_specs
        assert isinstance(specs, DefaultLogsSpecs)
        assert specs.root_log_dir == f"{tmp_path}/logs"
        assert specs._local_ranks_filter == {0, 2}

    def test_a_later_attempt_never_replaces_files_of_an_earlier_one(
        self, config: Callable[[str], LaunchConfig], tmp_path: Path
    ) -> None:
        specs: Any = config(f"--log-dir={tmp_path}/logs -r3").logs_specs
        made = []
        for attempt in range(2):  # a node joined: torch's number stays
            env = {"DLROVER_ATTEMPT": str(attempt), "TORCHELASTIC_RESTART_COUNT": "0"}
            env["TORCHELASTIC_RUN_ID"] = "job"
            dest = specs.reify({0: env})
            Path(dest.stdouts[0]).write_text(str(attempt))
            assert env["TORCHELASTIC_RESTART_COUNT"] == "0"
            assert env["TORCHELASTIC_ERROR_FILE"] == dest.error_files[0]
            made.append(Path(dest.stdouts[0]))
        assert [path.read_text() for path in made] == ["0", "1"]


class TestDevices:
    @pytest.mark.parametrize("workers,said", [(3, True), (2, False)])
    def test_more_workers_than_devices_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, said: bool
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
        lines: list[str] = []
        config_of(settings(f"--nproc-per-node={workers}"), tmp_path / "run", lines.append)
        expected = ["3 workers share 2 devices; lower --nproc-per-node for one each"]
        assert lines == (expected if said else [])

    def test_auto_is_what_the_node_has(
        self, config: Callable[[str], LaunchConfig], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch._utils, "cpu_count", lambda: 7)
        assert config("--nproc-per-node=cpu").nproc_per_node == 7

    def test_what_it_has_not_is_refused(self, config: Callable[[str], LaunchConfig]) -> None:
        with pytest.raises(ConfigError) as caught:
            config("--nproc-per-node=gpu")
        assert "Cuda is not available" in caught.value.message
        assert caught.value.hint

    def test_numa_binding_without_a_gpu_is_refused(
        self, config: Callable[[str], LaunchConfig]
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            config("--numa-binding=node")
        assert "torch sees no GPU here" in caught.value.message
        assert caught.value.hint
