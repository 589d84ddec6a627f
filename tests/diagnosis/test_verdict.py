"""The block about a failure: its words, its order, and its length."""

import json

import pytest

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.diagnosis.verdict import (
    Verdict,
    lines_of,
    ranks_in_words,
    verdict_from,
    verdict_on,
)
from dlrover_cli.testing import (
    exception_failure,
    exit_failure,
    hang_failure,
    signal_failure,
)


def verdict(failure: AgentFailureInfo, world_size: int = 4, alike: tuple[int, ...] = ()) -> Verdict:
    return verdict_on(
        failure,
        started=failure.timestamp - 75.0,
        world_size=world_size,
        alike=alike,
        decided="the job fails: no restarts left",
        logs="/runs/1/logs",
    )


@pytest.mark.parametrize(
    "failure,words",
    [
        (exception_failure("ValueError", "boom\nmore"), "raised ValueError: boom"),
        (exception_failure("KeyError", ""), "raised KeyError"),
        (signal_failure("SIGSEGV"), "crashed with a segmentation fault (SIGSEGV)"),
        (signal_failure("SIGTERM"), "was killed by SIGTERM"),
        (
            signal_failure("SIGKILL", oom=True),
            "was killed by the kernel, which was out of memory (SIGKILL)",
        ),
        (exit_failure(3), "exited with code 3, with no exception on record"),
        (hang_failure(), "hangs: it does not move"),
    ],
)
def test_the_end_of_a_rank_in_words(failure: AgentFailureInfo, words: str) -> None:
    assert verdict(failure).what == words


def test_the_block_has_everything_in_its_order() -> None:
    failure = exception_failure("OSError", "[Errno 28] No space left", rank=2, steps=7, host="n1")
    lines = lines_of(verdict(failure))
    assert lines[0] == "FAILED: rank 2 on n1 raised OSError: [Errno 28] No space left"
    assert "1m 15s after the start, attempt 0, in training, 7 steps done" in lines[1]
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "] == [
        "when",
        "where",
        "others",
        "decided",
        "logs",
    ]


def test_it_is_never_longer_than_25_lines() -> None:
    failure = exception_failure("OSError", "x" * 9999, log="\n".join(map(str, range(500))))
    worker = failure.workers[0]
    deep = "".join(f'  File "/a/b.py", line {n}, in f\n    f()\n' for n in range(99))
    object.__setattr__(worker, "traceback", deep)
    lines = lines_of(verdict(failure, alike=(1, 3)))
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 200


def test_ranks_that_failed_by_themselves_are_told_from_those_that_did_not() -> None:
    failure = exception_failure(rank=0)
    assert verdict(failure).others == "ranks 1-3 went down with it"
    assert verdict(failure, alike=(0, 1)).others == (
        "rank 1 failed by itself, too; ranks 2-3 went down with it"
    )
    assert verdict(failure, alike=(1, 2, 3)).others == "ranks 1-3 failed by themselves, too"
    assert verdict(failure, world_size=1).others == ""


def test_a_rank_that_had_done_its_work_did_not_go_down_with_the_other() -> None:
    told = verdict_on(
        exit_failure(3),
        started=0.0,
        world_size=4,
        alike=(),
        decided="",
        logs="",
        succeeded=(1, 2),
    )
    assert told.others == "ranks 1-2 had succeeded; rank 3 went down with it"


def test_a_rank_that_was_waited_for_in_vain_is_named_with_its_place() -> None:
    failure = exception_failure("RuntimeError", "Timed out waiting 3000ms for recv operation")
    frame = '  File "/data/train.py", line {} in {}\n'
    stack = "Current thread 7 (most recent call first):\n" + frame
    failure.stacks = {
        "1": stack.format(9, "barrier"),
        "2": stack.format(5, "load_data"),
        "3": stack.format(5, "load_data"),
    }
    assert verdict(failure).others == (
        "ranks 2-3 had not come to it, and stood at /data/train.py:5 in load_data; "
        "rank 1 went down with it"
    )


def test_what_a_worker_wrote_does_not_steer_the_terminal() -> None:
    failure = exception_failure("ValueError", "a\x1b[2Jb", log="")
    failure.log_content = "the end of its stderr:\n\x1b]0;title\x07 50%\r100%"
    assert all(line.isprintable() for line in lines_of(verdict(failure)))


def test_it_is_a_document_too() -> None:
    for failure in (signal_failure("SIGKILL"), exception_failure(), AgentFailureInfo()):
        told = verdict(failure)
        document = json.loads(json.dumps(told.to_json()))
        assert verdict_from(document) == told


@pytest.mark.parametrize(
    "ranks,words",
    [([3], "rank 3"), ([0, 1, 2, 5], "ranks 0-2 and 5"), ([1, 3, 5], "ranks 1, 3 and 5")],
)
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert ranks_in_words(ranks) == words
