"""AI Flow's tutorial done here: a platform, an engine, a job, a configuration and a plugin of one's
own, registered, submitted, stopped and cleaned up after, each by a process of its own."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts import find_job_plugin
from dlrover_cli.contracts.job_registry import JobRegistry, registering_aside
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from tests.harness.launcher import Finished
from tests.harness.processes import descendants_and_orphans
from tests.harness.waiting import eventually
from tests.plugins.user_code import forgetting_imports

pytestmark = pytest.mark.full  # real jobs, one after the other

TUTORIAL = Path(__file__).parents[2] / "examples" / "job_tutorial"
PROGRAM = str(Path(sys.executable).parent / "dlrover-job")


class Tutorial:
    """Somebody in the folder of the tutorial, who types one command after the other."""

    def __init__(self, launch: Callable[..., Finished], folder: Path) -> None:
        self.launch = launch
        self.folder = folder
        self.runs = folder.parent / "state" / "dlrover" / "runs"

    def type(self, *argv: str, code: int | None = 0) -> Finished:
        finished = self.launch(argv, command=[PROGRAM], cwd=self.folder)
        assert code is None or finished.returncode == code, finished
        return finished

    def submit(self, file: str) -> Path:
        """The directory of the run."""
        run_id, _name = self.type("submit", file).stdout.split()
        return self.runs / run_id

    def list(self) -> dict[str, Any]:
        """All runs, by the names of their jobs."""
        document = json.loads(self.type("list", "-o", "json").stdout)
        return {run["name"]: run for run in document["runs"]}

    def change(self, name: str, before: str, after: str) -> None:
        text = (self.folder / name).read_text()
        assert before in text
        (self.folder / name).write_text(text.replace(before, after))


@pytest.fixture
def tutorial(launch: Callable[..., Finished], tmp_path: Path) -> Tutorial:
    folder = tmp_path / "tutorial"
    shutil.copytree(TUTORIAL, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return Tutorial(launch, folder)


def printed_by(run: Path) -> str:
    path = run / "nodes" / "snapshot" / "logs" / "attempt_0" / "0" / "stdout.log"
    return path.read_text() if path.exists() else ""


def kinds(run: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in (run / "events.jsonl").read_text().splitlines()]


def owner_of(run: Path) -> ProcessIdentity:
    for line in (run / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "owned":
            return ProcessIdentity.from_json(event["data"]["owner"])
    raise AssertionError("nobody owns the run")


def test_importing_the_module_registers_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    with forgetting_imports(TUTORIAL), registering_aside() as registry:
        monkeypatch.syspath_prepend(TUTORIAL)
        import snapshot  # type: ignore[import-not-found]

        assert isinstance(registry, JobRegistry)
        assert registry.platforms == {"snapshot": snapshot.SnapshotPlatform}
        assert registry.engines == {"script": snapshot.ScriptEngine}
        assert isinstance(find_job_plugin("snapshot", "script"), snapshot.SnapshotPlugin)


def test_a_job_runs_to_its_end(tutorial: Tutorial) -> None:
    tutorial.type("submit", "--wait", "job.yaml")
    [run] = tutorial.runs.iterdir()
    assert tutorial.type("logs", "count").stdout == "counting in folder\n1\n2\n3\n"
    listed = tutorial.list()["count"]
    assert (listed["state"], listed["exit_code"]) == ("FINISHED", 0)
    assert not (run / "folder").exists()
    assert kinds(run).count("cleaned") == 1


def test_a_job_that_fails_fails_with_its_own_code(tutorial: Tutorial) -> None:
    tutorial.change("job.yaml", '"0.1"]', '"0", --exit-code, "7"]')
    tutorial.type("submit", "--wait", "job.yaml", code=7)
    listed = tutorial.list()["count"]
    assert (listed["state"], listed["reason"]) == ("FAILED", "the script exited with 7")


def test_a_job_is_stopped_and_cleaned_up_after(tutorial: Tutorial, process_token: str) -> None:
    run = tutorial.submit("long.yaml")
    eventually(lambda: "counting in folder" in printed_by(run), 30, what="the script's first line")
    assert (run / "folder" / "count.py").exists()
    tutorial.type("stop", "long")
    assert tutorial.list()["long"]["state"] == "KILLED"
    eventually(lambda: not descendants_and_orphans(process_token), what="the end of all processes")
    assert not (run / "folder").exists()
    tutorial.type("cleanup", "long")
    assert tutorial.list() == {}
    assert list(tutorial.runs.iterdir()) == []


def test_what_a_killed_runner_leaves_is_stopped_and_cleaned_up_from_what_was_written_down(
    tutorial: Tutorial, process_token: str
) -> None:
    run = tutorial.submit("long.yaml")
    eventually(lambda: "counting in folder" in printed_by(run), 30, what="the script's first line")
    eventually((run / "handler.json").exists, what="the handler")
    assert owner_of(run).signal(signal.SIGKILL)
    eventually(lambda: not owner_of(run).is_alive(), what="the end of the runner")
    assert tutorial.list()["long"]["state"] == "LOST"
    assert descendants_and_orphans(process_token), "the job is still there"
    tutorial.type("stop", run.name)
    assert tutorial.list()["long"]["state"] == "KILLED"
    assert not descendants_and_orphans(process_token)
    assert not (run / "folder").exists()
    assert kinds(run).count("cleaned") == 1


def test_another_folder_of_the_same_names_does_not_get_in_the_way(tutorial: Tutorial) -> None:
    """The runner finds the plugin where the job file is, not where its submitter stood."""
    elsewhere = tutorial.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "snapshot.py").write_text("raise RuntimeError('the wrong one')\n")
    finished = tutorial.launch(
        ["submit", "--wait", os.path.join("..", "job.yaml")], command=[PROGRAM], cwd=elsewhere
    )
    assert finished.returncode == 0, finished


def test_a_program_submits_what_it_has_registered_itself(tutorial: Tutorial) -> None:
    """The job file is elsewhere and names no plugin; the runner still finds the program's."""
    jobs = tutorial.folder.parent / "jobs"
    jobs.mkdir()
    for name in ("job.yaml", "count.py"):
        shutil.move(tutorial.folder / name, jobs)
    text = (jobs / "job.yaml").read_text()
    (jobs / "job.yaml").write_text(text.replace("  plugin: snapshot::SnapshotPlugin\n", ""))
    (tutorial.folder / "program.py").write_text(
        "import os, pathlib, sys\n"
        "import snapshot\n"
        "from dlrover_cli.jobs.submission import submit\n"
        "submit(pathlib.Path(sys.argv[1]), os.environ, print)\n"
    )
    argv = [tutorial.folder / "program.py", jobs / "job.yaml"]
    finished = tutorial.launch(argv, command=[sys.executable], cwd=Path("/"))
    assert finished.returncode == 0, finished
    tutorial.type("logs", "-f", "count")
    eventually(lambda: tutorial.list()["count"]["state"] == "FINISHED", what="the end of the run")
    # Without the program, nothing of that name is known.
    refused = tutorial.launch(["submit", jobs / "job.yaml"], command=[PROGRAM], cwd=jobs)
    assert "there is no platform 'snapshot'" in refused.stderr


@pytest.mark.parametrize(
    "file, before, after, why",
    [
        ("job.yaml", "count.py", "cuont.py", "there is no script cuont.py"),
        ("job.yaml", "leave_out", "leave_in", "there is no key 'leave_in'"),
        ("job.yaml", "engine: script", "engine: skript", "it runs snapshot/script, and the job"),
        ("job.yaml", "::SnapshotPlugin", "::SnapshotPlugging", "did you mean 'SnapshotPlugin'?"),
        ("job.yaml", "snapshot::", "snapshto::", "there is no module 'snapshto'"),
        ("snapshot.py", "def stop_job", "def halt_job", "it does not define stop_job"),
        ("snapshot.py", "return SnapshotJob\n", "return dict\n", "job_type() is the class dict"),
        ("snapshot.py", '"snapshot"\n', '"snap/shot"\n', "is 'snap/shot': a name has letters"),
        ("snapshot.py", "        return job\n", "", "returned a NoneType and not a SnapshotJob"),
        ("snapshot.py", "        return job\n", "        1 / 0\n", "raised ZeroDivisionError"),
        (
            "snapshot.py",
            "        return job\n",
            "        job.log = open('/dev/null')\n        return job\n",
            "SnapshotJob.log is a TextIOWrapper, which cannot be written as JSON",
        ),
    ],
)
def test_a_mistake_is_one_error_and_leaves_nothing_behind(
    tutorial: Tutorial, file: str, before: str, after: str, why: str
) -> None:
    tutorial.change(file, before, after)
    refused = tutorial.type("submit", "job.yaml", code=2)
    assert why in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not tutorial.runs.exists() or not list(tutorial.runs.iterdir())


@pytest.mark.parametrize(
    "before, after, why",
    [
        ("shutil.copytree(", "shutil.no_such(", "generate_job_resource raised AttributeError"),
        ('["/bin/sh"', '["/bin/no-shell"', "submit_job raised FileNotFoundError"),
        ("return SnapshotHandler(", "return str(", "submit_job raised TypeError"),
        ("code = int(", "code = no_such(", "the handler's wait raised NameError"),
        ("return JobResult(code, ", "return (code, ", "it returned (0, '') and not a JobResult"),
        ("return JobResult(code, ", "return JobResult('0', ", "JobResult(exit_code='0', reason="),
    ],
)
def test_a_plugin_that_raises_fails_its_run_and_leaves_nothing_running(
    tutorial: Tutorial, process_token: str, before: str, after: str, why: str
) -> None:
    tutorial.change("snapshot.py", before, after)
    tutorial.type("submit", "--wait", "job.yaml", code=None)
    listed = tutorial.list()["count"]
    assert listed["state"] == "FAILED"
    assert why in listed["reason"]
    assert not descendants_and_orphans(process_token)
    [run] = tutorial.runs.iterdir()
    assert not (run / "folder").exists()
    assert kinds(run).count("cleaned") == 1
