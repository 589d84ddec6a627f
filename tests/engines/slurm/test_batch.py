"""What sbatch is asked for: the whole script, and a sentence for what it may not be asked."""

import re
import sys

import pytest

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import ConfigError
from dlrover_cli.platforms.slurm.batch import make_batch, node_request, without_overrides

GOLDEN = """\
#!/bin/sh
#SBATCH --job-name=train
#SBATCH --nodes=2-4
#SBATCH --cpus-per-task=8
#SBATCH --chdir=/home/me/project
#SBATCH --output=/state/runs/RUN/slurm/stdout.log
#SBATCH --error=/state/runs/RUN/slurm/stderr.log
#SBATCH --open-mode=append
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --signal=B:USR1@60
#SBATCH --partition=gpu
#SBATCH --gres=gpu:8
#SBATCH --time=1-00:00:00
#SBATCH --comment='a job of mine'
#SBATCH --exclusive

# The manager of the job; it starts one agent on each node.
trap '' USR1  # until it can take it
export DLROVER_RUN_ID=RUN
exec python launcher.py --nnodes=2:3 --nproc-per-node=8 --platform=slurm \
--slurm-arg=partition=gpu --slurm-arg=gres=gpu:8 --slurm-arg=time=1-00:00:00 \
'--slurm-arg=comment=a job of mine' --slurm-arg=exclusive --slurm-arg=spares=1 \
-- train.py --epochs 3 'a b'
"""
_ARGS = (
    *("partition=gpu", "gres=gpu:8", "time=1-00:00:00", "comment=a job of mine", "exclusive"),
    "spares=1",
)


def settings(*slurm_args: str, **others: object) -> LaunchSettings:
    sources = {"slurm_arg": Source(SourceKind.FLAG, "--slurm-arg")}
    values = {"training_script": "train.py", "platform": "slurm", **others}
    return LaunchSettings(slurm_arg=slurm_args, sources=sources, **values)  # type: ignore[arg-type]


def batch(*slurm_args: str, **others: object):
    return make_batch(
        settings(*slurm_args, **others),
        directory="/home/me/project",
        log_directory="/state/runs/RUN/slurm",
        launcher=["python", "launcher.py"],
        environ={"DLROVER_RUN_ID": "RUN"},
    )


def test_the_script_asks_for_the_nodes_and_runs_the_manager():
    made = batch(
        *_ARGS,
        nnodes="2:3",
        nproc_per_node="8",
        training_script_args=("--epochs", "3", "a b"),
    )
    # What is exclusive needs no number of CPUs.
    assert made.script() == GOLDEN.replace("#SBATCH --cpus-per-task=8\n", "")


@pytest.mark.full
def test_dry_run_shows_the_script_and_submits_nothing(launch, tmp_path):
    (tmp_path / "train.py").touch()
    finished = launch(
        ["--platform=slurm", "--nnodes=2", "--slurm_arg=partition=main", "--dry-run", "train.py"]
    )
    assert finished.returncode == 0, finished
    lines = finished.stdout.splitlines()
    assert lines[:3] == [
        "#!/bin/sh",
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=2",
    ]
    assert lines[-1].startswith(f"exec {sys.executable}")
    assert lines[-1].endswith("--platform=slurm --slurm-arg=partition=main -- train.py")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "text, message, hint",
    [
        ("nodes=3", "cannot set 'nodes': --nnodes says how many nodes", "Leave it out."),
        ("ntasks=3", "cannot set 'ntasks': each node gets one agent", "Leave it out."),
        ("output=x", "cannot set 'output': the output of the job is kept", "Leave it out."),
        ("partion=x", "names 'partion', which is not an option", "Did you mean partition?"),
        ("partition", "has no value for 'partition'", "--slurm-arg=partition=VALUE"),
        ("partition=", "has no value for 'partition'", "--slurm-arg=partition="),
        ("spares=x", "takes a number for 'spares'", "--slurm-arg=spares=1"),
        ("comment=a\nb", "has a line break in 'comment'", "one line"),
    ],
)
def test_what_sbatch_may_not_be_asked_is_refused(text, message, hint):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        batch(text)
    assert hint in caught.value.hint


def test_an_option_is_given_once():
    with pytest.raises(ConfigError, match="names 'partition' twice"):
        batch("partition=a", "-p=b")


def test_resources_become_options_of_sbatch():
    options = batch(resources="cpu=4,memory=8Gi,nvidia.com/gpu=2", nproc_per_node="2").options
    assert options["cpus-per-task"] == "4"
    assert options["mem"] == "8G"
    assert options["gres"] == "gpu:2"
    with pytest.raises(ConfigError, match="both say what --mem is"):
        batch("mem=1G", resources="memory=8Gi")


def test_the_warning_comes_early_enough_for_the_workers_to_end():
    assert batch().options["signal"] == "B:USR1@60"
    assert batch(shutdown_timeout=300).options["signal"] == "B:USR1@330"


def test_a_job_that_must_not_be_requeued_is_not():
    options = batch("no-requeue").options
    assert "no-requeue" in options
    assert "requeue" not in options


def test_variables_of_sbatch_do_not_override_what_the_script_says():
    environ = {"SBATCH_PARTITION": "a", "SBATCH_ACCOUNT": "b", "SBATCH_NO_REQUEUE": "1"}
    assert without_overrides(environ, {"partition": "x"}) == {"SBATCH_ACCOUNT": "b"}


def test_one_more_node_is_asked_for_as_the_others_were():
    options = node_request(settings(*_ARGS, "nodelist=n1", nnodes="2:3"))
    assert options == {
        "job-name": "train-node",
        "nodes": "1",
        "output": "/dev/null",
        "requeue": None,
        "partition": "gpu",
        "gres": "gpu:8",
        "time": "1-00:00:00",
        "comment": "a job of mine",
        "exclusive": None,
    }
