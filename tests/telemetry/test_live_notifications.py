"""Notifications of real runs, and the secrets of their receivers."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dlrover_cli.telemetry.notices import DEFAULT_KINDS
from tests.harness.launcher import Finished, LaunchSession, Running
from tests.integration.jobs import run_in
from tests.manager.managed_job import JobStarter, ManagedJob
from tests.services.servers import answer, serving
from tests.telemetry.test_notifier import OK, unreliable

ONCE = "import os, sys; sys.exit(7 if os.environ['DLROVER_ATTEMPT'] == '0' else 0)"


def test_a_receiver_that_fails_half_of_the_time_hears_all_of_a_finished_job(
    launch: Callable[..., Finished], tmp_path: Path
) -> None:
    (tmp_path / "once.py").write_text(ONCE)
    (tmp_path / "secret").write_text("s3cret\n")
    state = tmp_path / "state"
    with serving(unreliable(3)) as server:
        url = f"{server.url}/services/T0KEN?key=T0KEN"
        finished = launch(
            [
                *("--max-restarts=1", "--notify", url),
                *(f"--notify_secret_file={tmp_path / 'secret'}", str(tmp_path / "once.py")),
            ],
            env={"XDG_STATE_HOME": str(state)},
        )
        assert finished.returncode == 0, finished
        heard = {each.json["id"]: each for each in server.requests}
    run = run_in(state)
    [journal] = run.path.glob("nodes/*/events.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    expected = [event for event in events if event["kind"] in DEFAULT_KINDS]
    assert [event["kind"] for event in expected] == [
        *("run_started", "failure", "decision", "run_finished"),
    ]
    assert {int(identity.rpartition("/")[2]) for identity in heard} == {
        event["seq"] for event in expected
    }
    for request in heard.values():
        assert request.path == "/services/T0KEN?key=T0KEN"
        assert request.headers["webhook-signature"].startswith("v1,")
    written = [path for path in state.rglob("*") if path.is_file()]
    assert not [path for path in written if b"T0KEN" in path.read_bytes()]
    assert "T0KEN" not in finished.stderr


def test_a_url_in_a_file_is_nowhere_to_be_seen(
    launch: Callable[..., Finished], tmp_path: Path
) -> None:
    with serving(OK) as server:
        (tmp_path / "url").write_text(f"{server.url}/T0KEN")
        options = [f"--notify=@{tmp_path / 'url'}", "--notify_on=run_finished"]
        finished = launch([*options, "--no-python", "/bin/true"])
        assert finished.returncode == 0, finished
        assert [each.json["kind"] for each in server.requests] == ["run_finished"]


def test_a_plan_shows_where_but_not_the_whole_address(
    launch: Callable[..., Finished], tmp_path: Path
) -> None:
    url = "https://hooks.example.com/services/T0KEN?key=T0KEN"
    finished = launch(["--dry_run", "--json", "--notify", url, "--no-python", "/bin/true"])
    assert finished.returncode == 0, finished
    assert "https://hooks.example.com/…" in json.dumps(
        json.loads(finished.stdout), ensure_ascii=False
    )
    assert "T0KEN" not in finished.stdout


def test_what_cannot_be_used_is_refused_without_a_word_of_the_secret(
    launch: Callable[..., Finished], tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    options = ["--notify=https://me:T0KEN@host/", f"--result_file={result}"]
    finished = launch([*options, "--no-python", "/bin/true"])
    assert finished.returncode == 2
    assert "holds a user name or a password" in finished.stderr
    assert "T0KEN" not in finished.stderr + result.read_text()


@pytest.mark.parametrize(
    "signum", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM]
)
def test_a_signal_ends_the_waiting_and_not_the_outcome(
    start: Callable[..., Running], tmp_path: Path, signum: signal.Signals
) -> None:
    result = tmp_path / "result.json"
    with serving(answer("oh no", "503 Service Unavailable")) as server:
        options = [f"--notify={server.url}", f"--result_file={result}"]
        running = start([*options, "--no-python", "/bin/true"])
        running.wait_for("delivering notifications")
        running.signal(signum)
        finished = running.finish()
    assert finished.returncode == 0, finished
    assert "did not get 2 notifications" in finished.stderr
    assert json.loads(result.read_text())["outcome"] == "succeeded"


@pytest.mark.full
@pytest.mark.parametrize("lost_rank", [0, 1])
def test_of_a_job_on_several_nodes_everything_is_told_once_whichever_is_lost(
    start: Callable[..., Running],
    launch_session: LaunchSession,
    tmp_path: Path,
    lost_rank: int,
) -> None:
    with serving(OK) as server:
        starter = JobStarter(start, launch_session, tmp_path)
        job = starter("n1 n2 n3", env={"DLROVER_NOTIFY": f"{server.url}/hook"})
        job.wait_for_steps(attempt=0, ranks=2)
        job.order(f"lose_node {node_of(job, lost_rank)}")
        job.wait_for_steps(attempt=1, ranks=2)
        finished = job.finish()
        assert finished.returncode == 0, finished
        kinds = [each.json["kind"] for each in server.requests]
    for kind in ("run_started", "run_finished", "replacing", "decision"):
        assert kinds.count(kind) == 1, kinds
    assert len({each.json["id"] for each in server.requests}) == len(kinds)


def node_of(job: ManagedJob, rank: int) -> str:
    for journal in job.run_directory.glob("nodes/n*/events.jsonl"):
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        if any(e["kind"] == "workers_started" and e["node_rank"] == rank for e in events):
            return journal.parent.name.partition(".")[0]
    raise AssertionError(f"no node has rank {rank}")
