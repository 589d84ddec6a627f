"""What a job on Ray asks for, and what is said of how Ray is deployed. Needs no Ray."""

import subprocess
import sys

import pytest

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.contracts.manager import EngineMode, Ground
from dlrover_cli.errors import ConfigError, LaunchError
from dlrover_cli.platforms.ray.connecting import address_of, import_ray
from dlrover_cli.platforms.ray.deployment import deployment_of
from dlrover_cli.platforms.ray.launch import needed, plan
from dlrover_cli.platforms.ray.resources import actor_options, resources_of


def settings(**values: str | bool) -> LaunchSettings:
    return LaunchSettings(training_script="train.py", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text, workers, wanted",
    [
        ("", "4", {"CPU": 4.0}),
        ("", "gpu", {"CPU": 1.0}),
        ("cpu=2", "4", {"CPU": 2.0}),
        ("cpu=500m,memory=8Gi", "1", {"CPU": 0.5, "memory": 8 * 2.0**30}),
        ("nvidia.com/gpu=8", "8", {"CPU": 8.0, "GPU": 8.0}),
        ("gpu=1, fast_disk=1", "1", {"CPU": 1.0, "GPU": 1.0, "fast_disk": 1.0}),
    ],
)
def test_resources_become_what_ray_calls_them(text: str, workers: str, wanted: dict[str, float]):
    assert resources_of(settings(resources=text, nproc_per_node=workers)) == wanted


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=1", "cpu=many", "cpu=-1", "memory=8Q"])
def test_a_quantity_that_is_none_is_quoted(text: str):
    with pytest.raises(ConfigError, match=r"takes NAME=QUANTITY, not '") as caught:
        resources_of(settings(resources=text))
    assert text in caught.value.message


def test_an_actor_asks_by_rays_own_words():
    options = actor_options({"CPU": 2.0, "GPU": 1.0, "memory": 1e9, "disk": 1.0})
    assert options == {"num_cpus": 2.0, "num_gpus": 1.0, "memory": 1e9, "resources": {"disk": 1.0}}


def test_the_address_is_asked_for_then_found_then_guessed():
    assert address_of("10.0.0.1:6379", {"RAY_ADDRESS": "other:1"}) == "10.0.0.1:6379"
    assert address_of("", {"RAY_ADDRESS": "other:1"}) == "other:1"
    assert address_of("", {}) == "auto"


def test_an_address_of_rays_client_is_refused_with_a_way_out():
    with pytest.raises(ConfigError, match="could not reach this process") as caught:
        address_of("ray://head:10001", {})
    assert "dlrover-job submit" in (caught.value.hint or "")


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(LaunchError, match="--platform=ray needs Ray") as caught:
        import_ray()
    assert "dlrover-cli[ray]" in (caught.value.hint or "")


def test_modules_of_the_platform_do_not_import_ray():
    program = (
        "import sys, dlrover_cli.platforms.ray.launch, dlrover_cli.platforms.ray.plugin\n"
        "assert 'ray' not in sys.modules and 'torch' not in sys.modules"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    "environ, address, ground, mode",
    [
        ({}, "auto", Ground.MACHINES, EngineMode.UNKNOWN),
        ({}, "local", Ground.MACHINES, EngineMode.JOB),
        ({"RAY_CLUSTER_NAME": "c"}, "auto", Ground.KUBERNETES, EngineMode.CLUSTER),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "h:1", Ground.KUBERNETES, EngineMode.UNKNOWN),
        (
            {"RAY_CLUSTER_NAME": "c", "RAY_USAGE_STATS_EXTRA_TAGS": "kuberay_crd=RayJob"},
            "auto",
            Ground.KUBERNETES,
            EngineMode.JOB,
        ),
    ],
)
def test_how_ray_is_deployed_is_read_from_the_environment(
    environ: dict[str, str], address: str, ground: Ground, mode: EngineMode
):
    found = deployment_of(environ, address, 3)
    assert (found.engine, found.ground, found.mode) == ("ray", ground, mode)
    assert found.facts == {**environ, "address": address, "nodes": "3"}


def test_what_has_to_be_on_every_node_depends_on_what_runs():
    script = needed(settings(), {})
    assert script["files"][-1] == "train.py"
    module = needed(settings(module=True), {})
    assert "train.py" not in module["files"]
    assert module["modules"] == ["torch", "train.py"]
    program = needed(settings(no_python=True), {"PATH": "/bin"})
    assert (program["program"], program["path"]) == ("train.py", "/bin")


def test_the_plan_names_nodes_resources_and_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    text = plan(settings(nnodes="2:3", nproc_per_node="2"), ["--nnodes=2:3", "train.py"])
    assert "nodes         2 to 3, one agent on each" in text
    assert "each agent    CPU=2" in text
    assert "--nnodes=2:3 train.py" in text
