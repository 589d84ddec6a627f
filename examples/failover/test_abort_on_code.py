"""How an extension is tested: on failures made for the purpose, and once as the agent asks it.

pytest examples/failover
"""

from pathlib import Path

import pytest
from dlrover.python.common.enums import FailoverStrategy

from dlrover_cli.testing import ask_extension, exception_failure, exit_failure, signal_failure

HERE = Path(__file__).parent


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    from abort_on_code import AbortOnKnownCode

    return AbortOnKnownCode()


@pytest.mark.parametrize("code", [3, 78])
def test_final_codes_abort(extension, code):
    answer = extension.get_user_failover_strategy(exit_failure(code, collateral=[1, 2]))
    assert answer is FailoverStrategy.ABORTION_FAILOVER


@pytest.mark.parametrize(
    "failure",
    [exit_failure(1), exception_failure("ValueError", "3"), signal_failure("SIGKILL", oom=True)],
)
def test_all_else_is_restarted(extension, failure):
    answer = extension.get_user_failover_strategy(failure)
    assert answer is FailoverStrategy.NORMAL_FAILOVER


def test_the_agent_can_load_and_ask_it():
    first, second = ask_extension(
        "abort_on_code::AbortOnKnownCode", exit_failure(1), exit_failure(3), roots=[HERE]
    )
    assert first.strategy.name == "NORMAL_FAILOVER"
    assert second.strategy.name == "ABORTION_FAILOVER"
    assert second.problems == ()
