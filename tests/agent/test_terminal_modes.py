"""The terminal is as it was, whoever was killed at a prompt there."""

import os
import pty
import termios
import tty

from dlrover_cli.agent.terminal_modes import TerminalModes


def test_what_a_worker_left_behind_is_undone_and_nothing_else_is_touched() -> None:
    master, terminal = pty.openpty()
    try:
        before = termios.tcgetattr(terminal)
        lent = TerminalModes(is_lent=True, fd=terminal)
        never_lent = TerminalModes(is_lent=False, fd=terminal)
        tty.setraw(terminal)
        raw = termios.tcgetattr(terminal)
        never_lent.restore()
        assert termios.tcgetattr(terminal) == raw
        lent.restore()
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(terminal)
        os.close(master)


def test_what_is_no_terminal_has_nothing_to_put_back() -> None:
    reader, writer = os.pipe()
    try:
        TerminalModes(is_lent=True, fd=reader).restore()
    finally:
        os.close(reader)
        os.close(writer)
