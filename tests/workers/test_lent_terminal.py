"""The terminal of an agent that was killed: given back, but not taken from a shell."""

import fcntl
import os
import pty
import subprocess
import termios
import tty
from collections.abc import Iterator

import pytest

from dlrover_cli.workers.nursery import LentTerminal


@pytest.fixture
def terminal() -> Iterator[int]:
    master, slave = pty.openpty()
    yield slave
    os.close(slave)
    os.close(master)


@pytest.fixture
def leader(terminal: int) -> Iterator[subprocess.Popen[bytes]]:
    """Of the session that has the terminal; its group is in the foreground."""

    def take_terminal() -> None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, start_new_session=True, preexec_fn=take_terminal
    ) as process:
        yield process


def lent(terminal: int, group: int, leader: int) -> LentTerminal:
    """It, after a worker has changed its modes."""
    lent_terminal = LentTerminal(os.dup(terminal), group, leader)
    tty.setraw(terminal)
    return lent_terminal


def test_it_is_given_back_while_the_agents_group_has_it(
    terminal: int, leader: subprocess.Popen[bytes]
) -> None:
    before = termios.tcgetattr(terminal)
    lent_terminal = lent(terminal, leader.pid, leader.pid)
    lent_terminal.give_back()
    assert termios.tcgetattr(terminal) == before
    lent_terminal.close()


def test_it_is_left_alone_when_a_shell_has_it_again(
    terminal: int, leader: subprocess.Popen[bytes]
) -> None:
    lent_terminal = lent(terminal, os.getpgrp(), leader.pid)
    of_shell = termios.tcgetattr(terminal)
    lent_terminal.give_back()
    assert termios.tcgetattr(terminal) == of_shell
    lent_terminal.close()


def test_it_is_given_back_when_its_session_is_gone(
    terminal: int, leader: subprocess.Popen[bytes]
) -> None:
    before = termios.tcgetattr(terminal)
    lent_terminal = lent(terminal, os.getpgrp(), leader.pid)
    leader.kill()
    leader.wait()
    lent_terminal.give_back()
    assert termios.tcgetattr(terminal) == before
    lent_terminal.close()


def test_what_is_no_terminal_has_nothing_to_give_back() -> None:
    reader, writer = os.pipe()
    lent_terminal = LentTerminal(reader, os.getpgrp(), os.getsid(0))
    lent_terminal.give_back()
    lent_terminal.close()
    os.close(writer)
