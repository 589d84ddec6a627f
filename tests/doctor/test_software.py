"""The launcher on the PATH, torch, devices, engines."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.doctor import engines, software
from dlrover_cli.doctor.commands import Ran
from dlrover_cli.doctor.engines import check_kubernetes, check_ray, check_slurm
from dlrover_cli.doctor.finding import Level
from dlrover_cli.doctor.software import check_launcher, check_python
from dlrover_cli.doctor.torch_probe import check_torch
from tests.doctor.machines import answers, machine, raising, write

OURS = f"#!{sys.executable}\nfrom dlrover_cli.cli.run import console\n"
THEIRS = f"#!{sys.executable}\nfrom dlrover.trainer.torch.main import main\n"
ANOTHER_PYTHON = OURS.replace(sys.executable, "/opt/conda/bin/python")
TORCH = {
    "version": "2.13.0+cpu",
    "seconds": 1.0,
    "cuda_build": None,
    "cuda": 0,
    "xpu": 0,
    "backends": ["gloo"],
}


def programs(root: Path, **texts: str) -> dict[str, str]:
    """A PATH with a program dlrover-run in each folder, in their order."""
    for folder, text in texts.items():
        write(root, {f"{folder}/dlrover-run": text})
        (root / folder / "dlrover-run").chmod(0o755)
    return {"PATH": ":".join(str(root / folder) for folder in texts)}


@pytest.mark.parametrize(
    "texts, level, words",
    [
        ({"a": OURS}, Level.OK, "dlrover-cli"),
        ({}, Level.WARNING, "no dlrover-run on the PATH"),
        ({"a": THEIRS, "b": OURS}, Level.PROBLEM, "another program"),
        ({"a": OURS, "b": THEIRS}, Level.OK, "dlrover-cli"),
        ({"a": ANOTHER_PYTHON}, Level.WARNING, "another Python"),
    ],
)
def test_what_somebody_gets_who_types_dlrover_run(
    tmp_path: Path, texts: dict[str, str], level: Level, words: str
) -> None:
    [found] = check_launcher(machine(tmp_path, environ=programs(tmp_path, **texts)))
    assert found.level is level
    assert words in found.seen


def test_the_package_with_the_same_script_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "installed_version", lambda package: "0.9.1")
    _, both = check_launcher(machine(tmp_path, environ=programs(tmp_path, a=OURS)))
    assert both.level is Level.WARNING
    assert "dlrover 0.9.1" in both.seen


def test_python_is_named(tmp_path: Path) -> None:
    [found] = check_python(machine(tmp_path))
    assert sys.executable in found.seen


def torch(root: Path, *, gpus: int = 0, **facts: Any) -> list[Any]:
    """What is said of a torch like this, on a machine with files of so many GPUs."""
    write(root, {f"/dev/nvidia{number}": "" for number in range(gpus)} | {"/dev/nvidiactl": ""})
    seen = {**TORCH, **{name: facts.pop(name) for name in list(facts) if name in TORCH}}
    ran = Ran(0, f"some noise\ndlrover-doctor {json.dumps(seen)}\n")
    return list(check_torch(machine(root, run=answers(ran), **facts)))


def test_a_tested_torch_on_cpus_is_fine(tmp_path: Path) -> None:
    version, devices = torch(tmp_path)
    assert version.level is devices.level is Level.OK
    assert "no accelerator" in devices.seen


def test_gpus_that_torch_sees_are_counted(tmp_path: Path) -> None:
    _, devices = torch(tmp_path, gpus=2, cuda=2, cuda_build="13.0", backends=["gloo", "nccl"])
    assert devices.seen == "torch sees 2 GPUs"


@pytest.mark.parametrize(
    "facts, words",
    [
        ({"gpus": 2}, "built for CPUs"),
        ({"gpus": 2, "cuda_build": "13.0"}, "of which torch sees none"),
        ({"flags": {"nproc_per_node": "gpu"}}, "none of the kind that --nproc-per-node"),
        ({"flags": {"nproc_per_node": "xpu"}}, "none of the kind"),
    ],
)
def test_devices_that_cannot_be_used_are_a_problem(
    tmp_path: Path, facts: dict[str, Any], words: str
) -> None:
    _, devices = torch(tmp_path, **facts)
    assert devices.level is Level.PROBLEM
    assert words in devices.seen


def test_gpus_that_are_hidden_on_purpose_are_no_problem(tmp_path: Path) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": ""}
    _, devices = torch(tmp_path, gpus=2, cuda_build="13.0", environ=environ)
    assert devices.level is Level.OK


def test_another_release_of_torch_is_a_warning(tmp_path: Path) -> None:
    assert torch(tmp_path, version="2.14.0")[0].level is Level.WARNING
    assert torch(tmp_path, version="2.130.0")[0].level is Level.WARNING
    assert torch(tmp_path, backends=[])[0].level is Level.PROBLEM


@pytest.mark.parametrize(
    "ran, words",
    [
        (Ran(None), "was not imported within"),
        (Ran(1, "", "Traceback\nModuleNotFoundError: No module named 'torch'\n"), "No module"),
        (Ran(-11), "exit code -11"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_a_problem(tmp_path: Path, ran: Ran, words: str) -> None:
    [found] = check_torch(machine(tmp_path, run=answers(ran)))
    assert found.level is Level.PROBLEM
    assert words in found.seen


def with_slurm(root: Path, ran: Ran, **facts: Any) -> Any:
    write(root, {"bin/sbatch": "#!/bin/sh\n"})
    (root / "bin/sbatch").chmod(0o755)
    environ = {"PATH": str(root / "bin")}
    [found] = check_slurm(machine(root, environ=environ, run=answers(ran), **facts))
    return found


UP = Ran(0, "Slurmctld(primary) at head is UP\n")
DOWN = Ran(1, "Slurmctld(primary) at head is DOWN\n")
WANTS_SLURM = {"flags": {"platform": "slurm"}}


@pytest.mark.parametrize(
    "ran, facts, level",
    [
        (UP, WANTS_SLURM, Level.OK),
        (DOWN, {}, Level.WARNING),
        (DOWN, WANTS_SLURM, Level.PROBLEM),
        (Ran(None), WANTS_SLURM, Level.PROBLEM),
    ],
)
def test_slurm_is_judged_by_its_controller_and_by_who_wants_it(
    tmp_path: Path, ran: Ran, facts: dict[str, Any], level: Level
) -> None:
    assert with_slurm(tmp_path, ran, **facts).level is level


@pytest.mark.parametrize("check", [check_slurm, check_ray, check_kubernetes])
def test_an_engine_that_is_absent_matters_to_who_wants_it_only(
    tmp_path: Path, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "installed_version", lambda package: None)
    name = check.__name__.removeprefix("check_")
    facts: dict[str, Any] = {"environ": {"PATH": "/nowhere"}}
    [unwanted] = check(machine(tmp_path, **facts))
    [wanted] = check(machine(tmp_path, flags={"platform": name}, **facts))
    assert (unwanted.level, wanted.level) == (Level.OK, Level.PROBLEM)
    assert wanted.fix


@pytest.mark.parametrize(
    "answer, level",
    [
        ({"version": "v1.37.0"}, Level.OK),
        ({"none": "no cluster is configured", "hint": "set KUBECONFIG"}, Level.OK),
        ({"error": "MaxRetryError: refused"}, Level.WARNING),
    ],
)
def test_kubernetes_is_judged_by_what_its_server_says(
    tmp_path: Path, answer: dict[str, str], level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "installed_version", lambda package: "37.0.2")
    ran = Ran(0, f"dlrover-doctor {json.dumps(answer)}\n")
    [found] = check_kubernetes(machine(tmp_path, run=answers(ran)))
    assert found.level is level


def test_ray_is_judged_by_whether_its_cluster_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "installed_version", lambda package: "2.60.0")
    write(tmp_path, {"/tmp/ray/ray_current_cluster": "10.0.0.1:6379"})
    [there] = check_ray(machine(tmp_path))
    [gone] = check_ray(machine(tmp_path, reach=raising(ConnectionRefusedError(111, "refused"))))
    assert there.level is Level.OK
    assert "10.0.0.1:6379" in there.seen
    assert gone.level is Level.WARNING
