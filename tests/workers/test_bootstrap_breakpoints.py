"""Breakpoints that nobody has asked for: noted, and otherwise as Python has them."""

from pathlib import Path

import pytest

from tests.workers.bootstrapped import Workers


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


def test_it_is_noted_and_the_users_debugger_gets_the_users_frame(workers: Workers) -> None:
    ended = workers.run(
        """
        import os, sys, types
        mine = types.ModuleType("mine")
        def stop(*args, **options):
            print(sys._getframe().f_back.f_code.co_name, args, options)
            return "answer"
        mine.stop = stop
        sys.modules["mine"] = mine
        os.environ["PYTHONBREAKPOINT"] = "mine.stop"
        def train():
            print(breakpoint(1, two=2))
        train()
        """
    )
    assert (ended.status, ended.stderr) == (0, "")
    assert ended.stdout == "train (1,) {'two': 2}\nanswer\n"
    assert ended.beat.breakpoints == 1


def test_it_is_noted_when_the_hook_was_put_back(workers: Workers) -> None:
    ended = workers.run(
        """
        import os, sys
        assert sys.breakpointhook is sys.__breakpointhook__
        sys.breakpointhook = None
        sys.breakpointhook = sys.__breakpointhook__
        os.environ["PYTHONBREAKPOINT"] = "builtins.print"
        breakpoint("here")
        """
    )
    assert (ended.status, ended.stdout, ended.beat.breakpoints) == (0, "here\n", 1)


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.environ['PYTHONBREAKPOINT'] = '0'; breakpoint()",
        "import sys; sys.breakpointhook = print; breakpoint()",
        "import os; os.environ['PYTHONBREAKPOINT'] = 'builtins.print'; os.fork() or breakpoint()",
    ],
    ids=["switched off", "another hook", "in a child"],
)
def test_what_opens_no_prompt_of_this_worker_is_not_noted(workers: Workers, code: str) -> None:
    ended = workers.run(code)
    assert (ended.status, ended.stderr, ended.beat.breakpoints) == (0, "", 0)


def test_where_the_page_cannot_be_written_it_is_a_breakpoint_all_the_same(workers: Workers) -> None:
    ended = workers.run(
        """
        import os
        os.closerange(3, 2000)
        os.environ["PYTHONBREAKPOINT"] = "builtins.print"
        breakpoint("here")
        """
    )
    assert (ended.status, ended.stdout, ended.stderr) == (0, "here\n", "")
