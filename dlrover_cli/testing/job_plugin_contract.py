"""What a job plugin has to do for the one who submits, stops and cleans up: tests for one's own.

    class TestMyPlugin(JobPluginContract):
        plugin_type = MyPlugin

        @pytest.fixture
        def good_properties(self, project):
            (project / "hello.sh").write_text("echo hello")
            return {"script": "hello.sh"}  # a job that ends by itself, and well

        @pytest.fixture
        def endless_properties(self, project):
            return {…}  # a job that ends only when it is stopped

        @pytest.fixture
        def bad_properties(self, project):
            return {…}  # a job that fails by itself; leave the fixture out if there is none

The class must be one that another process can import.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.contracts.job_checks import check_job_plugin
from dlrover_cli.contracts.jobs import (
    AbstractJob,
    AbstractJobHandler,
    AbstractJobPlugin,
    AISubGraph,
    JobResult,
    ProjectDesc,
)
from dlrover_cli.contracts.jsonable import check_round_trip, decode, encode

_ELSEWHERE = "from dlrover_cli.testing.job_plugin_contract import _elsewhere; _elsewhere()"


class JobPluginContract:
    """Derive from it, name the class Test…, say which plugin, and give it properties of jobs."""

    plugin_type: type[AbstractJobPlugin]
    patience = 60.0
    """How many seconds a job may take to end."""

    @pytest.fixture
    def good_properties(self, project: Path) -> Mapping[str, Any]:
        raise NotImplementedError("give the class a fixture good_properties")

    @pytest.fixture
    def endless_properties(self, project: Path) -> Mapping[str, Any]:
        raise NotImplementedError("give the class a fixture endless_properties")

    @pytest.fixture
    def bad_properties(self, project: Path) -> Mapping[str, Any]:
        pytest.skip("this plugin has no job that fails by itself")

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        """The directory of the job file."""
        directory = tmp_path / "project"
        directory.mkdir()
        return directory

    @pytest.fixture
    def run(self, tmp_path: Path, project: Path) -> Iterator["ContractRun"]:
        """Makes a job and takes it through its life; whatever is left of it at the end, ends."""
        run = ContractRun(self.plugin_type(), project, tmp_path / "runs", self.patience)
        yield run
        run.close()

    def test_the_plugin_is_whole(self) -> None:
        check_job_plugin(self.plugin_type)

    def test_generate_starts_and_creates_nothing(
        self, run: "ContractRun", good_properties: Mapping[str, Any]
    ) -> None:
        files, children = _files(run.project.parent), _children()
        run.generate(good_properties)
        assert _files(run.project.parent) == files
        assert _children() == children

    def test_another_process_can_read_the_job(
        self, run: "ContractRun", good_properties: Mapping[str, Any]
    ) -> None:
        job = run.generate(good_properties)
        assert isinstance(job, run.plugin.job_type())
        check_round_trip(job, "the job")

    def test_a_job_that_is_submitted_ends_well(
        self, run: "ContractRun", good_properties: Mapping[str, Any]
    ) -> None:
        run.generate(good_properties)
        handler = run.submit()
        check_round_trip(handler, "the handler")
        assert run.wait().is_success
        run.cleanup()

    def test_a_job_that_fails_says_so(
        self, run: "ContractRun", bad_properties: Mapping[str, Any]
    ) -> None:
        run.generate(bad_properties)
        run.submit()
        result = run.wait()
        assert not result.is_success
        assert result.reason
        run.cleanup()

    def test_waiting_gives_up_after_its_time(
        self, run: "ContractRun", endless_properties: Mapping[str, Any]
    ) -> None:
        run.generate(endless_properties)
        handler = run.submit()
        assert handler.wait(0) is None
        assert handler.wait(0.05) is None
        run.stop()

    def test_a_job_that_is_stopped_has_ended_when_stop_returns(
        self, run: "ContractRun", endless_properties: Mapping[str, Any]
    ) -> None:
        run.generate(endless_properties)
        handler = run.submit()
        run.stop()
        assert handler.wait(0) is not None
        run.cleanup()

    def test_another_process_stops_and_cleans_up_with_the_two_documents_alone(
        self, run: "ContractRun", endless_properties: Mapping[str, Any]
    ) -> None:
        run.generate(endless_properties)
        handler = run.submit()
        assert run.elsewhere("stop") == "stopped"
        assert handler.wait(self.patience) is not None
        assert run.elsewhere("cleanup") == "clean"

    def test_another_process_waits_and_is_told_the_same(
        self, run: "ContractRun", bad_properties: Mapping[str, Any]
    ) -> None:
        run.generate(bad_properties)
        run.submit()
        here = run.wait()
        assert run.elsewhere("wait") == str(here.exit_code)

    def test_stopping_what_has_ended_or_never_began_is_no_error(
        self, run: "ContractRun", good_properties: Mapping[str, Any]
    ) -> None:
        run.generate(good_properties)
        run.stop()
        run.submit()
        run.wait()
        run.stop()
        assert run.wait().is_success

    def test_cleaning_up_twice_is_no_error(
        self, run: "ContractRun", good_properties: Mapping[str, Any]
    ) -> None:
        run.generate(good_properties)
        run.submit()
        run.wait()
        run.cleanup()
        run.cleanup()
        assert run.elsewhere("cleanup") == "clean"

    def test_what_never_began_can_be_cleaned_up(
        self, run: "ContractRun", good_properties: Mapping[str, Any]
    ) -> None:
        run.generate(good_properties)
        run.cleanup()


class ContractRun:
    """One job on its way, as the runner of a submitted job takes it."""

    def __init__(
        self, plugin: AbstractJobPlugin, project: Path, runs: Path, patience: float
    ) -> None:
        self.plugin = plugin
        self.project = project
        self.patience = patience
        self.run_id = f"contract-{secrets.token_hex(8)}"
        self.directory = runs / self.run_id
        self.directory.mkdir(parents=True, mode=0o700)
        self._job: AbstractJob | None = None

    @property
    def job(self) -> AbstractJob:
        assert self._job is not None, "generate comes first"
        return self._job

    def generate(self, properties: Mapping[str, Any]) -> AbstractJob:
        """The job of these properties, with the id and the directory of this run."""
        config = self.plugin.job_config_type()(
            platform=self.plugin.platform().platform(),
            engine=self.plugin.engine().engine(),
            job_name="contract",
            properties=properties,
        )
        project = ProjectDesc("contract", str(self.project))
        self._job = self.plugin.generate(AISubGraph(config), project)
        self._job.job_context.run_id = self.run_id
        self._job.job_context.run_directory = str(self.directory)
        return self._job

    def submit(self) -> AbstractJobHandler:
        self.plugin.generate_job_resource(self.job)
        self.job.job_handler = self.plugin.submit_job(self.job)
        return self.job.job_handler

    def wait(self) -> JobResult:
        """How the job ended; fails the test if it takes too long."""
        assert self.job.job_handler is not None
        result = self.job.job_handler.wait(self.patience)
        if result is None:
            pytest.fail(f"the job has not ended after {self.patience:g} s")
        return result

    def stop(self) -> None:
        self.plugin.stop_job(self.job)

    def cleanup(self) -> None:
        self.plugin.cleanup_job(self.job)

    def elsewhere(self, what: str) -> str:
        """Do it in another process, which has the job and the handler as JSON and nothing else."""
        plugin = type(self.plugin)
        documents = {
            "plugin": f"{plugin.__module__}::{plugin.__qualname__}",
            "job": encode(self.job, "the job"),
            "handler": encode(self.job.job_handler, "the handler"),
        }
        done = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE, what, str(self.patience)],
            input=json.dumps(documents),
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=2 * self.patience,
            check=True,
        )
        return done.stdout.split()[-1]

    def close(self) -> None:
        """Stop and clean up, in case a test has failed on its way."""
        if self._job is not None:
            self.stop()
            self.cleanup()


def _elsewhere() -> None:
    """The other process: what to do and how long to wait, and on stdin the documents."""
    from dlrover_cli.plugins.reference import load_reference

    documents = json.load(sys.stdin)
    plugin: Any = load_reference(documents["plugin"], option="plugin", base=None, roots=())()
    job, handler = decode(documents["job"]), decode(documents["handler"])
    job.job_handler = handler
    match sys.argv[1]:
        case "stop":
            plugin.stop_job(job)
            answer = "stopped"
        case "cleanup":
            plugin.cleanup_job(job)
            answer = "clean"
        case _:
            answer = str(handler.wait(float(sys.argv[2])).exit_code)
    sys.stdout.write(f"\n{answer}\n")


def _files(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


def _children() -> set[str]:
    """The pids of this process's children, where the system tells them."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}
