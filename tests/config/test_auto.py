"""What follows from --auto-config and --numa-affinity, and what does not."""

from pathlib import Path

import pytest

from dlrover_cli.config.auto import has_gpus, with_what_follows
from dlrover_cli.config.derive import check_settings
from dlrover_cli.config.resolve import resolve_settings
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import SourceKind
from dlrover_cli.errors import ConfigError


def resolved(tmp_path: Path, *, gpus: bool = False, environ: dict[str, str], **flags: object):
    given = {"training_script": "train.py", **flags}
    settings = resolve_settings(given, environ, tmp_path)
    return with_what_follows(settings, environ, lambda _: gpus)


def test_nothing_follows_from_nothing(tmp_path: Path) -> None:
    settings = resolved(tmp_path, environ={"NODE_NUM": "8"}, gpus=True)
    assert (settings.nnodes, settings.nproc_per_node, settings.network_check) == ("1:1", "1", False)


def test_nodes_come_from_the_environment_and_say_so(tmp_path: Path) -> None:
    settings = resolved(tmp_path, environ={"NODE_NUM": "2"}, auto_config=True)
    assert settings.nnodes == "2"
    assert str(settings.source_of("nnodes")) == "NODE_NUM"
    assert not settings.network_check


def test_four_nodes_are_checked(tmp_path: Path) -> None:
    settings = resolved(tmp_path, environ={"NODE_NUM": "4"}, auto_config=True)
    assert settings.network_check
    assert settings.source_of("network_check").kind is SourceKind.DERIVED
    assert str(settings.source_of("network_check")) == "--auto-config"


def test_what_a_person_said_goes_before(tmp_path: Path) -> None:
    environ = {"NODE_NUM": "8"}
    settings = resolved(
        tmp_path, environ=environ, gpus=True, auto_config=True, nnodes="2", nproc_per_node="3"
    )
    assert (settings.nnodes, settings.nproc_per_node, settings.network_check) == ("2", "3", False)


def test_there_is_a_worker_for_each_gpu_where_there_are_any(tmp_path: Path) -> None:
    assert resolved(tmp_path, environ={}, auto_config=True).nproc_per_node == "1"
    assert resolved(tmp_path, environ={}, gpus=True, auto_config=True).nproc_per_node == "gpu"


def test_a_number_of_nodes_that_is_none_is_refused_in_its_own_name(tmp_path: Path) -> None:
    settings = resolved(tmp_path, environ={"NODE_NUM": "many"}, auto_config=True)
    with pytest.raises(ConfigError, match="NODE_NUM takes a number"):
        check_settings(settings)


def test_numa_affinity_is_a_binding_to_the_node_unless_there_is_another(tmp_path: Path) -> None:
    settings = resolved(tmp_path, environ={}, numa_affinity=True)
    assert settings.numa_binding == "node"
    assert str(settings.source_of("numa_binding")) == "--numa-affinity"
    assert resolved(
        tmp_path, environ={}, numa_affinity=True, numa_binding="socket"
    ).numa_binding == ("socket")


def test_devices_that_are_hidden_are_not_there(tmp_path: Path) -> None:
    assert not has_gpus({}, tmp_path)
    (tmp_path / "nvidia0").touch()
    assert has_gpus({}, tmp_path)
    assert not has_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path)


class TestNodeUnit:
    @pytest.mark.parametrize(
        "flags",
        [
            {"nnodes": "4", "node_unit": 2},
            {"nnodes": "1:5", "node_unit": 2, "rdzv_backend": "dlrover"},
            {"nnodes": "1:5", "node_unit": 1},
        ],
    )
    def test_what_can_be_kept_to_is_accepted(self, flags: dict[str, object]) -> None:
        check_settings(LaunchSettings(training_script="train.py", **flags))  # type: ignore[arg-type]

    def test_a_rendezvous_that_does_not_count_in_units_is_refused(self) -> None:
        settings = LaunchSettings(
            training_script="train.py", nnodes="2:4", node_unit=2, rdzv_backend="c10d"
        )
        with pytest.raises(ConfigError, match="cannot be kept to by --rdzv-backend=c10d"):
            check_settings(settings)

    @pytest.mark.parametrize("nnodes", ["3", "5:7"])
    def test_bounds_without_a_multiple_are_refused(self, nnodes: str) -> None:
        settings = LaunchSettings(
            training_script="train.py", nnodes=nnodes, node_unit=4, rdzv_backend="dlrover"
        )
        with pytest.raises(ConfigError, match="no multiple of it lies within"):
            check_settings(settings)
