"""`dlrover-run --extender` on this machine: one session before the run, one at its end."""

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.scheduling.kept_places import KeptPlaces
from dlrover_cli.scheduling.model import TaskView
from dlrover_cli.scheduling.options import from_options
from tests.harness.launcher import Finished, Running
from tests.harness.scripts import Scripts
from tests.harness.waiting import eventually
from tests.scheduling.golden_bodies import assert_bodies_are_golden
from tests.scheduling.recording_service import RecordingService, recording_service

VERDICT = """
from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy

class Verdict(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        return FailoverStrategy.{strategy}
"""


@pytest.fixture
def service() -> Iterator[RecordingService]:
    with recording_service() as service:
        yield service


def options(service: RecordingService) -> list[str]:
    return [f"--extender_url={service.url}", "--extender_timeout=10s"]


@pytest.mark.full
def test_a_run_takes_its_place_and_gives_it_back(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService
) -> None:
    script = scripts.write("train.py", "")

    done = launch([*options(service), "--resources=cpu=1,memory=8Mi,nvidia.com/gpu=0", script])

    assert done.returncode == 0, done
    assert service.verbs == [
        *("onSessionOpen", "jobEnqueueable", "jobEnqueued", "queueOverused", "predicate"),
        *("allocateFunc", "jobReady", "onSessionClose"),
        *("onSessionOpen", "deallocateFunc", "onSessionClose"),
    ]
    wanted = {"cpu": 1, "memory": 8 * 2**20, "nvidia.com/gpu": 0}
    assert all(
        body["task"]["resources"] == wanted for _, body in service.questions if "task" in body
    )
    assert_bodies_are_golden(service)


def test_a_run_that_may_not_start_says_why_and_starts_nothing(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService, tmp_path: Path
) -> None:
    service.answers["predicate"] = {"code": 1, "errorMessage": "its GPUs are being mended"}
    script = scripts.write("train.py", "open('started', 'w')")

    done = launch([*options(service), script], cwd=tmp_path)

    assert done.returncode == 1
    assert "the run may not start here: its GPUs are being mended" in done.stderr
    assert not (tmp_path / "started").exists()
    assert service.held() == {}


def test_volcano_s_whole_configuration_is_taken_and_other_plugins_are_named(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService, tmp_path: Path
) -> None:
    extender = {"name": "extender", "arguments": service.settings("predicate")}
    tiers = [{"plugins": [{"name": "gang"}, extender]}, {"plugins": [{"name": "drf"}]}]
    (tmp_path / "extender.yaml").write_text(json.dumps({"actions": "allocate", "tiers": tiers}))

    done = launch(["--extender=extender.yaml", scripts.write("train.py", "")], cwd=tmp_path)

    assert done.returncode == 0, done
    assert "extender.yaml: has no meaning here: gang, drf" in done.stderr
    assert service.verbs == ["predicate"]


@pytest.mark.full
def test_a_run_that_fails_gives_its_place_back(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService
) -> None:
    done = launch([*options(service), scripts.write("train.py", "raise SystemExit(7)")])

    assert done.returncode == 7
    assert service.tasks("deallocateFunc") == ["train-0"]


def _when_full(*verbs: str) -> list[Any]:
    return [pytest.param(verb, marks=pytest.mark.full) for verb in verbs]


@pytest.mark.parametrize(
    "verb",
    [
        "onSessionClose",
        *_when_full("onSessionOpen", "jobEnqueueable", "jobEnqueued", "queueOverused"),
        *_when_full("predicate", "allocateFunc", "jobReady"),
    ],
)
def test_ctrl_c_before_the_session_is_over_gives_the_place_back(
    start: Callable[..., Running], scripts: Scripts, service: RecordingService, verb: str
) -> None:
    started: Future[Running] = Future()

    def interrupt() -> None:
        del service.answers[verb]
        started.result(60).signal(signal.SIGINT)

    service.answers[verb] = interrupt
    started.set_result(start([*options(service), scripts.write("train.py", "time.sleep(60)")]))
    done = started.result().finish()

    assert done.returncode == 130, done
    assert verb in service.verbs
    taken = ["train-0"] if verb in ("allocateFunc", "jobReady", "onSessionClose") else []
    assert service.tasks("allocateFunc") == service.tasks("deallocateFunc") == taken
    assert service.verbs[-1] == "onSessionClose"


@pytest.mark.full
def test_a_node_that_replaces_itself_takes_its_place_anew(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(VERDICT.format(strategy="NODE_FAILOVER"))
    script = scripts.write("train.py", "raise SystemExit(7 if attempt == 0 else 0)")

    done = launch(
        [*options(service), "--dynamic_failover_extension=mine::Verdict", script],
        cwd=tmp_path,
        real=True,
    )

    assert done.returncode == 0, done
    assert service.tasks("allocateFunc") == service.tasks("deallocateFunc") == ["train-0"] * 2


@pytest.mark.full
def test_a_run_that_starts_afresh_takes_its_place_in_a_full_session(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(VERDICT.format(strategy="GLOBAL_FAILOVER"))
    script = scripts.write("train.py", "raise SystemExit(7 if attempt == 0 else 0)")

    done = launch(
        [*options(service), "--dynamic_failover_extension=mine::Verdict", script], cwd=tmp_path
    )

    assert done.returncode == 0, done
    taken = [
        *("jobEnqueueable", "jobEnqueued", "queueOverused", "predicate"),
        *("allocateFunc", "jobReady", "onSessionClose"),
    ]
    assert service.verbs == [
        *("onSessionOpen", *taken),
        *("onSessionOpen", "deallocateFunc", *taken),
        *("onSessionOpen", "deallocateFunc", "onSessionClose"),
    ]


@pytest.mark.full
def test_a_run_that_may_not_start_afresh_says_why(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(VERDICT.format(strategy="GLOBAL_FAILOVER"))
    script = scripts.write("train.py", "raise SystemExit(7)")
    service.answers["deallocateFunc"] = lambda: service.answers.update(
        jobEnqueueable={"status": -1}
    )

    done = launch(
        [*options(service), "--dynamic_failover_extension=mine::Verdict", script], cwd=tmp_path
    )

    assert done.returncode == 1, done
    assert "the run may not start again here: extender" in done.stderr
    assert service.held() == {}


@pytest.mark.full
def test_the_place_of_a_run_that_was_killed_is_given_back_by_the_next(
    start: Callable[..., Running],
    launch: Callable[..., Finished],
    scripts: Scripts,
    service: RecordingService,
) -> None:
    killed = start([*options(service), scripts.write("killed.py", "time.sleep(60)")])
    eventually(lambda: service.held() == {"killed-0": 1}, 30.0)
    with recording_service() as elsewhere:
        assert launch([*options(elsewhere), scripts.write("train.py", "")]).returncode == 0
    assert service.held() == {"killed-0": 1}, "it lives, and that service knows nothing of it"

    killed.signal(signal.SIGKILL)
    killed.finish()
    service.answers["deallocateFunc"] = 500
    launch([*options(service), scripts.write("train.py", "")])
    service.answers.clear()
    done = launch([*options(service), scripts.write("train.py", "")])

    assert done.returncode == 0, done
    assert service.held() == {}
    ids = {
        body["eventId"]
        for verb, body in service.questions
        if verb == "deallocateFunc" and body["task"]["name"] == "killed-0"
    }
    assert len(ids) == 1, "it is one event, however often it was told"


def test_places_are_kept_for_the_same_services_and_while_their_owner_lives(
    service: RecordingService, tmp_path: Path
) -> None:
    extenders = [from_options(service.url)]
    said: list[str] = []
    kept = KeptPlaces(tmp_path, extenders, said.append)
    task = TaskView("default", "a-0", "a-0", "a", {"cpu": 1.0}, node="n", place="p1")
    kept.keep(task)
    (tmp_path / "places" / "half.json").write_text('{"owner": {')
    assert kept.lost() == [], "we live"

    document = json.loads((tmp_path / "places" / "p1.json").read_text())
    document["owner"]["start_time"] -= 1
    (tmp_path / "places" / "p1.json").write_text(json.dumps(document))

    assert [(each.uid, each.node, each.place) for each in kept.lost()] == [("a-0", "n", "p1")]
    assert KeptPlaces(tmp_path, [from_options("http://other")], said.append).lost() == []
    assert KeptPlaces(tmp_path, [], said.append).lost() == []
    kept.forget([task])
    assert kept.lost() == []
    assert said == []


@pytest.mark.parametrize(
    "given, complaint",
    [
        (["--extender=none.yaml"], "none.yaml cannot be read"),
        (["--extender_url=ftp://x"], "--extender_url"),
        (["--extender=a", "--extender_url=http://b"], "both name a service"),
        (["--extender_timeout=3s"], "which is not there"),
        (["--extender_url=http://b", "--resources=cpu"], "write NAME=QUANTITY, not 'cpu'"),
        (["--extender_url=http://b", "--resources==4"], "write NAME=QUANTITY, not '=4'"),
        (["--extender_url=http://b", "--resources=cpu=x"], "'x' is no amount"),
        (["--extender_url=http://b", "--platform=slurm"], "Slurm places them by itself"),
        (["--extender_url=http://b", "--platform=slurm"], "--slurm-arg=nodelist="),
        (["--extender_url=http://b", "--platform=kubernetes"], "Kubernetes places them by itself"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    launch: Callable[..., Finished], given: list[str], complaint: str
) -> None:
    done = launch([*given, "train.py"])

    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
