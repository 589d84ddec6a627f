"""`dlrover-run --extender` on this machine: one session before the run, one at its end."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.launcher import Finished
from tests.harness.scripts import Scripts
from tests.scheduling.recording_service import RecordingService, recording_service

VERDICT = """
from dlrover_cli.contracts import DynamicAgentFailoverExtension, FailoverStrategy

class Verdict(DynamicAgentFailoverExtension):
    def get_user_failover_strategy(self, failure_info):
        return FailoverStrategy.NODE_FAILOVER
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

    done = launch([*options(service), "--resources=cpu=1", script])

    assert done.returncode == 0, done
    assert service.verbs == [
        *("onSessionOpen", "jobEnqueueable", "jobEnqueued", "queueOverused", "predicate"),
        *("allocateFunc", "jobReady", "onSessionClose"),
        *("onSessionOpen", "deallocateFunc", "onSessionClose"),
    ]


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


@pytest.mark.full
def test_a_run_that_fails_gives_its_place_back(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService
) -> None:
    done = launch([*options(service), scripts.write("train.py", "raise SystemExit(7)")])

    assert done.returncode == 7
    assert service.tasks("deallocateFunc") == ["train-0"]


@pytest.mark.full
def test_a_node_that_replaces_itself_takes_its_place_anew(
    launch: Callable[..., Finished], scripts: Scripts, service: RecordingService, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(VERDICT)
    script = scripts.write("train.py", "raise SystemExit(7 if attempt == 0 else 0)")

    done = launch(
        [*options(service), "--dynamic_failover_extension=mine::Verdict", script],
        cwd=tmp_path,
        real=True,
    )

    assert done.returncode == 0, done
    assert service.tasks("allocateFunc") == service.tasks("deallocateFunc") == ["train-0"] * 2


@pytest.mark.parametrize(
    "given, complaint",
    [
        (["--extender=none.yaml"], "none.yaml cannot be read"),
        (["--extender_url=ftp://x"], "--extender_url"),
        (["--extender=a", "--extender_url=http://b"], "both name a service"),
        (["--extender_timeout=3s"], "which is not there"),
        (["--extender_url=http://b", "--platform=slurm"], "Slurm places them by itself"),
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
