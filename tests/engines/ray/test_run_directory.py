"""The run directory has everything, also of nodes that cannot write to it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.ray.jobs import RayJobs
from tests.harness.processes import TOKEN_VARIABLE
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture
def node_elsewhere(jobs: RayJobs, tmp_path: Path) -> Iterator[str]:
    """A node where the state directory is another one, and empty; its resource is `elsewhere`."""
    state = tmp_path / "state"
    state.mkdir()
    start = (
        "mount -t tmpfs none " + str(state) + " && exec ray start --block --num-cpus=1 "
        "--node-ip-address=127.0.0.1 --object-store-memory=80000000 "
        """--resources='{"elsewhere": 1}' --address=""" + jobs.engine.address
    )
    environ = {
        **os.environ,
        **jobs.engine.environ(),
        TOKEN_VARIABLE: jobs.engine.token,
        "PATH": f"{jobs.engine.programs}:{os.environ['PATH']}",
    }
    process = subprocess.Popen(
        ["unshare", "-m", *jobs.engine.command("sh", "-c", start)],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    jobs.engine.wait_for("elsewhere")
    yield "elsewhere"
    process.terminate()
    process.wait(20)


def test_output_and_events_are_brought_over_from_a_node_without_the_run_directory(
    jobs: RayJobs, node_elsewhere: str
):
    running = jobs.start("--nnodes=1", f"--resources={node_elsewhere}=1", steps=8)
    finished = running.finish(90)
    assert finished.returncode == 0, finished
    [node] = [p for p in (jobs.run_directory() / "nodes").iterdir() if p.name != "manager"]
    assert (node / "logs/attempt_0/0/stdout.log").read_text() == (
        "rank 0 of 1 goes on after step 0\n"
    )
    kinds = [json.loads(line)["kind"] for line in (node / "events.jsonl").open()]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_finished"
    assert json.loads((node / "result.json").read_text())["outcome"] == "succeeded"
    assert jobs.result()["attempts"] == 1  # as the node's own result says
    assert "rank 0 of 1 goes on after step 0" in finished.stdout
    eventually(lambda: not list(Path("/tmp").glob("dlrover-*/" + jobs.run_directory().name)), 5)


def test_a_node_without_the_script_is_named(jobs: RayJobs, tmp_path: Path, node_elsewhere: str):
    """The script is in the state directory, which that node does not have."""
    script = tmp_path / "state" / "train.py"
    script.write_text("raise SystemExit('never started')")
    finished = jobs.run(
        *jobs.launcher("--platform=ray", f"--resources={node_elsewhere}=1", str(script))
    ).finish(90)
    assert finished.returncode == 1, finished
    assert f"there is no {script}, or it cannot be read" in finished.stderr
    assert "on node " in finished.stderr
    assert "hint: the interpreter, the current directory and the script" in finished.stderr
    assert jobs.result()["outcome"] == "failed"


def test_ranks_of_all_nodes_are_in_the_run_directory_and_on_stdout(jobs: RayJobs):
    finished = jobs.start("--nnodes=2", steps=3).finish(90)
    assert finished.returncode == 0, finished
    said = {path.read_text() for path in jobs.run_directory().glob("nodes/*/logs/*/*/stdout.log")}
    assert said == {f"rank {rank} of 2 goes on after step 0\n" for rank in (0, 1)}
    for rank in (0, 1):
        assert f"rank {rank} of 2 goes on after step 0" in finished.stdout
    assert "raylet" not in finished.stdout
    shown = jobs.job("logs", jobs.run_directory().name)
    assert "[rank 1] rank 1 of 2 goes on after step 0" in shown.stdout, shown
