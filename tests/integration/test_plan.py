"""`--dry_run` shows what a run does, and does nothing; `--compat=torchrun` hands it to torch."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.launcher import Finished, Launcher
from tests.harness.processes import TOKEN_VARIABLE
from tests.harness.scripts import Scripts
from tests.integration.jobs import free_port

Launch = Callable[..., Finished]


def plan_of(launch: Launch, argv: list[Any], **options: Any) -> dict[str, Any]:
    """The one document that `--dry_run --json` prints."""
    finished = launch(["--dry_run", "--json", *argv], **options)
    assert finished.returncode == 0, finished
    assert finished.stderr == "", finished
    document = json.loads(finished.stdout)
    assert isinstance(document, dict)
    return document


def is_known(value: str) -> bool:
    return not value.startswith("(")


class TestTruth:
    @pytest.mark.parametrize(
        "argv,env",
        [
            (["--nproc-per-node=2", "--max-restarts=3"], {}),
            (["--master-port=PORT", "--role=tr", "--local-addr=localhost"], {"RANK": "9"}),
            pytest.param(
                ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:PORT", "--rdzv-id=seven"],
                {"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "OMP_NUM_THREADS": "5"},
                marks=pytest.mark.full,
            ),
            pytest.param(
                ["--standalone", "--nproc-per-node=2", "--virtual-local-rank"],
                {"CUDA_VISIBLE_DEVICES": "5,3", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"},
                marks=pytest.mark.full,
            ),
            pytest.param(["--compat=torchrun", "--nproc-per-node=2"], {}, marks=pytest.mark.full),
        ],
    )
    def test_each_rank_gets_the_command_and_the_environment_of_the_plan(
        self,
        launcher: Launcher,
        scripts: Scripts,
        argv: list[str],
        env: dict[str, str],
    ) -> None:
        argv = [arg.replace("PORT", str(free_port())) for arg in argv]
        argv += [str(scripts.environment()), "--lr", "${local_rank}"]
        planned = plan_of(launcher.launch, argv, env=env)["ranks"]
        finished = launcher.launch(argv, env=env)
        assert finished.returncode == 0, finished
        given = launcher.environment(env)
        seen = scripts.facts("environment")
        assert [rank["local_rank"] for rank in planned] == list(range(len(seen)))
        for rank, worker in zip(planned, seen, strict=True):
            assert rank["command"] == worker["orig_argv"]
            planned_env, real = rank["env"], worker["env"]
            assert {n: real.get(n) for n, v in planned_env.items() if is_known(v)} == {
                name: value for name, value in planned_env.items() if is_known(value)
            }
            set_for_it = {name for name, value in real.items() if given.get(name) != value}
            assert set_for_it - {TOKEN_VARIABLE} <= set(planned_env)
            assert set(planned_env) <= set(real), "nothing is planned that does not happen"

    def test_what_is_not_known_before_the_nodes_meet_says_so(
        self, launch: Launch, scripts: Scripts
    ) -> None:
        argv = ["--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=nowhere.invalid:1"]
        [rank] = plan_of(launch, [*argv, scripts.hello()])["ranks"]
        unknown = {name for name, value in rank["env"].items() if "rendezvous" in value}
        assert unknown == {
            *("RANK", "ROLE_RANK", "GROUP_RANK", "WORLD_SIZE", "ROLE_WORLD_SIZE"),
            *("GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        }

    @pytest.mark.parametrize(
        "options, lives_in_a_node",
        [
            (["--rdzv-backend=dlrover"], True),
            (["--rdzv-backend=dlrover", "--rdzv-conf=is_host=0"], False),
            (["--rdzv-backend=c10d"], True),
        ],
    )
    def test_it_is_said_when_the_job_depends_on_one_node(
        self, options: list[str], lives_in_a_node: bool, launch: Launch, scripts: Scripts
    ) -> None:
        argv = ["--nnodes=2", "--rdzv-endpoint=localhost:29400", *options, scripts.hello()]
        notes = plan_of(launch, argv)["notes"]
        assert any("rendezvous serve" in note for note in notes) is lives_in_a_node


class TestDoingNothing:
    def test_no_directory_and_no_worker_is_made(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        script = scripts.environment()
        before = set(os.listdir(tmp_path))
        plan_of(launch, [f"--log-dir={tmp_path}/logs", "-r3", script])
        assert set(os.listdir(tmp_path)) == before

    @pytest.mark.parametrize(
        "argv,words",
        [
            (["--nnodes=3:2", "hello.py"], "minimum"),
            (["helo.py"], "'hello.py'?"),
            (["--nnodes=2", "--rdzv-backend=c10", "hello.py"], "'c10d'?"),
            (["--event-log-handler=x", "hello.py"], "console"),
            (["--log-dir=hello.py/x", "hello.py"], "--log-dir"),
            (["--metrics_handler=no::X", "hello.py"], "--metrics_handler=no::X"),
            (["--compat=torchrun", "--metrics_handler=no::X", "hello.py"], "no effect"),
        ],
    )
    def test_a_plan_is_refused_where_the_run_would_be(
        self, launch: Launch, scripts: Scripts, argv: list[str], words: str
    ) -> None:
        scripts.hello()
        finished = launch(["--dry_run", *argv])
        assert finished.returncode == 2, finished
        assert finished.stdout == ""
        assert words in finished.stderr
        assert "Traceback" not in finished.stderr

    def test_what_is_wrong_in_a_file_is_told_with_its_line(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        (tmp_path / "dlrover.toml").write_text('max_restarts = 2\nmetrics_handler = "no::X"\n')
        for also in ([], ["--dry_run"]):
            finished = launch([*also, scripts.hello()])
            assert finished.returncode == 2, finished
            assert "error: dlrover.toml:2: metrics_handler=no::X: there is" in finished.stderr

    def test_settings_say_where_they_came_from(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        (tmp_path / "dlrover.toml").write_text('max_restarts = 2\nrole = "file"\n')
        env = {"PET_ROLE": "pet", "DLROVER_MONITOR_INTERVAL": "0.5"}
        plan = plan_of(launch, ["--nproc-per-node=2", scripts.hello()], env=env)
        settings = {
            each["name"]: (each["value"], each["source"]["kind"], each["source"]["where"])
            for each in plan["settings"]
        }
        assert settings["nproc_per_node"] == ("2", "flag", "--nproc-per-node")
        assert settings["role"] == ("pet", "environment", "PET_ROLE")
        assert settings["monitor_interval"] == (0.5, "environment", "DLROVER_MONITOR_INTERVAL")
        assert settings["max_restarts"] == (2, "file", "dlrover.toml:max_restarts")
        assert settings["nnodes"] == ("1:1", "default", "")

    def test_the_plan_for_a_person(self, launch: Launch, scripts: Scripts) -> None:
        finished = launch(["--dry_run", "--nproc-per-node=2", scripts.hello(), "--lr", "0.1"])
        assert finished.returncode == 0, finished
        for words in ("nproc_per_node", "RANK", "torchrun --nproc-per-node=2", "--lr 0.1"):
            assert words in finished.stdout


class TestCompat:
    """Torch's own launcher, for bisecting blame."""

    def test_it_is_torchs_launcher_with_torchs_exit_code(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        finished = launch(["--compat=torchrun", "--nproc-per-node=2", scripts.crash(rank=1, how=7)])
        assert finished.returncode == 1, finished
        assert "torch/distributed" in finished.stderr
        assert not (tmp_path / "state").exists(), "no run directory"

    def test_settings_from_every_source_reach_it(
        self, launch: Launch, scripts: Scripts, tmp_path: Path
    ) -> None:
        (tmp_path / "dlrover.toml").write_text('role = "file"\n')
        # The variable is what torchrun would read; ours, a default, wins over it.
        env = {"PET_NPROC_PER_NODE": "3", "DLROVER_NPROC_PER_NODE": "1", "PET_NO_PYTHON": "1"}
        env |= {"DLROVER_NO_PYTHON": "0", "DLROVER_MAX_RESTARTS": "2"}
        finished = launch(["--compat=torchrun", scripts.environment(), "--x"], env=env)
        assert finished.returncode == 0, finished
        [seen] = scripts.facts("environment")
        assert seen["env"]["ROLE_NAME"] == "file"
        assert seen["env"]["TORCHELASTIC_MAX_RESTARTS"] == "2"
        assert seen["env"]["WORLD_SIZE"] == "1"
        assert "DLROVER_ATTEMPT" not in seen["env"]

    def test_what_torchrun_cannot_do_is_refused(self, launch: Launch, scripts: Scripts) -> None:
        finished = launch(["--compat=torchrun", "--rdzv_handler=a::B", scripts.hello()])
        assert finished.returncode == 2, finished
        assert "--rdzv-handler has no effect" in finished.stderr

    def test_what_torchrun_knows_nothing_of_is_named(
        self, launch: Launch, scripts: Scripts
    ) -> None:
        argv = ["--compat=torchrun", "--hang_timeout=60", scripts.hello()]
        finished = launch(argv, env={"DLROVER_MAX_JOB_RESTARTS": "5"})
        assert finished.returncode == 0, finished
        line = "without effect under --compat=torchrun: DLROVER_MAX_JOB_RESTARTS, --hang-timeout"
        assert line in finished.stderr
