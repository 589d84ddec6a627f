"""What an agent answers while nobody of it has time: at once, and nothing that is not so."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrover_cli.agent import control
from dlrover_cli.agent.control import AgentControl, View
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.requests import Phase
from dlrover_cli.control.wire import By, Command, NodeAnswer, Request
from dlrover_cli.workers.inbox import Inbox

ME = By(1000, 17, "ann", "host")


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """One that nobody reads."""
    made = Inbox()
    yield made
    made.close()


def asked(agent: AgentControl, command: Command) -> NodeAnswer:
    [node] = agent.respond(Request(command), ME).nodes
    return node


@pytest.mark.parametrize("phase", [Phase.MEETING, Phase.STOPPING, Phase.DECIDING])
def test_a_busy_agent_is_waited_for_less_than_a_second(inbox: Inbox, phase: Phase) -> None:
    agent = AgentControl(AgentOptions(), inbox, lambda: View(phase, None, None))
    assert control._REPLY_SECONDS < 1
    for command in (Command.RESTART, Command.NODE_FAILOVER, Command.ABORT):
        started = time.monotonic()
        assert asked(agent, command).says.startswith(phase.value)
        assert time.monotonic() - started < control._REPLY_SECONDS + 5  # a busy machine
    started = time.monotonic()
    assert asked(agent, Command.STACKS).says == f"no workers run: {phase.value}"
    assert time.monotonic() - started < 5


def test_who_comes_after_an_abort_hears_of_it(inbox: Inbox) -> None:
    agent = AgentControl(AgentOptions(), inbox, lambda: View(Phase.STOPPING, None, None))
    assert asked(agent, Command.ABORT).done
    late = asked(agent, Command.RESTART)
    assert (late.done, late.says) == (False, "the job is being aborted: nothing else is done")
    assert asked(agent, Command.ABORT).done


def with_nvidia_smi(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = directory / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


def test_a_dump_has_the_state_of_the_gpus(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentControl(AgentOptions(), inbox, lambda: View(Phase.MEETING, None, None))
    with_nvidia_smi(tmp_path, monkeypatch, 'echo "GPU 0: all well, asked with $*"')
    assert asked(agent, Command.DUMP).gpus == "GPU 0: all well, asked with -q\n"
    assert asked(agent, Command.STACKS).gpus == ""
    with_nvidia_smi(tmp_path, monkeypatch, "echo no driver >&2; exit 9")
    assert asked(agent, Command.DUMP).gpus == "no driver\n"


def test_gpus_that_do_not_answer_do_not_hold_up_a_dump(
    inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentControl(AgentOptions(), inbox, lambda: View(Phase.MEETING, None, None))
    monkeypatch.setattr(control, "_GPU_SECONDS", 0.2)
    with_nvidia_smi(tmp_path, monkeypatch, "exec sleep 600")
    assert "timed out after" in asked(agent, Command.DUMP).gpus
