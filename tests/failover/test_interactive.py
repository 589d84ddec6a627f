"""`--interactive`: a person at a terminal is asked, and every key does what the menu says."""

import os
import pty
import re
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.interactive import Terminal, TerminalAdviser
from dlrover_cli.testing import exception_failure, exit_failure


class Person:
    """Somebody at a terminal, who has typed ahead."""

    def __init__(self, log: Path) -> None:
        self._master, self._slave = pty.openpty()
        terminal = Terminal(os.ttyname(self._slave))
        self.adviser = TerminalAdviser(Chain(), terminal, lambda info: log)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def asked(self, *, restarts_left: int = 1) -> Verdict | None:
        return self.adviser.advise(exit_failure(3, restarts_left=restarts_left), History(()))

    def saw(self, *, until: str, times: int = 1) -> str:
        """All that was shown, as soon as the pattern is in it; fails if it never is."""
        seen = ""
        while len(re.findall(until, seen)) < times:
            ready, _, _ = select.select([self._master], [], [], 10)
            assert ready, f"not seen: {until!r} in {seen!r}"
            seen += os.read(self._master, 1 << 16).decode()
        return seen

    def close(self) -> None:
        self.adviser.close()
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    log = tmp_path / "stderr.log"
    log.write_text("what the worker said\n")
    person = Person(log)
    yield person
    person.close()


@pytest.mark.parametrize(
    "key, strategy",
    [
        ("r", FailoverStrategy.NORMAL_FAILOVER),
        ("n", FailoverStrategy.NODE_FAILOVER),
        ("j", FailoverStrategy.GLOBAL_FAILOVER),
        ("a", FailoverStrategy.ABORTION_FAILOVER),
    ],
)
def test_each_key_is_a_strategy_whatever_the_budgets_say(
    person: Person, key: str, strategy: FailoverStrategy
) -> None:
    person.type(f"{key}\n")
    chosen = Verdict(strategy, "person", "chosen at the terminal", beyond_budget=True)
    assert person.asked() == chosen


def test_enter_takes_what_the_others_said(person: Person) -> None:
    person.type("\n")
    verdict = person.asked()
    assert verdict is not None
    assert (verdict.decided_by, verdict.beyond_budget) == ("default", False)
    shown = person.saw(until=r"Enter: .*\s+> ")
    assert "Enter: restart the workers (NORMAL_FAILOVER by default" in shown
    assert "the job fails" not in shown


def test_enter_is_said_to_end_the_job_where_no_restarts_are_left(person: Person) -> None:
    person.type("\n")
    person.asked(restarts_left=0)
    person.saw(until="with no restarts left, the job fails")


def test_another_key_shows_the_menu_again(person: Person) -> None:
    person.type("what?\na\n")
    person.asked()
    person.saw(until=r"\[a\] abort\s+\[l\].*\s+Enter: ", times=2)


def test_a_workers_escapes_do_not_reach_the_terminal(person: Person) -> None:
    text = "\x1b]0;mine\x07 a batch\nof two lines"
    failure = exception_failure("ValueError", text)
    assert failure.root_cause is not None
    assert "\x1b" in failure.root_cause.traceback
    person.type("t\na\n")
    person.adviser.advise(failure, History(()))
    shown = person.saw(until="> ", times=2)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "rank 0: ValueError: ]0;mine a batch of two lines" in shown


@pytest.mark.parametrize("pager", ["cat", "cat -n"])
def test_the_log_is_opened_with_the_pager_and_its_options(
    person: Person, pager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", pager)
    person.type("l\na\n")
    verdict = person.asked()
    assert verdict is not None
    assert verdict.strategy is FailoverStrategy.ABORTION_FAILOVER
    person.saw(until="what the worker said")


@pytest.mark.parametrize("pager", ["no-such-pager", "cat 'a quotation mark too few"])
def test_a_pager_that_cannot_be_started_is_no_answer(
    person: Person, pager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", pager)
    person.type("l\na\n")
    verdict = person.asked()
    assert verdict is not None
    assert verdict.strategy is FailoverStrategy.ABORTION_FAILOVER
    person.saw(until="PAGER=.* cannot be started")


def test_a_question_without_an_answer_does_not_keep_the_terminal_from_being_closed(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path)
    asking = threading.Thread(target=person.asked, name="asking", daemon=True)
    asking.start()
    person.saw(until="> ")
    closing = threading.Thread(target=person.close, name="closing", daemon=True)
    closing.start()
    closing.join(10)
    asking.join(10)
    assert not closing.is_alive()
    assert not asking.is_alive()


def test_ctrl_c_at_the_question_ends_the_job(start, scripts):
    running = start(
        ["--standalone", "--interactive", scripts.write("fails.py", "sys.exit(3)\n")], tty=True
    )
    running.wait_for("Enter: ")
    running.type(b"\x03")
    assert running.finish().returncode == 128 + signal.SIGINT
