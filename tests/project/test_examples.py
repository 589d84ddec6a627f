"""The examples run, under torchrun and under dlrover-run alike."""

import re
import subprocess
import sys

import pytest

from tests.project.documents import ROOT

TRAIN = ROOT / "examples" / "train_ddp.py"
CI_JOB = ROOT / "examples" / "ci_job.sh"
STANDALONE = ["--standalone", "--nproc-per-node=2"]
# torchrun's workers share a store across attempts unless told, and then may never meet again.
TORCHRUN_RECOVERY = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# On a busy machine torchrun may not recover, whatever its variables say, and its workers may abort
# in gloo's threads once all work is done: not a matter of every run.
LAUNCHERS = pytest.mark.parametrize(
    "command", [pytest.param("torchrun", marks=pytest.mark.soak), "dlrover-run"]
)
EPOCH = re.compile(r"^epoch (\d)/\d: loss ([\d.]+), step (\d+)$", re.MULTILINE)


@LAUNCHERS
def test_ddp_training_learns(launch, command):
    finished = launch([*STANDALONE, TRAIN, "--epochs", "2"], command=command)
    assert finished.returncode == 0, finished
    epochs = EPOCH.findall(finished.stdout)
    assert [(epoch, step) for epoch, _loss, step in epochs] == [("1", "8"), ("2", "16")]
    assert float(epochs[1][1]) < float(epochs[0][1])


@LAUNCHERS
def test_ddp_training_goes_on_from_its_checkpoint_after_a_crash(launch, tmp_path, command):
    checkpoint = tmp_path / "ddp.pt"
    training = [TRAIN, "--epochs", "3", "--checkpoint", checkpoint]
    crash = ["--crash-at-step", "12", "--crash-rank", "1"]
    finished = launch(
        [*STANDALONE, "--max-restarts=1", *training, *crash],
        command=command,
        env=TORCHRUN_RECOVERY if command == "torchrun" else {},
    )
    assert finished.returncode == 0, finished
    assert "resumed after epoch 1\n" in finished.stdout
    assert [epoch for epoch, _loss, _step in EPOCH.findall(finished.stdout)] == ["1", "2", "3"]
    assert "asked to crash at step 12" in finished.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("ddp.pt")] == [
        "ddp.pt"
    ]


@pytest.mark.full
def test_a_resumed_training_gives_the_losses_of_an_undisturbed_one(launch, tmp_path):
    losses = []
    for name, crash in (("calm", []), ("crash", ["--crash-at-step", "9", "--crash-rank", "0"])):
        finished = launch(
            [*STANDALONE, "--max-restarts=1", TRAIN, "--checkpoint", tmp_path / name, *crash]
        )
        assert finished.returncode == 0, finished
        losses.append([loss for _epoch, loss, _step in EPOCH.findall(finished.stdout)])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    "launcher_code, job_code, words",
    [
        (0, 0, "succeeded"),
        (1, 1, "failed with exit code 1"),
        (2, 2, "mend the job"),
        (7, 7, "failed with exit code 7"),
        (80, 80, "giving up after 2 tries"),
        (82, 82, "do not retry"),
        (83, 83, "budget was spent"),
        (84, 84, "budget was spent"),
        (85, 85, "giving up after 2 tries"),
        (137, 137, "SIGKILL"),
        (143, 143, "cancelled"),
        (250, 250, "failed with exit code 250"),
    ],
)
def test_the_ci_job_acts_on_the_exit_code(tmp_path, launcher_code, job_code, words):
    stub = tmp_path / "launcher"
    stub.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\nexit {launcher_code}\n")
    stub.chmod(0o755)
    finished = subprocess.run([CI_JOB], env={"LAUNCHER": str(stub)}, capture_output=True, text=True)
    assert finished.returncode == job_code
    assert words in finished.stderr
    runs = (tmp_path / "runs").read_text().count("run")
    assert runs == (2 if launcher_code in (80, 81, 85) else 1)


def test_the_ci_job_trains(launch):
    launcher = f"{sys.prefix}/bin/dlrover-run"
    finished = launch(["--epochs", "1"], command=[str(CI_JOB)], env={"LAUNCHER": launcher})
    assert finished.returncode == 0, finished
    assert "epoch 1/1" in finished.stdout
    assert "training succeeded" in finished.stderr
