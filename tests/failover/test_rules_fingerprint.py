"""Two failures are the same if they differ only in what differs from one attempt to the next."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure
from dlrover_cli.failover.fingerprint import fingerprint, last_user_frame, normalised
from tests.failover.failures import failure

TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/env/lib/python3.11/runpy.py", line 88, in _run_code
    exec(code, run_globals)
  File "/home/user/train.py", line 40, in <module>
    main()
  File "/home/user/train.py", line 31, in main
    loss.backward()
  File "/home/user/.venv/lib/python3.11/site-packages/torch/_tensor.py", line 626, in backward
    torch.autograd.backward(self)
RuntimeError: boom
"""


@pytest.mark.parametrize(
    "one, other",
    [
        ("Tried to allocate 2.50 GiB. GPU 0", "Tried to allocate 20.00 MiB. GPU 3"),
        ("Process 4711 has 12.5 GiB", "Process 99 has 1.25 GiB"),
        ("object at 0x7f3a5c0d", "object at 0x7FFFAA00"),
        ("rank3 timed out after 600000ms", "rank12 timed out after 600123ms"),
        ("cannot open /tmp/tmpa8b_x/y", "cannot open /tmp/tmp00zz/y"),
        ("connect to [10.0.0.7]:29500", "connect to [10.0.0.12]:41822"),
        ("run 6f1ed002ab5595859014ebf0951522d9", "run 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"),
        ("id 8d6f1f1e-9f2b-4c1d-8a5e-001122334455", "id 00000000-0000-4c1d-8a5e-aabbccddeeff"),
        ("at 2024-01-02 03:04:05,678", "at 2025-12-31 23:59:59,001"),
    ],
)
def test_numbers_addresses_and_temporary_names_do_not_matter(one: str, other: str) -> None:
    expected = fingerprint(failure(exception_type="RuntimeError", message=one))
    assert fingerprint(failure(exception_type="RuntimeError", message=other)) == expected


@pytest.mark.parametrize(
    "difference",
    [
        {"exception_type": "ValueError"},
        {"message": "other words"},
        {"traceback": TRACEBACK.replace("line 31, in main", "line 32, in main")},
        {"exception_type": None},
    ],
)
def test_another_type_other_words_or_another_place_are_another_failure(
    difference: dict[str, object],
) -> None:
    facts = {"exception_type": "RuntimeError", "message": "boom", "traceback": TRACEBACK}
    assert fingerprint(failure(**facts)) != fingerprint(failure(**(facts | difference)))


def test_it_reads_as_what_happened_where() -> None:
    info = failure(exception_type="RuntimeError", message="boom 7", traceback=TRACEBACK)
    assert fingerprint(info) == "RuntimeError | boom # | train.py:31 in main"


def test_the_place_is_the_innermost_line_that_is_not_a_librarys() -> None:
    assert last_user_frame(TRACEBACK) == "train.py:31 in main"


def test_of_a_syntax_error_the_place_is_the_line_that_cannot_be_read() -> None:
    text = 'Traceback (most recent call last):\n  File "/home/user/model.py", line 3\n    def (:\n'
    assert last_user_frame(text) == "model.py:3"


@pytest.mark.parametrize("text", ["", "no traceback", 'File "<frozen runpy>", line 1, in f'])
def test_a_traceback_without_user_code_has_no_place(text: str) -> None:
    assert last_user_frame(text) == ""


def test_exits_and_signals_are_told_apart_by_number_and_phase() -> None:
    infos = [
        failure(exit_code=3),
        failure(exit_code=4),
        failure(signal=9),
        failure(signal=11),
        failure(signal=9, phase="training"),
        failure(signal=9, kind=FailureKind.START_UP),
        failure(signal=9, kind=FailureKind.HANG),
    ]
    assert len({fingerprint(info) for info in infos}) == len(infos)


def test_rank_host_attempt_and_time_do_not_matter() -> None:
    def on(rank: int, host: str) -> AgentFailureInfo:
        worker = WorkerFailure(
            global_rank=rank, local_rank=rank, pid=rank, signal=9, time_ns=rank, root_cause=True
        )
        return AgentFailureInfo(rank, "log", workers=(worker,), host=host, attempt=rank)

    assert fingerprint(on(0, "a")) == fingerprint(on(5, "b"))


def test_the_root_cause_counts_and_not_who_went_down_with_it() -> None:
    root = WorkerFailure(global_rank=1, local_rank=1, signal=11, root_cause=True)
    other = WorkerFailure(
        global_rank=0, local_rank=0, exit_code=1, exception_type="ConnectionError"
    )
    assert fingerprint(AgentFailureInfo(workers=(other, root))) == fingerprint(failure(signal=11))


def test_a_failure_without_any_worker_has_an_identity_too() -> None:
    assert fingerprint(AgentFailureInfo()) == "exception during unknown"


@given(st.text(), st.lists(st.integers(0, 10**12), min_size=2, max_size=2))
def test_changing_a_number_anywhere_changes_nothing(words: str, numbers: list[int]) -> None:
    one, other = (normalised(f"{words} {number} {words}") for number in numbers)
    assert one == other


@given(st.text(max_size=10_000))
def test_any_message_gives_a_short_single_line(message: str) -> None:
    text = normalised(message)
    assert len(text) <= 300
    assert len(text.splitlines()) <= 1
