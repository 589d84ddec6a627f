"""From what a worker left behind to a failure that an extension, a rule and a person can read."""

import json
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dlrover_cli.agent.facts import (
    describe_status,
    failure_info,
    hang_failures,
    is_collateral,
    read_exception,
    worker_failure,
)
from dlrover_cli.agent.progress import Hang
from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure, WorkerPhase
from dlrover_cli.failover.decide import Counters, Limits
from dlrover_cli.workers.api import WorkerExit
from dlrover_cli.workers.beats import Beat
from tests.workers.bootstrapped import Ended, Workers

TRAINING = Beat(phase=WorkerPhase.TRAINING)


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


def exited(status: int, time_ns: int = 5_000_000_000) -> WorkerExit:
    return WorkerExit(attempt=0, local_rank=0, pid=4711, status=status, time_ns=time_ns)


def failure_of(ended: Ended, *, error_file: str = "", **options: Any) -> WorkerFailure:
    """What the agent makes of a worker that really ran."""
    return worker_failure(
        exited(ended.status, time.time_ns()),
        8,
        error_file,
        worker_dir=ended.directory,
        beat=options.pop("beat", ended.beat),
        tail=ended.stderr,
        **options,
    )


def info_of(
    *failures: WorkerFailure, tails: Mapping[int, str] | None = None, **options: Any
) -> AgentFailureInfo:
    def tail(local_rank: int) -> str:
        return (tails or {}).get(local_rank, "")

    return failure_info(failures, tail, 2, "run-1", Counters(), Limits(max_restarts=3), **options)


class TestException:
    def test_it_is_taken_from_the_worker_with_the_time_when_it_happened(
        self, workers: Workers
    ) -> None:
        ended = workers.run("class Bad(Exception): pass\nraise Bad('no data')")
        recorded = ended.record("exception")
        failure = failure_of(ended)
        assert failure.exception_type == "__main__.Bad"
        assert failure.message == "no data"
        assert failure.traceback == ended.stderr
        assert failure.time_ns == recorded["time_ns"] < time.time_ns()
        assert (failure.exit_code, failure.signal, failure.pid) == (1, None, 4711)
        assert failure.phase is WorkerPhase.START_UP

    @pytest.mark.parametrize("code", ["raise ValueError", "x = (", "import not_installed"])
    def test_before_training_it_is_a_failure_of_the_start_up(
        self, workers: Workers, code: str
    ) -> None:
        info = info_of(failure_of(workers.run(code)))
        assert (info.kind, info.phase) == (FailureKind.START_UP, WorkerPhase.START_UP)

    def test_in_training_it_is_an_exception(self, workers: Workers) -> None:
        ended = workers.run("raise ValueError", before=_in_training)
        info = info_of(failure_of(ended))
        assert (info.kind, info.phase) == (FailureKind.EXCEPTION, WorkerPhase.TRAINING)

    @pytest.mark.parametrize("crash", ["SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"])
    def test_a_crash_on_top_of_it_is_neither_the_reason_nor_the_status(
        self, workers: Workers, crash: str
    ) -> None:
        """As when a communication library aborts because the interpreter goes away under it."""
        ended = workers.run(_ending_in("ValueError('the reason')", crash), before=_in_training)
        assert ended.status == -getattr(signal, crash)
        failure = failure_of(ended)
        assert (failure.exit_code, failure.signal) == (1, None)
        assert failure.message == "the reason"
        assert not is_collateral(failure, ended.stderr)
        assert info_of(failure).kind is FailureKind.EXCEPTION

    def test_what_somebody_else_sends_is_the_status_and_not_the_reason(
        self, workers: Workers
    ) -> None:
        failure = failure_of(workers.run(_ending_in("ValueError('the reason')", "SIGKILL")))
        assert (failure.exit_code, failure.signal) == (None, signal.SIGKILL)
        assert failure.message == "the reason"

    def test_a_crash_after_an_interrupt_leaves_it_an_interrupt(self, workers: Workers) -> None:
        failure = failure_of(workers.run(_ending_in("KeyboardInterrupt", "SIGABRT")))
        assert failure.signal == signal.SIGINT
        assert info_of(failure).kind is FailureKind.SIGNAL

    def test_an_interrupt_is_a_signal(self, workers: Workers) -> None:
        ended = workers.run(
            "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
        )
        failure = failure_of(ended)
        assert failure.signal == signal.SIGINT
        assert info_of(failure).kind is FailureKind.SIGNAL

    def test_torchs_error_file_is_read_where_the_worker_left_nothing(self, tmp_path: Path) -> None:
        error_file = tmp_path / "error.json"
        extra = {"py_callstack": "Traceback …", "timestamp": "5"}
        error_file.write_text(
            json.dumps({"message": {"message": "ValueError: x", "extraInfo": extra}})
        )
        failure = worker_failure(exited(1), 0, str(error_file), worker_dir=tmp_path, beat=TRAINING)
        assert failure.exception_type == "ValueError"
        assert failure.message == "ValueError: x"
        assert failure.traceback == "Traceback …"
        assert info_of(failure).kind is FailureKind.EXCEPTION
        assert info_of(failure).log_content.count("ValueError: x") == 1

    def test_frames_with_locals_can_be_read_for_a_person(self, workers: Workers) -> None:
        ended = workers.run("def f(x): raise ValueError\nf(3)", frame_locals=True)
        recorded = read_exception(ended.directory)
        assert recorded is not None
        assert recorded.frames[-1]["function"] == "f"
        assert recorded.frames[-1]["locals"] == {"x": "3"}


class TestExit:
    def test_the_call_and_its_place_are_the_message(self, workers: Workers) -> None:
        ended = workers.run("import sys\ndef main():\n    sys.exit(3)\nmain()")
        failure = failure_of(ended)
        assert failure.message == f"sys.exit(3) at {workers.script}:3 in main"
        assert failure.traceback.splitlines() == [
            f"  {workers.script}:4 in <module>",
            f"  {workers.script}:3 in main",
        ]
        assert failure.exception_type is None
        assert failure.time_ns == ended.record("exit")["time_ns"]
        assert info_of(failure).kind is FailureKind.START_UP

    def test_in_training_its_kind_is_exit(self, workers: Workers) -> None:
        ended = workers.run("import os; os._exit(9)", before=_in_training)
        assert info_of(failure_of(ended)).kind is FailureKind.EXIT

    def test_a_call_with_another_code_is_not_the_one(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import sys
            try:
                sys.exit(3)
            except SystemExit:
                raise SystemExit(4)
            """
        )
        assert (ended.status, failure_of(ended).message) == (4, "")

    def test_a_thread_that_died_before_is_told(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import os, threading
            def load(): raise KeyError("shard")
            thread = threading.Thread(target=load, name="loader")
            thread.start()
            thread.join()
            os._exit(1)
            """
        )
        failure = failure_of(ended)
        call, thread = failure.message.splitlines()
        assert call.startswith("os._exit(1) at ")
        assert thread == "thread 'loader' died of KeyError: 'shard'"
        assert "in load" in failure.traceback

    def test_an_exit_that_nobody_saw_has_its_status_only(self, tmp_path: Path) -> None:
        failure = worker_failure(exited(7), 3, "", worker_dir=tmp_path)
        assert (failure.exit_code, failure.message, failure.time_ns) == (7, "", 5_000_000_000)
        assert info_of(failure).kind is FailureKind.EXIT
        assert info_of(failure).phase is WorkerPhase.UNKNOWN


class TestCrash:
    def test_the_dump_is_the_traceback(self, workers: Workers) -> None:
        ended = workers.run("import ctypes\ndef kernel(): ctypes.string_at(8)\nkernel()")
        failure = failure_of(ended)
        assert (failure.signal, failure.exit_code) == (signal.SIGSEGV, None)
        assert failure.message == "Segmentation fault"
        assert failure.traceback.startswith("Fatal Python error: Segmentation fault")
        assert " in kernel" in failure.traceback
        info = info_of(failure)
        assert (info.kind, info.phase) == (FailureKind.SIGNAL, WorkerPhase.START_UP)
        assert " in kernel" in info.log_content

    def test_a_dump_on_stderr_serves_as_well(self, workers: Workers) -> None:
        """torch's @record enables faulthandler itself."""
        ended = workers.run(
            "import ctypes, faulthandler\nfaulthandler.enable()\nctypes.string_at(8)"
        )
        failure = failure_of(ended)
        assert failure.message == "Segmentation fault"
        assert "in string_at" in failure.traceback
        assert info_of(failure, tails={0: ended.stderr}).log_content.count("in string_at") == 1

    def test_what_the_cpp_runtime_said_is_the_message(self, tmp_path: Path) -> None:
        tail = (
            "warning: unrelated\n"
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            "  what():  NCCL error: unhandled system error\n"
            "frame #0: …\n"
        )
        failure = worker_failure(exited(-6), 0, "", worker_dir=tmp_path, tail=tail)
        assert failure.message.splitlines()[-1] == "  what():  NCCL error: unhandled system error"

    def test_a_kill_leaves_nothing_but_its_name(self, workers: Workers) -> None:
        ended = workers.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        failure = failure_of(ended)
        assert (failure.signal, failure.message, failure.traceback) == (9, "", "")
        assert describe_status(failure) == "was killed by SIGKILL"

    def test_memory_is_blamed_for_a_kill_and_for_nothing_else(self) -> None:
        killed = worker_failure(exited(-9), 0, "", oom=True)
        assert killed.oom
        assert describe_status(killed) == "was killed by SIGKILL, the kernel was out of memory"
        assert not worker_failure(exited(-11), 0, "", oom=True).oom
        assert not worker_failure(exited(1), 0, "", oom=True).oom
        assert not worker_failure(exited(-9), 0, "").oom


class TestJunk:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            "[]",
            "3",
            "\0\1",
            '{"type": 3, "message": [], "time_ns": "now", "phase": "late", "frames": [1, "x"]}',
            '{"frames": {}, "phase": ["training"], "traceback": null}',
            "[" * 100_000,
        ],
    )
    @pytest.mark.parametrize("name", ["exception", "exit", "thread"])
    def test_what_a_worker_wrote_is_not_trusted(self, tmp_path: Path, name: str, text: str) -> None:
        (tmp_path / f"{name}.json").write_text(text)
        (tmp_path / "fault.txt").write_bytes(b"\xff\xfe")
        for status in (1, -11):
            failure = worker_failure(exited(status), 0, "", worker_dir=tmp_path)
            assert info_of(failure).to_json()

    def test_a_directory_that_is_gone_is_no_problem(self, tmp_path: Path) -> None:
        failure = worker_failure(exited(1), 0, "", worker_dir=tmp_path / "gone")
        assert failure.message == ""


class TestRootCause:
    def failure(self, rank: int, **facts: Any) -> WorkerFailure:
        return WorkerFailure(
            **{"global_rank": rank, "local_rank": rank, "exit_code": 1, "time_ns": 100} | facts
        )

    def test_an_exception_about_a_lost_peer_is_never_it(self) -> None:
        lost = self.failure(
            0,
            exception_type="RuntimeError",
            message="[gloo] Connection closed by peer [10.0.0.2]:4711",
            time_ns=50,
        )
        cause = self.failure(1, exception_type="ValueError", message="bad batch", time_ns=90)
        info = info_of(lost, cause)
        assert [worker.global_rank for worker in info.workers] == [1, 0]
        assert info.root_cause == info.workers[0]

    @pytest.mark.parametrize(
        "message",
        [
            "Connection reset by peer",
            "failed to recv, got 0 bytes. Connection was likely closed. Did the remote server …",
            "NCCL communicator was aborted on rank 3.",
        ],
    )
    def test_lost_peers_have_many_words(self, message: str) -> None:
        assert is_collateral(self.failure(0, exception_type="X", message=message), "")

    def test_a_worker_that_caught_it_and_exited_is_judged_by_what_it_printed(self) -> None:
        left = self.failure(0, message="sys.exit(1) at train.py:3 in main")
        assert is_collateral(left, "giving up\nRuntimeError: Connection closed by peer\nbye")
        assert not is_collateral(left, "no data\n")

    def test_an_exception_is_judged_by_its_own_message_only(self) -> None:
        raised = self.failure(0, exception_type="ValueError", message="bad batch")
        assert not is_collateral(raised, "warning: Connection reset by peer, retrying\n")

    def test_among_equals_it_is_the_earliest(self) -> None:
        late = self.failure(0, time_ns=200)
        early = self.failure(1, time_ns=100)
        assert info_of(late, early).workers[0].global_rank == 1


class TestLogContent:
    def test_the_root_cause_comes_first_and_nothing_twice(self, workers: Workers) -> None:
        ended = workers.run(
            """
            import sys
            for step in range(100):
                print("step", step, file=sys.stderr)
            raise ValueError("bad batch")
            """
        )
        failure = failure_of(ended)
        other = WorkerFailure(
            global_rank=9,
            local_rank=1,
            exit_code=1,
            exception_type="RuntimeError",
            message="Connection closed by peer\nmore",
        )
        text = info_of(failure, other, tails={0: ended.stderr}).log_content
        lines = text.splitlines()
        assert lines[:3] == [
            "rank 8 exited with code 1",
            "ValueError: bad batch",
            "Traceback (most recent call last):",
        ]
        assert text.count("Traceback") == 1
        assert lines[lines.index("the end of its stderr:") + 1] == "step 60"
        assert lines[-2:] == [
            "step 99",
            "rank 9 exited with code 1: RuntimeError: Connection closed by peer",
        ]

    def test_the_prefix_that_torch_puts_before_a_traceback_does_not_double_it(self) -> None:
        traceback = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: no\n'
        printed = "".join(f"[rank3]: {line}\n" for line in traceback.splitlines())
        failure = WorkerFailure(
            global_rank=3,
            local_rank=0,
            exit_code=1,
            exception_type="ValueError",
            message="no",
            traceback=traceback,
        )
        text = info_of(failure, tails={0: f"before\n{printed}"}).log_content
        assert text.count("Traceback") == 1
        assert text.endswith("the end of its stderr:\nbefore")

    def test_it_is_bounded(self, workers: Workers) -> None:
        ended = workers.run(
            "import sys\nsys.stderr.write('x' * 100_000)\nraise ValueError('y' * 1_000_000)"
        )
        text = info_of(failure_of(ended), tails={0: ended.stderr[-65536:]}).log_content
        assert len(text) < 90_000


class TestHang:
    STACK = (
        'Current thread 0x1 (most recent call first):\n  File "/job/{file}", line {line} in {f}\n'
    )

    def hang(self, ranks: int, odd: int | None, **changes: Any) -> list[WorkerFailure]:
        stacks = {
            rank: self.STACK.format(
                file="train.py", line=7, f="all_reduce" if rank != odd else "io"
            )
            for rank in range(ranks)
        }
        facts: dict[str, Any] = {
            "hang": Hang(tuple(range(ranks)), since=940.0),
            "pids": {rank: 100 + rank for rank in range(ranks)},
            "global_ranks": {rank: 8 + rank for rank in range(ranks)},
            "beats": {rank: Beat(steps=5, phase=WorkerPhase.TRAINING) for rank in range(ranks)},
            "stacks": stacks,
            "now": 1000.0,
            "now_ns": 70_000_000_000,
        }
        return hang_failures(**facts | changes)

    def test_the_odd_rank_is_the_root_cause_and_the_time_is_when_it_stopped(self) -> None:
        failures = self.hang(4, odd=2)
        assert [failure.global_rank for failure in failures] == [10, 8, 9, 11]
        info = info_of(*failures, stacks={8 + f.local_rank: f.traceback for f in failures}, steps=5)
        assert info.kind is FailureKind.HANG
        assert info.phase is WorkerPhase.TRAINING
        assert info.root_cause is not None
        assert info.root_cause.global_rank == 10
        assert (info.timestamp, info.root_cause.time_ns) == (10, 10_000_000_000)
        assert info.steps == 5
        assert sorted(info.stacks) == ["10", "11", "8", "9"]
        lines = info.log_content.splitlines()
        assert lines[:3] == [
            "rank 10 has not moved for 60 s, after 5 steps",
            "3 ranks (8, 9, 11): in all_reduce (train.py:7)",
            "rank 10: in io (train.py:7)",
        ]
        assert lines[-1] == "rank 11 has not moved for 60 s, after 5 steps"

    def test_without_an_odd_stack_the_rank_that_is_behind_comes_first(self) -> None:
        hang = Hang((0, 1, 2), since=940.0, behind=(1,))
        assert self.hang(3, odd=None, hang=hang)[0].global_rank == 9

    def test_with_nothing_to_go_by_the_first_rank_comes_first(self) -> None:
        failures = self.hang(3, odd=None, stacks={}, beats={})
        assert failures[0].global_rank == 8
        assert failures[0].message == "has not moved for 60 s, before its first step"
        assert info_of(*failures, stacks={}).kind is FailureKind.HANG

    def test_it_survives_its_json_form(self) -> None:
        failures = self.hang(2, odd=1)
        info = info_of(*failures, stacks={8: "x", 9: "y"})
        assert AgentFailureInfo.from_json(json.loads(json.dumps(info.to_json()))) == info

    def test_its_status_is_a_sentence(self) -> None:
        assert describe_status(self.hang(2, odd=1)[0]) == ("has not moved for 60 s, after 5 steps")


def _ending_in(exception: str, name: str) -> str:
    """A worker that raises this, and gets this signal when its interpreter ends."""
    return f"""
        import atexit, os, signal
        atexit.register(os.kill, os.getpid(), signal.{name})
        raise {exception}
    """


def _in_training(directory: Path) -> None:
    """Write into the worker's page, before it starts, that it is in training."""
    number = directory.name.rpartition("_")[2]
    with (directory.parent / f"beat_{number}").open("r+b") as page:
        page.seek(16)
        page.write((2).to_bytes(8, "little"))


def test_reading_never_takes_long(tmp_path: Path) -> None:
    """The agent asks for every failed worker, several times, on the way to recovery."""
    (tmp_path / "fault.txt").write_bytes(b"x\n" * 5_000_000)
    (tmp_path / "exception.json").write_bytes(b"[" + b"1," * 5_000_000)
    tail = "terminate called by\n" * 3_000
    assert _seconds(lambda: worker_failure(exited(-6), 0, "", worker_dir=tmp_path, tail=tail)) < 1.0


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
