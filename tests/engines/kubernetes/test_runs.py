"""`dlrover-run --platform=kubernetes` as a process of its own, against the loopback API server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlrover_cli.launch.command import launcher_command
from tests.engines.kubernetes.api_server import Trouble
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

IMAGE = "--k8s_image=registry.example.com/train:1"


class Submitter:
    """A launcher under way; its state directory is the test's own."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.env = {
            **{key: text for key, text in os.environ.items() if not key.startswith("DLROVER_R")},
            "XDG_STATE_HOME": str(self.state),
        }
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [*launcher_command(), "--platform=kubernetes", IMAGE, *arguments]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=self.env, stdout=pipe, stderr=pipe, text=True, cwd=self.state.parent
        )
        return self.process

    def finish(self, timeout: float = 60.0) -> tuple[int, str, str]:
        assert self.process is not None
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err

    def result(self) -> dict:
        [path] = self.state.glob("dlrover/runs/*/result.json")
        return json.loads(path.read_text())

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def submitter(cluster, tmp_path):
    submitter = Submitter(tmp_path)
    yield submitter
    submitter.close()


def node_pods(cluster, count):
    """As many as there are to be, in the order of their making."""

    def enough():
        pods = cluster.nodes()
        return pods if len(pods) >= count else None

    return eventually(enough, 30, what=f"{count} pods")


def test_a_job_that_succeeds_shows_and_keeps_what_every_rank_printed(cluster, submitter):
    submitter.start("--nnodes=2", "train.py")
    first, second = node_pods(cluster, 2)
    for rank, pod in enumerate((first, second)):
        cluster.run(pod, f"machine-{rank}")
        cluster.print(pod, "dlrover-run: meeting", f"[rank {rank}]:step 1 of {rank}")
    for rank, pod in enumerate((first, second)):
        cluster.print(pod, f"[rank {rank}]:step 2 of {rank}")
        cluster.end(pod, 0)
    code, out, err = submitter.finish()
    assert code == 0, err
    assert "[rank 0] step 1 of 0\n" in out
    assert "[rank 1] step 2 of 1\n" in out
    assert f"[{first['metadata']['name']}] dlrover-run: meeting" in err
    [run] = submitter.state.glob("dlrover/runs/*")
    for rank, pod in enumerate((first, second)):
        node = run / "nodes" / pod["metadata"]["name"]
        kept = node / "logs" / "attempt_0" / str(rank) / "stdout.log"
        assert kept.read_text() == f"step 1 of {rank}\nstep 2 of {rank}\n"
        assert kept.stat().st_mode & 0o077 == 0
        assert (node / "launcher.log").read_text() == "dlrover-run: meeting\n"
    assert submitter.result()["outcome"] == "succeeded"
    assert cluster.objects == {}


@pytest.mark.parametrize("kind, code", [("job", 82), ("job", 3), ("volcano", 82), ("volcano", 3)])
def test_a_node_that_fails_for_good_fails_the_job_with_its_code(kind, code, cluster, submitter):
    submitter.start(f"--k8s_kind={kind}", "--nnodes=2", "train.py")
    first, second = node_pods(cluster, 2)
    cluster.run(first)
    cluster.run(second)
    cluster.end(second, code, "Traceback\nRuntimeError: NaN in the loss\n")
    got, _, err = submitter.finish()
    assert got == code, err
    assert f"pod {second['metadata']['name']} exited with code {code}: RuntimeError: NaN" in err
    assert submitter.result()["outcome"] == ("aborted" if code == 82 else "failed")
    assert cluster.objects == {}


@pytest.mark.parametrize("kind", ["job", "volcano"])
def test_81_is_a_new_pod_and_the_job_goes_on(kind, cluster, submitter):
    submitter.start(f"--k8s_kind={kind}", "--nnodes=2", "train.py")
    first, second = node_pods(cluster, 2)
    cluster.run(first)
    cluster.run(second)
    cluster.end(second, 81)
    uid = second["metadata"]["uid"]

    def third():
        now = [pod for pod in cluster.nodes() if pod["status"]["phase"] == "Pending"]
        return [pod for pod in now if pod["metadata"]["uid"] != uid]

    [new] = eventually(third, 30)
    cluster.run(new, "machine-3")
    cluster.end(first, 0)
    cluster.end(new, 0)
    code, _, err = submitter.finish()
    assert code == 0, err


def test_the_machine_of_81_is_barred_and_a_pod_that_came_there_first_is_evicted(cluster, submitter):
    submitter.start("--nnodes=2", "train.py")
    first, second = node_pods(cluster, 2)
    cluster.run(first, "machine-1")
    cluster.run(second, "bad")
    seen = {first["metadata"]["uid"], second["metadata"]["uid"]}

    def successor():
        return [pod for pod in cluster.nodes() if pod["metadata"]["uid"] not in seen]

    cluster.end(second, 81)
    [early] = eventually(successor, 30)
    cluster.run(early, "bad")  # faster than anybody could forbid it
    seen.add(early["metadata"]["uid"])
    [new] = eventually(successor, 30, what="a pod in the place of the one that was evicted")
    [bar] = [pod for pod in cluster.of_kind("pods") if "-bar-" in pod["metadata"]["name"]]
    assert bar["spec"]["nodeName"] == "bad"
    assert keeps_away(new, bar)
    assert not keeps_away(new, first)
    cluster.run(new, "machine-2")
    cluster.end(first, 0)
    cluster.end(new, 0)
    code, _, err = submitter.finish()
    assert code == 0, err
    assert "machine bad gets no pod of this job any more" in err
    events = [json.loads(line) for line in _events(submitter.state / "dlrover/runs").splitlines()]
    stories = [each["kind"] for each in events if "machine" in each["data"]]
    assert stories == ["machine_barred", "pod_evicted"]
    assert cluster.objects == {}


def keeps_away(pod, other):
    """Whether the scheduler would never put one beside the other."""
    rules = pod["spec"]["affinity"]["podAntiAffinity"]
    [term] = rules["requiredDuringSchedulingIgnoredDuringExecution"]
    labels = term["labelSelector"]["matchLabels"].items()
    return labels <= other["metadata"]["labels"].items()


def test_81_does_not_count_and_a_killed_launcher_does(cluster, submitter):
    submitter.start("--nnodes=1", "--max_node_relaunches=2", "train.py")
    codes = [81, 81, 81, 81, 137, 143, 137]
    for position, code in enumerate(codes):
        pod = node_pods(cluster, position + 1)[-1]
        cluster.run(pod)
        cluster.end(pod, code)
    got, _, err = submitter.finish()
    assert got == 137, err
    assert len(cluster.calls) > len(codes)


def test_volcano_gives_up_after_as_many_new_pods_as_may_be(cluster, submitter):
    submitter.start("--k8s_kind=volcano", "--nnodes=1", "--max_node_relaunches=2", "train.py")
    seen = set()
    for _ in range(3):

        def fresh():
            return [pod for pod in cluster.nodes() if pod["metadata"]["uid"] not in seen]

        [pod] = eventually(fresh, 30)
        seen.add(pod["metadata"]["uid"])
        cluster.run(pod)
        cluster.end(pod, 81)
    code, _, err = submitter.finish()
    assert code == 83, err


def test_a_pod_that_is_evicted_is_made_again(cluster, submitter):
    submitter.start("--nnodes=1:2", "train.py")
    first, second = node_pods(cluster, 2)
    cluster.run(first)
    cluster.run(second)
    cluster.evict("default", first["metadata"]["name"])
    third = node_pods(cluster, 3)[-1]
    assert third["metadata"]["name"] != first["metadata"]["name"]
    cluster.end(second, 0)  # at least one is enough
    code, _, err = submitter.finish()
    assert code == 0, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_launcher_that_is_told_to_stop_takes_its_job_with_it(number, cluster, submitter):
    process = submitter.start("--nnodes=2", "train.py")
    for pod in node_pods(cluster, 2):
        cluster.run(pod)
    runs = submitter.state / "dlrover" / "runs"
    eventually(lambda: "kubernetes_job" in _events(runs), 30, what="the job is under way")
    process.send_signal(number)
    code, _, err = submitter.finish()
    assert code == 128 + number, err
    assert cluster.objects == {}
    assert submitter.result()["outcome"] == "signalled"


def test_troubles_of_a_pod_are_told_once(cluster, submitter):
    submitter.start("--nnodes=1", "train.py")
    [pod] = node_pods(cluster, 1)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"name": "dlrover-run", "state": {"waiting": waiting}}],
    }
    gets = len([call for call in cluster.calls if call.method == "GET"])
    eventually(lambda: len([c for c in cluster.calls if c.method == "GET"]) > gets + 6, 30)
    cluster.run(pod)
    cluster.end(pod, 0)
    code, _, err = submitter.finish()
    assert code == 0
    assert err.count("ImagePullBackOff: no such image") == 1


def test_a_store_that_is_lost_is_told(cluster, submitter):
    submitter.start("--nnodes=1", "train.py")
    [pod] = node_pods(cluster, 1)
    cluster.run(pod)
    eventually(lambda: len(cluster.of_kind("pods")) == 2, 30)
    [store] = [each for each in cluster.of_kind("pods") if each not in cluster.nodes()]
    cluster.end(store, 137)
    gets = len(cluster.calls)
    eventually(lambda: len(cluster.calls) > gets + 6, 30)
    cluster.end(pod, 80, "dlrover-run: nobody answers")
    code, _, err = submitter.finish()
    assert code == 80
    assert err.count("the store where the nodes meet has ended") == 1


def test_an_api_server_that_fails_for_a_while_costs_the_job_nothing(cluster, submitter):
    submitter.start("--nnodes=1", "train.py")
    [pod] = node_pods(cluster, 1)
    cluster.run(pod)
    cluster.troubles.append(Trouble("GET", "/jobs/", 503, "no leader", times=3))
    eventually(lambda: cluster.troubles[0].times == 0, 30)
    cluster.end(pod, 0)
    code, _, err = submitter.finish()
    assert code == 0, err
    assert err.count("no leader") == 1
    assert "the API server answers again" in err


def test_a_machine_that_does_not_answer_is_told_with_what_to_do(cluster, submitter):
    submitter.start("--nnodes=1", "train.py")
    [pod] = node_pods(cluster, 1)
    cluster.run(pod, "machine-7")
    pod["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    gets = len(cluster.calls)
    eventually(lambda: len(cluster.calls) > gets + 6, 30)
    del pod["metadata"]["deletionTimestamp"]
    cluster.end(pod, 0)
    code, _, err = submitter.finish()
    assert code == 0
    assert err.count("its machine machine-7 does not answer") == 1
    assert "kubectl delete node machine-7" in err


def test_a_job_that_somebody_deletes_has_ended(cluster, submitter):
    submitter.start("--nnodes=1", "train.py")
    node_pods(cluster, 1)
    runs = submitter.state / "dlrover" / "runs"
    eventually(lambda: "kubernetes_job" in _events(runs), 30)
    [key] = [key for key in cluster.objects if key[1] == "jobs"]
    cluster.delete(key)
    code, _, err = submitter.finish()
    assert code == 143
    assert "the job was deleted from Kubernetes" in err


def test_a_refusal_ends_with_a_sentence_and_nothing_is_left(cluster, submitter):
    cluster.troubles.append(Trouble("POST", "/jobs$", 403, "User cannot create jobs"))
    submitter.start("--nnodes=1", "train.py")
    code, _, err = submitter.finish()
    assert code == 1
    assert "you may not create the Job train-" in err
    assert "kubectl auth can-i create jobs -n default" in err
    assert "Traceback" not in err
    assert cluster.objects == {}


def test_a_dry_run_asks_nobody(cluster, submitter):
    submitter.start("--nnodes=2", "--dry_run", "train.py")
    code, out, err = submitter.finish()
    assert code == 0, err
    assert "kind: Job" in out
    assert cluster.calls == []


def test_logs_go_on_where_the_connection_broke(cluster, tmp_path):
    from dlrover_cli.config.settings import LaunchSettings
    from dlrover_cli.platforms.kubernetes.connecting import connect
    from dlrover_cli.platforms.kubernetes.logs import PodLogs
    from dlrover_cli.platforms.kubernetes.objects import RunObjects
    from dlrover_cli.platforms.kubernetes.request import request_of

    client = connect(os.environ)
    request = request_of(LaunchSettings(training_script="t.py", k8s_image="t"))
    RunObjects(client, request, "r-1").create()
    [pod] = cluster.nodes()
    cluster.run(pod)
    cluster.print(pod, "[rank 0]:one")
    shown: list[bytes] = []
    logs = PodLogs(
        client, "default", tmp_path / "nodes", lambda p, r, line: shown.append(line), print
    )
    (tmp_path / "nodes").mkdir()
    name = pod["metadata"]["name"]
    logs.follow(name, is_over=False)
    eventually(lambda: shown == [b"one"], 20)
    response = logs._open[name]._response
    response.shutdown()  # as if the network had done it
    cluster.print(pod, "[rank 0]:two")
    eventually(lambda: shown == [b"one", b"two"], 20)
    cluster.end(pod, 0)
    logs.finish(20)
    assert shown == [b"one", b"two"]


def test_closing_does_not_wait_for_pods_that_print_nothing(cluster, tmp_path):
    from dlrover_cli.config.settings import LaunchSettings
    from dlrover_cli.platforms.kubernetes.connecting import connect
    from dlrover_cli.platforms.kubernetes.logs import PodLogs, show_nothing
    from dlrover_cli.platforms.kubernetes.objects import RunObjects
    from dlrover_cli.platforms.kubernetes.request import request_of

    client = connect(os.environ)
    request = request_of(LaunchSettings(training_script="t.py", k8s_image="t", nnodes="3"))
    RunObjects(client, request, "r-1").create()
    (tmp_path / "nodes").mkdir()
    for pause in (0.0, 0.0, 0.01, 0.05, 0.2):  # the streams are in different states of beginning
        logs = PodLogs(client, "default", tmp_path / "nodes", show_nothing, print)
        for pod in cluster.nodes():
            cluster.run(pod)
            logs.follow(pod["metadata"]["name"], is_over=False)
        time.sleep(pause)
        begin = time.monotonic()
        logs.close()
        assert time.monotonic() - begin < 4.0


def _events(runs: Path) -> str:
    return "".join(path.read_text() for path in runs.glob("*/nodes/submitter/events.jsonl"))


def test_the_launcher_does_not_load_torch_for_it(cluster, submitter):
    program = (
        "import sys\n"
        "from dlrover_cli.cli.run import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "assert 'torch' not in sys.modules\n"
    )
    arguments = ["--platform=kubernetes", IMAGE, "--dry_run", "train.py"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
