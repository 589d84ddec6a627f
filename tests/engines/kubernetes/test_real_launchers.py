"""The commands in the pods, really run: launchers and store as processes, exit codes and all."""

import os
import subprocess
from pathlib import Path

import pytest

from dlrover_cli.launch.command import launcher_command
from tests.engines.kubernetes.process_kubelet import ProcessKubelet
from tests.harness.waiting import eventually

pytestmark = pytest.mark.timeout(240)

SCRIPT = """\
import os, sys, time
from pathlib import Path
rank, attempt = os.environ["RANK"], int(os.environ["DLROVER_ATTEMPT"])
print(f"attempt {attempt} on {os.environ['DLROVER_NODE_NAME']}", flush=True)
Path(f"began.{rank}.{attempt}").touch()
if attempt == 0:
    how = sys.argv[1]
    if how == "wait":
        time.sleep(300)
    if rank == "1":
        sys.exit(int(how))
    time.sleep(300)
print(f"done in attempt {attempt}", flush=True)
"""
RULES = """\
[[rules]]
name = "sick-device"
when = {exit_code = 4}
strategy = "node"

[[rules]]
name = "bad-data"
when = {exit_code = 3}
strategy = "abort"
"""


@pytest.fixture
def kubelet(cluster, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "rules.toml").write_text(RULES)
    kubelet = ProcessKubelet(tmp_path)
    cluster.behaviour, cluster.runs_stores = kubelet, True
    cluster.on_removed = kubelet.end
    yield kubelet
    kubelet.close()


def submit(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [
        *(*launcher_command(), "--platform=kubernetes", "--k8s_image=train:1", "--nnodes=2"),
        *("--failover_rules=rules.toml", "--rdzv_conf=keep_alive_interval=1"),
        "--worker_start=fresh",  # the scripts do without torch, which takes its time to load
        *arguments,
    ]
    environ = {**os.environ, "XDG_STATE_HOME": str(directory / "state")}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environ, cwd=directory, stdout=pipe, stderr=pipe, text=True
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("job", marks=pytest.mark.full),
        pytest.param("volcano", marks=pytest.mark.soak),
    ],
)
def test_a_node_that_has_to_be_replaced_gets_a_new_pod_and_the_job_succeeds(
    kind, cluster, kubelet, tmp_path
):
    process = submit(tmp_path, f"--k8s_kind={kind}", "train.py", "4")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert [code for _, code in kubelet.codes].count(81) == 1
    for rank in (0, 1):
        assert f"[rank {rank}] done in attempt 1\n" in out
    kept = {
        path.parent.name: path.read_text()
        for path in tmp_path.glob("state/dlrover/runs/*/nodes/*/logs/attempt_0/*/stdout.log")
        if "done in attempt 1" in path.read_text()
    }
    assert sorted(kept) == ["0", "1"]
    assert cluster.objects == {}


@pytest.mark.full
def test_an_abort_ends_everything_with_82(cluster, kubelet, tmp_path):
    process = submit(tmp_path, "train.py", "3")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 82, err
    assert "82" in err
    assert not list(tmp_path.glob("began.*.1"))
    assert cluster.objects == {}


@pytest.mark.full
def test_a_node_that_is_killed_gets_a_new_pod_and_the_job_succeeds(cluster, kubelet, tmp_path):
    process = submit(tmp_path, "train.py", "wait")
    eventually(lambda: len(list(tmp_path.glob("began.*.0"))) == 2, 120, what="attempt 0 runs")
    second = cluster.nodes()[1]
    kubelet.kill(second)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert (second["metadata"]["name"], 137) in kubelet.codes
    for rank in (0, 1):
        assert f"[rank {rank}] done in attempt 1\n" in out


@pytest.mark.full
def test_a_stop_reaches_the_launchers_and_their_workers(cluster, kubelet, tmp_path):
    process = submit(tmp_path, "train.py", "wait")
    eventually(lambda: len(list(tmp_path.glob("began.*.0"))) == 2, 120, what="attempt 0 runs")
    process.terminate()
    _, err = process.communicate(timeout=100)
    assert process.returncode == 143, err
    eventually(lambda: len(kubelet.codes) == 3, 60, what="store and nodes have ended")
    codes = {name.removeprefix("train-").rpartition("-")[2]: code for name, code in kubelet.codes}
    assert codes.pop("store") == 0
    assert set(codes.values()) == {143}
