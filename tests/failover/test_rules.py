"""Which rule a failure meets, and what the adviser makes of it."""

import re
import time
import tomllib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy, FailureKind, WorkerFailure
from dlrover_cli.failover.advice import Adviser, History, Verdict
from dlrover_cli.failover.pattern_fence import PatternFence
from dlrover_cli.failover.rules import RulesAdviser, RuleSet, rules_from_table
from dlrover_cli.failover.ruleset import LONGEST_LOG, LONGEST_MESSAGE, first_match
from tests.failover.failures import NOTHING_BEFORE, after, failure

FOREVER = r"(a+)+$"
MANY_A = "a" * 60 + "!"


def rules(text: str) -> RuleSet:
    return rules_from_table(tomllib.loads(text), "rules.toml")


def applies(when: str, info: AgentFailureInfo, history: History = NOTHING_BEFORE) -> bool:
    """Whether a rule with these conditions takes the failure."""
    found = rules(f'[[rules]]\nname = "it"\nwhen = {{{when}}}\nstrategy = "abort"')
    search = lambda pattern, text: bool(pattern.search(text))  # noqa: E731
    return first_match(found.rules, info, history, search) is not None


@pytest.mark.parametrize(
    "when, facts, holds",
    [
        ("exit_code = 3", {"exit_code": 3}, True),
        ("exit_code = 3", {"exit_code": 4}, False),
        ("exit_code = [3, 4]", {"exit_code": 4}, True),
        ('exit_code = "100-120"', {"exit_code": 100}, True),
        ('exit_code = "100-120"', {"exit_code": 120}, True),
        ('exit_code = "100-120"', {"exit_code": 121}, False),
        ('exit_code = [3, "100-120"]', {"exit_code": 110}, True),
        ("exit_code = 137", {"signal": 9}, True),
        ("exit_code = 137", {"exit_code": 137}, True),
        ("exit_code = 9", {"signal": 9}, False),
        ('signal = "SIGKILL"', {"signal": 9}, True),
        ('signal = "SIGKILL"', {"exit_code": 137}, False),
        ('signal = ["SIGSEGV", "SIGBUS"]', {"signal": 11}, True),
        ('signal = ["SIGSEGV", 7]', {"signal": 7}, True),
        ('signal = "SIGKILL"', {"exit_code": 9}, False),
    ],
)
def test_exit_codes_and_signals(when: str, facts: dict[str, Any], holds: bool) -> None:
    assert applies(when, failure(**facts)) is holds


@pytest.mark.parametrize(
    "written, recorded, holds",
    [
        ('"torch.OutOfMemoryError"', "torch.OutOfMemoryError", True),
        ('"OutOfMemoryError"', "torch.OutOfMemoryError", True),
        ('"torch.OutOfMemoryError"', "OutOfMemoryError", True),
        ('"torch.OutOfMemoryError"', "other.OutOfMemoryError", False),
        ('"MemoryError"', "torch.OutOfMemoryError", False),
        ('"*MemoryError"', "torch.OutOfMemoryError", True),
        ('"torch.*"', "torch.OutOfMemoryError", True),
        ('"outofmemoryerror"', "torch.OutOfMemoryError", False),
        ('["KeyError", "ValueError"]', "ValueError", True),
        ('"ValueError"', None, False),
    ],
)
def test_exceptions_are_named_in_full_or_by_class_alone(
    written: str, recorded: str | None, holds: bool
) -> None:
    assert applies(f"exception = {written}", failure(exception_type=recorded)) is holds


@pytest.mark.parametrize(
    "when, holds",
    [
        ("message = 'NCCL.*timeout'", True),
        ("message = 'nccl'", False),
        ("message = '(?i)nccl'", True),
        ("message = '^second'", True),
        ("message = 'from the log'", False),
        ("log = 'from the log'", True),
        ("log = '^rank 0'", True),
        ("message = 'NCCL', log = 'from the log'", True),
        ("message = 'NCCL', log = 'nowhere'", False),
    ],
)
def test_patterns_are_searched_for_in_message_and_log(when: str, holds: bool) -> None:
    info = failure(
        message="NCCL communicator timeout\nsecond line", log_content="rank 0\nfrom the log"
    )
    assert applies(when, info) is holds


def test_of_a_long_log_both_ends_are_searched() -> None:
    info = failure(log_content="the beginning" + "x" * LONGEST_LOG * 3 + "the end")
    assert applies("log = 'the beginning'", info)
    assert applies("log = 'the end'", info)


def test_of_a_long_message_the_beginning_is_searched() -> None:
    info = failure(message="cause" + "x" * LONGEST_MESSAGE + "tail")
    assert applies("message = 'cause'", info)
    assert not applies("message = 'tail'", info)


@pytest.mark.parametrize(
    "when, facts, holds",
    [
        ('phase = "start-up"', {"phase": "start-up"}, True),
        ('phase = "start-up"', {"kind": FailureKind.START_UP}, True),
        ('phase = "start-up"', {"phase": "training"}, False),
        ('phase = "training"', {"phase": "training"}, True),
        ('phase = "training"', {}, False),
        ('phase = "start-up"', {}, False),
        ('kind = "hang"', {"kind": FailureKind.HANG}, True),
        ('kind = "hang"', {"kind": FailureKind.SIGNAL}, False),
        ('kind = ["hang", "signal"]', {"kind": FailureKind.SIGNAL}, True),
        ("oom = true", {"oom": True}, True),
        ("oom = true", {"oom": False}, False),
        ("oom = false", {"oom": False}, True),
    ],
)
def test_phase_kind_and_memory(when: str, facts: dict[str, Any], holds: bool) -> None:
    assert applies(when, failure(**facts)) is holds


def test_the_same_failure_is_counted_in_a_row_with_this_one() -> None:
    it, other = failure(exit_code=3), failure(exit_code=4)
    assert applies("same_failure = 3", it, after(it, it))
    assert applies("same_failure = 3", it, after(other, it, it))
    assert not applies("same_failure = 3", it, after(it))
    assert not applies("same_failure = 3", it, after(it, other, it))
    assert not applies("same_failure = 3", other, after(it, it))


def test_no_progress_counts_restarts_and_the_first_attempt_is_none() -> None:
    none, some, unknown = failure(steps=0), failure(steps=1), failure(steps=None)
    assert applies("no_progress = 2", none, after(some, none))
    assert applies("no_progress = 2", none, after(none, none))
    assert not applies("no_progress = 2", none, after(none))
    assert not applies("no_progress = 2", none, after(none, some))
    assert not applies("no_progress = 2", some, after(none, none))
    assert not applies("no_progress = 2", none, after(none, unknown))


def test_a_script_that_took_steps_once_is_known_to_take_them() -> None:
    some, unknown = failure(steps=100), failure(steps=None)
    assert applies("no_progress = 2", unknown, after(some, unknown))
    assert not applies("no_progress = 2", unknown, after(some, some))
    assert not applies("no_progress = 2", unknown, after(unknown, unknown))


def test_a_start_that_failed_gained_no_step_although_nobody_counted() -> None:
    start = failure(kind=FailureKind.START_UP)
    assert applies("no_progress = 1", start, after(start))


def test_the_same_host_is_counted_in_a_row_and_must_be_known() -> None:
    here, there, nowhere = failure(), failure(host="host-b"), failure(host="")
    assert applies("same_host = 2", here, after(there, here))
    assert not applies("same_host = 2", here, after(here, there))
    assert not applies("same_host = 2", here)
    assert not applies("same_host = 2", nowhere, after(nowhere))


def test_all_conditions_of_a_rule_must_hold() -> None:
    when = 'exit_code = 3, phase = "training", same_host = 2'
    it = failure(exit_code=3, phase="training")
    assert applies(when, it, after(it))
    assert not applies(when, it)
    assert not applies(when, failure(exit_code=3, phase="start-up"), after(it))
    assert not applies(when, failure(exit_code=4, phase="training"), after(it))


def test_the_root_cause_is_judged_and_not_who_went_down_with_it() -> None:
    other = WorkerFailure(global_rank=0, local_rank=0, exit_code=1)
    root = WorkerFailure(global_rank=1, local_rank=1, exit_code=3, root_cause=True)
    info = AgentFailureInfo(workers=(other, root))
    assert applies("exit_code = 3", info)
    assert not applies("exit_code = 1", info)


def test_conditions_on_a_worker_do_not_hold_where_no_worker_is_known() -> None:
    for when in ("exit_code = 1", 'signal = "SIGKILL"', 'exception = "*"', "message = '.'"):
        assert not applies(when, AgentFailureInfo())
    assert applies("", AgentFailureInfo())


def test_the_first_rule_that_applies_decides() -> None:
    adviser = RulesAdviser(
        rules("""
            [[rules]]
            name = "other"
            when = {exit_code = 4}
            strategy = "abort"
            [[rules]]
            name = "off"
            on = false
            when = {exit_code = 3}
            strategy = "abort"
            [[rules]]
            name = "mine"
            when = {exit_code = 3}
            strategy = "NODE_FAILOVER"
            backoff = "1m"
            reason = "a broken node"
            [[rules]]
            name = "rest"
            strategy = "global"
        """)
    )
    assert adviser.advise(failure(exit_code=3), NOTHING_BEFORE) == Verdict(
        FailoverStrategy.NODE_FAILOVER, "rule 'mine'", "a broken node", 60.0
    )
    assert adviser.advise(failure(exit_code=5), NOTHING_BEFORE) == Verdict(
        FailoverStrategy.GLOBAL_FAILOVER, "rule 'rest'", "any failure"
    )


def test_a_rule_without_a_reason_gives_its_conditions() -> None:
    adviser = RulesAdviser(
        rules('[[rules]]\nname = "r"\nwhen = {exit_code = [3, 4], oom = false}\nstrategy = "node"')
    )
    verdict = adviser.advise(failure(exit_code=3), NOTHING_BEFORE)
    assert verdict is not None
    assert verdict.reason == "exit_code = [3, 4], oom = false"


def test_there_is_no_opinion_where_no_rule_applies() -> None:
    adviser: Adviser = RulesAdviser()
    assert adviser.advise(failure(exit_code=3), NOTHING_BEFORE) is None
    adviser.close()
    adviser.close()


def test_rules_of_several_files_are_asked_in_order() -> None:
    one = rules('[[rules]]\nname = "one"\nwhen = {exit_code = 3}\nstrategy = "node"')
    two = rules('shipped = []\n[[rules]]\nname = "two"\nstrategy = "abort"')
    adviser = RulesAdviser(one.followed_by(two))
    assert [rule.name for rule in adviser.rules] == ["one", "two"]


# ---- patterns that take for ever -----------------------------------------------------------------


def slow_rule(name: str, when: str, strategy: str = "abort") -> str:
    return f'[[rules]]\nname = "{name}"\nwhen = {{{when}}}\nstrategy = "{strategy}"\n'


def hasty_fence() -> PatternFence:
    return PatternFence(per_pattern=0.2, patience=0.5)


def test_a_pattern_that_takes_for_ever_counts_as_not_found_and_the_next_rule_is_asked() -> None:
    ruleset = rules(
        slow_rule("slow", f"message = '{FOREVER}'") + slow_rule("next", "log = 'o+'", "node")
    )
    adviser = RulesAdviser(ruleset, fence=hasty_fence)
    started = time.monotonic()
    verdict = adviser.advise(failure(message=MANY_A, log_content="foo"), NOTHING_BEFORE)
    assert time.monotonic() - started < 10
    assert verdict == Verdict(
        FailoverStrategy.NODE_FAILOVER,
        "rule 'next'",
        'log = "o+"',
        problems=("the pattern '(a+)+$' counts as not found: the search took longer than 0.2 s",),
    )


def test_that_a_pattern_took_for_ever_is_told_also_where_no_rule_applies() -> None:
    adviser = RulesAdviser(rules(slow_rule("slow", f"message = '{FOREVER}'")), fence=hasty_fence)
    verdict = adviser.advise(failure(message=MANY_A), NOTHING_BEFORE)
    assert verdict is not None
    assert (verdict.strategy, verdict.decided_by) == (FailoverStrategy.NORMAL_FAILOVER, "default")
    assert len(verdict.problems) == 1


def test_many_slow_patterns_share_one_limit() -> None:
    fence = hasty_fence()
    with fence:
        for number in range(10):
            assert not fence.search(re.compile(f"{FOREVER}{number}*"), MANY_A)
    overdue = [problem for problem in fence.problems if "took longer" in problem]
    unasked = [problem for problem in fence.problems if "used up the time" in problem]
    assert (len(overdue), len(unasked)) == (3, 7)


def test_a_searching_process_that_dies_costs_one_answer() -> None:
    with PatternFence() as fence:
        assert fence.search(re.compile("a+"), "aaa")
        assert fence._helper is not None
        fence._helper._process.kill()
        fence._helper._process.wait()
        assert not fence.search(re.compile("a+"), "aaa")
        assert fence.search(re.compile("a+"), "aaa")
    assert len(fence.problems) == 1


def test_plain_words_are_searched_for_without_another_process() -> None:
    with PatternFence() as fence:
        assert fence.search(re.compile("lost|broken [gG]PU"), "a broken GPU")
        assert fence._helper is None


def test_the_other_process_finds_what_this_one_finds() -> None:
    with PatternFence(patience=1000) as fence:

        @given(st.text(max_size=200))
        def check(text: str) -> None:
            for written in (r"[a-f]+\d*", r"(?i)É?s$", r"^\s*\w{2,}"):
                pattern = re.compile(written, re.MULTILINE)
                assert fence.search(pattern, text) == bool(pattern.search(text))

        check()
    assert not fence.problems
