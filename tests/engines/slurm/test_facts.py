"""What is read from Slurm's commands, its signals and its variables, and from a run before."""

import json
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import DEFAULT, Source, SourceKind
from dlrover_cli.errors import UsageError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.failover.decide import Counters
from dlrover_cli.launch.given_run import GivenRun
from dlrover_cli.platforms.slurm.allocation import find_allocation, find_step
from dlrover_cli.platforms.slurm.checks import complaints
from dlrover_cli.platforms.slurm.commands import NoSuchJob, Slurm, SlurmError, require_slurm
from dlrover_cli.platforms.slurm.ends import exit_code_of_end
from dlrover_cli.platforms.slurm.facts import JobFacts, NodeFacts, fields
from dlrover_cli.platforms.slurm.history import read_history
from dlrover_cli.platforms.slurm.managing import lists_code
from dlrover_cli.platforms.slurm.meaning import meaning_of
from dlrover_cli.platforms.slurm.orphans import OrphanWatch
from dlrover_cli.platforms.slurm.probing import answering
from dlrover_cli.platforms.slurm.step import fill_from_step

JOB = (
    "JobId=2 JobName=a b UserId=me(1) JobState=RUNNING Reason=None Restarts=1 ExitCode=0:9 "
    "TimeLimit=00:05:00 EndTime=2026-11-17T02:42:57 ReqNodeList=(null) ExcNodeList=(null) "
    "NodeList=n[1-3] BatchHost=n1 NumNodes=3"
)
STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu[03-04,9]",
    "SLURM_NODEID": "1",
}


def test_a_job_is_read_from_one_line():
    assert fields(JOB)["JobName"] == "a b"
    assert JobFacts.read(JOB + "\n") == JobFacts(
        "RUNNING", "", 1, 128 + 9, "n[1-3]", "2026-11-17T02:42:57", batch_host="n1"
    )


def listing(*jobs: dict[str, object]) -> str:
    return json.dumps({"errors": [], "jobs": jobs})


_OLD = {
    "job_state": "RUNNING",
    "state_reason": "None",
    "exit_code": 9,
    "restart_cnt": 1,
    "nodes": "n[1-3]",
    "end_time": int(time.mktime((2026, 11, 17, 2, 42, 57, 0, 0, -1))),
    "preempt_time": 0,
    "batch_host": "n1",
}


def number(value: int, *, is_set: bool = True) -> dict[str, object]:
    return {"set": is_set, "infinite": False, "number": value}


_NEW = {
    **_OLD,
    "job_state": ["RUNNING"],
    "exit_code": {
        "status": ["SIGNALED"],
        "return_code": number(0, is_set=False),
        "signal": {"id": number(9), "name": "KILL"},
    },
    "end_time": number(_OLD["end_time"]),
    "preempt_time": number(0, is_set=False),
}


@pytest.mark.parametrize("row", [_OLD, _NEW], ids=["22.05", "24.05"])
def test_a_job_is_the_same_in_json(row):
    assert JobFacts.of_json(row) == JobFacts.read(JOB)


@pytest.mark.parametrize(
    "states, state, is_over",
    [
        (["RUNNING", "COMPLETING"], "COMPLETING", False),
        (["PENDING", "REQUEUED"], "REQUEUED", False),
        (["CANCELLED"], "CANCELLED", True),
        ([], "UNKNOWN", False),
    ],
)
def test_of_several_states_the_one_counts_that_scontrol_shows(states, state, is_over):
    job = JobFacts.of_json({"job_state": states})
    assert (job.state, job.is_over) == (state, is_over)


def test_an_exit_code_in_json_is_a_wait_status_or_has_parts():
    assert JobFacts.of_json({"job_state": "FAILED", "exit_code": 768}).exit_code == 3
    parts = {"return_code": number(3), "signal": {"signal_id": 0}}
    assert JobFacts.of_json({"job_state": ["FAILED"], "exit_code": parts}).exit_code == 3


@pytest.mark.parametrize(
    "state, is_gone, takes_steps",
    [
        ("IDLE", False, True),
        ("ALLOCATED", False, True),
        ("MIXED+DRAIN", False, False),
        ("ALLOCATED*", False, False),
        ("DOWN*", True, False),
        ("DOWN+NOT_RESPONDING", True, False),
        ("IDLE+POWERED_DOWN", True, False),
    ],
)
def test_the_state_of_a_node_says_whether_it_is_gone(state, is_gone, takes_steps):
    facts = NodeFacts.of({"NodeName": "n1", "State": state})
    assert (facts.is_gone, facts.takes_steps) == (is_gone, takes_steps)


@pytest.mark.parametrize(
    "signum, job, expected",
    [
        (signal.SIGTERM, JobFacts("COMPLETING", restarts=1), (143, "back into its queue", True)),
        (
            signal.SIGUSR1,
            JobFacts("RUNNING", end_time="12:00"),
            (85, "near: it ends at 12:00", False),
        ),
        (signal.SIGUSR1, None, (85, "time limit", False)),
        (signal.SIGTERM, JobFacts("TIMEOUT"), (85, "at its time limit", False)),
        (signal.SIGTERM, JobFacts("PREEMPTED"), (85, "preempted", False)),
        (signal.SIGTERM, JobFacts("RUNNING", is_preempted=True), (85, "preempted", False)),
        (signal.SIGTERM, JobFacts("CANCELLED"), (143, "cancelled", False)),
        (signal.SIGINT, JobFacts("RUNNING"), (130, "received SIGINT", False)),
        (signal.SIGTERM, None, (143, "received SIGTERM", False)),
    ],
)
def test_a_signal_means_what_slurm_says_of_the_job(signum, job, expected):
    code, words, goes_on = expected
    lost = meaning_of(signum, job, restarts=0)
    assert (lost.exit_code, lost.goes_on) == (code, goes_on)
    assert words in lost.reason


@pytest.mark.parametrize(
    "job, code",
    [
        (JobFacts("TIMEOUT"), ExitCode.PREEMPTED),
        (JobFacts("PREEMPTED"), ExitCode.PREEMPTED),
        (JobFacts("CANCELLED"), 143),
        (JobFacts("FAILED", exit_code=7), 7),
        (JobFacts("NODE_FAIL"), 1),
        (None, 1),
    ],
)
def test_an_end_without_a_result_has_the_code_that_slurm_knows(job, code):
    assert exit_code_of_end(job) == code


def test_complaints_name_the_nodes():
    output = "n2:the script x is not there\nn1:the script x is not there\nnoise\n"
    assert complaints(output) == ["on n1, n2 the script x is not there"]


class TestAnswers:
    """Of a controller that hangs, that does not know the job, and that is not there."""

    @pytest.fixture
    def slurm(self, tmp_path: Path) -> Slurm:
        return Slurm({"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    def program(self, directory: Path, body: str, name: str = "scontrol") -> None:
        path = directory / name
        path.write_text(f"#!/bin/sh\necho {name} $* >> {directory}/asked\n{body}\n")
        path.chmod(0o755)

    def asked(self, directory: Path) -> list[str]:
        """The commands so far, with the first option of each."""
        lines = (directory / "asked").read_text().splitlines()
        (directory / "asked").unlink()
        return [" ".join(line.split()[:2]) for line in lines]

    def test_a_controller_that_hangs_costs_the_deadline_and_is_a_sentence(self, slurm, tmp_path):
        self.program(tmp_path, "exec sleep 30")
        started = time.monotonic()
        with pytest.raises(SlurmError, match=re.escape("did not answer scontrol within 0.3 s")):
            slurm.run("scontrol", "ping", deadline=0.3)
        assert time.monotonic() - started < 10

    def test_a_job_that_is_forgotten_is_told_from_a_failure(self, slurm, tmp_path):
        words = "slurm_load_jobs error: Invalid job id specified"
        self.program(tmp_path, f"echo '{listing()}'", "squeue")
        self.program(tmp_path, f"echo {words} >&2; exit 1")
        with pytest.raises(NoSuchJob):
            slurm.job("7")

    def test_a_controller_out_of_reach_is_no_forgotten_job(self, slurm, tmp_path):
        """squeue of 22.05 ends well then, with no jobs in what it prints."""
        document = json.dumps({"errors": [{"description": "Failed"}], "jobs": []})
        words = "echo 'Unable to contact slurm controller' >&2; exit 1"
        self.program(tmp_path, f"[ \"$1\" != --json ] || exec echo '{document}'; {words}", "squeue")
        self.program(tmp_path, words)
        for _ in range(2):  # and no command is blamed for it
            with pytest.raises(SlurmError, match="Unable to contact slurm controller") as caught:
                slurm.job("7")
            assert type(caught.value) is SlurmError
            assert self.asked(tmp_path) == ["squeue --json", "scontrol show", "squeue --noheader"]

    @pytest.mark.parametrize(
        "words",
        [
            "squeue: unrecognized option '--json'",
            "squeue: fatal: Unable to find plugin: serializer/json",
        ],
    )
    def test_without_json_scontrol_is_asked_and_squeue_not_again(self, slurm, tmp_path, words):
        self.program(tmp_path, f'echo "{words}" >&2; exit 1', "squeue")
        self.program(tmp_path, f"echo '{JOB}'")
        for asked in (["squeue --json", "scontrol show"], ["scontrol show"]):
            assert slurm.job("2") == JobFacts.read(JOB)
            assert self.asked(tmp_path) == asked

    def test_a_site_that_keeps_scontrol_to_itself_has_squeue(self, slurm, tmp_path):
        row = f"{'RUNNING':40}{'None':60}{9:<12}{1:<12}{'2026-11-17T02:42:57':24}{'N/A':24}"
        row += f"{'n1':256}n[1-3]"
        refusal = "echo 'Access denied' >&2; exit 1"
        self.program(tmp_path, f'[ "$1" != --json ] || {{ {refusal}; }}; echo "{row}"', "squeue")
        self.program(tmp_path, refusal)
        assert slurm.job("2") == JobFacts.read(JOB)

    def test_who_sends_all_jobs_of_a_busy_cluster_is_asked_once(self, slurm, tmp_path):
        jobs = [{"job_id": number, "job_state": "PENDING"} for number in range(1000)]
        (tmp_path / "jobs").write_text(listing(*jobs))
        self.program(tmp_path, f"cat {tmp_path}/jobs", "squeue")
        self.program(tmp_path, "echo JobState=RUNNING")
        assert slurm.job("7") == JobFacts("PENDING")
        assert slurm.job("7") == JobFacts("RUNNING")
        assert self.asked(tmp_path) == ["squeue --json", "scontrol show"]

    @pytest.mark.parametrize("may_requeue", [True, False])
    def test_a_job_without_its_managers_node_is_put_back_once_or_cancelled(
        self, slurm, tmp_path, may_requeue
    ):
        words = "" if may_requeue else "echo 'Requested operation is disabled' >&2; exit 1"
        node = "echo NodeName=n2 State=ALLOCATED"
        self.program(tmp_path, f'[ "$1" = requeue ] || exec {node}; {words}')
        self.program(tmp_path, "", "scancel")
        said: list[str] = []
        orphans = OrphanWatch(slurm, "7", said.append)
        orphans._restarts, orphans._host, orphans._node_list = 0, "n1", "n[1-2]"
        lost = JobFacts("RUNNING", node_list="n2", batch_host="n1")
        for _ in range(2):
            orphans.look(lost)
        asked = ["scontrol show", "scontrol requeue", *([] if may_requeue else ["scancel 7"])]
        assert self.asked(tmp_path) == asked
        [line] = said
        assert line.startswith("n1, where the job's manager ran, is lost")

    def test_without_accounting_nobody_knows_the_end(self, slurm, tmp_path):
        self.program(tmp_path, "echo 'Slurm accounting storage is disabled' >&2; exit 1", "sacct")
        assert slurm.ended("7") is None
        self.program(tmp_path, "echo 'CANCELLED by 0|0:9'", "sacct")
        assert slurm.ended("7") == JobFacts("CANCELLED", exit_code=137)

    def test_a_command_that_is_not_installed_is_named(self, tmp_path):
        with pytest.raises(UsageError, match="there is no sbatch in PATH"):
            require_slurm({"PATH": str(tmp_path)})


def test_only_nodes_that_take_a_connection_answer():
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as closed:
            nobody = closed.getsockname()[1]
        addresses = {"n1": ("127.0.0.1", port), "n2": ("127.0.0.1", nobody)}
        assert answering(addresses) == {"n1"}


def test_the_batch_script_is_no_step():
    batch = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n1"}
    assert find_step(batch) is None
    assert find_step({**batch, "SLURM_STEP_ID": "4294967290"}) is None
    assert find_allocation({}) is None
    assert find_allocation({**batch, "SLURM_RESTART_COUNT": "2"}).restarts == 2


def made(**given: object) -> LaunchSettings:
    sources = dict.fromkeys(given, Source(SourceKind.FLAG, "--x"))
    return LaunchSettings(training_script="train.py", sources=sources, **given)  # type: ignore[arg-type]


def test_a_task_of_a_step_takes_from_slurm_what_was_left_open():
    filled = fill_from_step(made(), STEP, lambda node: f"{node}.cluster")
    assert filled.nnodes == "2"
    assert filled.rdzv_backend == "dlrover"
    assert filled.rdzv_endpoint == "gpu03.cluster:15218"
    assert filled.rdzv_id == "slurm-7.1"
    assert filled.rdzv_conf == "is_host=0"
    assert filled.source_of("nnodes") == Source(SourceKind.ENV, "SLURM_STEP_NUM_NODES")
    assert filled.source_of("max_restarts") == DEFAULT
    assert fill_from_step(made(), {**STEP, "SLURM_NODEID": "0"}, str).rdzv_conf == "is_host=1"


def test_what_was_given_stays():
    given = made(nnodes="1:2", rdzv_endpoint="here:1", rdzv_backend="c10d", rdzv_id="mine")
    assert fill_from_step(given, STEP, str) == given
    static = fill_from_step(made(rdzv_backend="static"), STEP, str)
    assert (static.node_rank, static.master_addr, static.master_port) == (1, "gpu03", 15218)


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_STEP_ID": ""},
        {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"},
        {"DLROVER_LEASH": "{}"},
    ],
)
def test_who_is_alone_or_managed_takes_nothing(changes):
    assert fill_from_step(made(), {**STEP, **changes}, str) == made()


def test_several_launchers_on_a_node_are_refused():
    with pytest.raises(UsageError, match="4 launchers on 2 nodes"):
        fill_from_step(made(), {**STEP, "SLURM_STEP_NUM_TASKS": "4"}, str)


class TestHistory:
    """Of a run whose job Slurm has started again."""

    @pytest.fixture
    def given(self, tmp_path: Path) -> GivenRun:
        return GivenRun("run", str(tmp_path), "manager")

    def write(self, given: GivenRun, agent: str, *events: tuple[str, int | None, dict]) -> None:
        directory = Path(given.run_directory, "nodes", agent)
        directory.mkdir(parents=True)
        lines = [
            json.dumps({"kind": kind, "attempt": attempt, "data": data, "time": number})
            for number, (kind, attempt, data) in enumerate(events)
        ]
        (directory / "events.jsonl").write_text("\n".join([*lines, '{"half a li']))

    def test_the_counting_goes_on(self, given):
        start = {"restart_count": 1, "generation": 2}
        self.write(
            given,
            "n1.0",
            ("workers_started", 3, {"restart_count": 0, "generation": 1}),
            ("decision", 3, {"action": "replace_node"}),
            ("workers_started", 4, start),
        )
        self.write(given, "manager", ("replacing", None, {"number": 2}))
        history = read_history(given)
        assert history.counters == Counters(5, 1, 2, node_relaunches=1)
        assert history.relaunches == 2
        assert not history.was_aborted

    def test_a_run_that_never_had_workers_begins_at_the_beginning(self, given):
        assert read_history(given).counters is None

    def test_an_abortion_is_remembered(self, given):
        self.write(given, "manager")
        Path(given.run_directory, given.result_name).write_text('{"exit_code": 82}')
        assert read_history(given).was_aborted


@pytest.mark.parametrize(
    "text, is_listed",
    [("82", True), ("1,80-85", True), ("1, 82", True), ("8,2", False), ("(null)", False)],
)
def test_ranges_of_exit_codes_are_read(text, is_listed):
    assert lists_code(text, ExitCode.ABORTED) is is_listed
