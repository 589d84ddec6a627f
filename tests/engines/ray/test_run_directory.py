"""The run directory has everything, also of nodes that cannot write to it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.ray.engine import RayEngine
from tests.engines.ray.jobs import RayJobs
from tests.harness.processes import TOKEN_VARIABLE
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def hidden(ray_engine: RayEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory that is another one, and empty, on the node whose resource is `elsewhere`."""
    hidden = tmp_path_factory.mktemp("hidden")
    start = (
        "mount -t tmpfs none " + str(hidden) + " && exec ray start --block --num-cpus=1 "
        "--node-ip-address=127.0.0.1 --object-store-memory=80000000 "
        """--resources='{"elsewhere": 1}' --address=""" + ray_engine.address
    )
    environ = {
        **os.environ,
        **ray_engine.environ(),
        TOKEN_VARIABLE: ray_engine.token,
        "PATH": f"{ray_engine.programs}:{os.environ['PATH']}",
    }
    process = subprocess.Popen(
        ["unshare", "-m", *ray_engine.command("sh", "-c", start)],
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    ray_engine.wait_for("elsewhere")
    yield hidden
    process.terminate()
    process.wait(20)


def test_output_and_events_are_brought_over_from_a_node_without_the_run_directory(
    jobs: RayJobs, hidden: Path
):
    jobs.state = hidden / "dlrover"
    environ = {"XDG_STATE_HOME": str(hidden)}
    running = jobs.start("--nnodes=1", "--resources=elsewhere=1", steps=8, env=environ)
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


def test_a_node_without_the_script_is_named(jobs: RayJobs, hidden: Path):
    script = hidden / "train.py"
    script.write_text("raise SystemExit('never started')")
    finished = jobs.run(
        *jobs.launcher("--platform=ray", "--resources=elsewhere=1", str(script))
    ).finish(90)
    assert finished.returncode == 1, finished
    assert f"there is no {script}, or it cannot be read" in finished.stderr
    assert "on node " in finished.stderr
    assert "hint: the interpreter, the current directory and the script" in finished.stderr
    assert jobs.result()["outcome"] == "failed"
