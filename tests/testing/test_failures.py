"""The failures that `dlrover_cli.testing` makes are such as an agent reports."""

import json
from collections.abc import Callable

import pytest

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerPhase
from dlrover_cli.testing import (
    exception_failure,
    exit_failure,
    hang_failure,
    signal_failure,
    start_up_failure,
)

BUILDERS: list[Callable[..., AgentFailureInfo]] = [
    exception_failure,
    exit_failure,
    hang_failure,
    signal_failure,
    start_up_failure,
]


@pytest.mark.parametrize("build", BUILDERS)
def test_a_failure_needs_no_facts_and_is_the_same_each_time(
    build: Callable[..., AgentFailureInfo],
) -> None:
    failure = build()
    assert failure == build()
    assert failure.root_cause is not None
    assert failure.log_content.startswith("rank 0 ")


@pytest.mark.parametrize("build", BUILDERS)
def test_a_failure_can_be_written_down_and_read_again(
    build: Callable[..., AgentFailureInfo],
) -> None:
    failure = build(rank=3, collateral=[1, 2], extra_info={"node": "a"})
    assert AgentFailureInfo.from_json(json.loads(json.dumps(failure.to_json()))) == failure


@pytest.mark.parametrize("build", BUILDERS)
def test_every_failure_takes_the_facts_of_its_surroundings(
    build: Callable[..., AgentFailureInfo],
) -> None:
    failure = build(
        rank=5,
        local_rank=1,
        collateral=[4, 6],
        log="the last line",
        node_rank=2,
        host="gpu-17",
        run_id="r",
        timestamp=12,
        attempt=3,
        restart_count=2,
        restarts_left=1,
        generation=1,
        steps=40,
        extra_info={"zone": "b"},
        phase=WorkerPhase.UNKNOWN,
    )
    root = failure.root_cause
    assert root is not None
    assert (root.global_rank, root.local_rank, root.time_ns) == (5, 1, 12_000_000_000)
    assert [worker.global_rank for worker in failure.workers] == [5, 4, 6]
    assert [worker.root_cause for worker in failure.workers] == [True, False, False]
    assert failure.log_content.splitlines()[0].startswith("rank 5 ")
    assert failure.log_content.endswith("the last line")
    assert (failure.node_rank, failure.host, failure.run_id) == (2, "gpu-17", "r")
    assert (failure.attempt, failure.restart_count, failure.restarts_left) == (3, 2, 1)
    assert (failure.generation, failure.steps, failure.timestamp) == (1, 40, 12)
    assert failure.extra_info == {"zone": "b"}
    assert failure.phase == root.phase == "unknown"


def test_an_exception_has_its_class_its_message_and_a_traceback() -> None:
    failure = exception_failure("ValueError", "no such thing")
    root = failure.root_cause
    assert root is not None
    assert failure.kind is FailureKind.EXCEPTION
    assert (root.exception_type, root.exit_code) == ("ValueError", 1)
    assert root.message == "ValueError: no such thing"
    assert root.traceback.startswith("Traceback")
    assert root.traceback.rstrip() in failure.log_content


def test_an_exit_has_its_code() -> None:
    failure = exit_failure(7)
    assert failure.kind is FailureKind.EXIT
    assert failure.log_content == "rank 0 exited with code 7"


@pytest.mark.parametrize("name", ["SIGSEGV", 11])
def test_a_signal_goes_by_its_name_or_number(name: str | int) -> None:
    failure = signal_failure(name)
    assert failure.kind is FailureKind.SIGNAL
    assert failure.log_content == "rank 0 was killed by SIGSEGV"


def test_a_signal_can_come_from_the_kernel_without_memory() -> None:
    assert signal_failure(oom=True).workers[0].oom
    assert not signal_failure().workers[0].oom


def test_a_hang_has_stacks() -> None:
    failure = hang_failure({0: "in all_reduce", 1: "in read"}, rank=1)
    assert failure.kind is FailureKind.HANG
    assert failure.stacks == {"0": "in all_reduce", "1": "in read"}


def test_a_start_up_failure_never_trained() -> None:
    failure = start_up_failure()
    assert failure.kind is FailureKind.START_UP
    assert failure.phase is WorkerPhase.START_UP
    assert exception_failure().phase is WorkerPhase.TRAINING
