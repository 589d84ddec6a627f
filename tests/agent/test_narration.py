"""The line about a decision: what happened, what follows, who decided so and why."""

from dataclasses import replace

from dlrover_cli.agent.judge import Settlement
from dlrover_cli.agent.narration import narrate
from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy
from dlrover_cli.failover.advice import Verdict
from dlrover_cli.failover.decide import Counters, Limits, decide
from dlrover_cli.testing import exception_failure, exit_failure

NORMAL = Verdict(FailoverStrategy.NORMAL_FAILOVER, "default", "nobody had another opinion")
ABORT = Verdict(FailoverStrategy.ABORTION_FAILOVER, "rule 'bad-data'", "the data set is broken")


def told(failure: AgentFailureInfo, verdict: Verdict = NORMAL) -> str:
    decision = decide(verdict.strategy, Counters(), Limits(max_restarts=1))
    return narrate(Settlement(decision, Counters(), failure, verdict))


def test_an_exit_code_is_told_with_what_follows() -> None:
    assert told(exit_failure(3, rank=1, host="node0")) == (
        "rank 1 on node0 exited with code 3: restarting all workers (restart 1 of 1)"
    )


def test_an_exit_with_a_text_is_told_with_it() -> None:
    failure = exit_failure(1, host="node0")
    text = "sys.exit('no data in /data') at /job/train.py:3 in main"
    spoken = replace(failure, workers=(replace(failure.workers[0], message=text),))
    assert told(spoken).startswith(f"rank 0 on node0 exited with code 1 ({text}): restarting")


def test_an_exception_is_told_by_its_name_and_its_first_line() -> None:
    line = told(exception_failure("OSError", "No space left on device\nmore", host="node0"))
    assert line.startswith(
        "rank 0 on node0 exited with code 1 (OSError: No space left on device): restarting"
    )


def test_an_exception_without_words_is_told_by_its_name() -> None:
    assert "exited with code 1 (KeyError): " in told(exception_failure("KeyError", ""))


def test_a_long_message_is_cut() -> None:
    assert len(told(exception_failure("ValueError", "x" * 9999))) < 400


def test_who_decided_is_told_with_the_reason() -> None:
    assert told(exit_failure(3, host="node0"), ABORT) == (
        "rank 0 on node0 exited with code 3: aborting the job "
        "(rule 'bad-data': the data set is broken; aborted by policy; do not retry)"
    )
