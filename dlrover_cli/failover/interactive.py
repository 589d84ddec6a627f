"""Asking a person: the failure on the terminal, and one key for each thing that can be done."""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy, WorkerFailure
from dlrover_cli.errors import UsageError
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.chain import Chain

_STRATEGIES = {
    "r": FailoverStrategy.NORMAL_FAILOVER,
    "n": FailoverStrategy.NODE_FAILOVER,
    "j": FailoverStrategy.GLOBAL_FAILOVER,
    "a": FailoverStrategy.ABORTION_FAILOVER,
}
_MENU = (
    "[r] restart the workers   [n] replace the node   [j] restart the job   [a] abort\n"
    "[l] open the log          [t] traceback with local variables\n"
)
_TRACEBACK_LINES = 12


@dataclass(frozen=True, slots=True)
class Terminal:
    """Both directions of a terminal; one file object cannot serve them, it is not seekable."""

    reader: TextIO
    writer: TextIO

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


class TerminalAdviser:
    """Shows each failure to a person and returns what that person chose.

    What the extension and the rules would have said is offered as the answer to a bare Enter.
    """

    def __init__(
        self,
        otherwise: Chain,
        terminal: Terminal,
        log_of: Callable[[AgentFailureInfo], Path | None],
        locals_of: Callable[[AgentFailureInfo, WorkerFailure], str] = lambda info, worker: "",
    ) -> None:
        self._otherwise = otherwise
        self._terminal = terminal
        self._log_of = log_of
        self._locals_of = locals_of

    def advise(self, info: AgentFailureInfo, history: History) -> Verdict | None:
        """Ask until there is an answer; a terminal that is gone leaves it to the others."""
        suggestion = self._otherwise.ask(info, history)
        try:
            self._show(info, suggestion)
            while True:
                self._write("> ")
                line = self._terminal.reader.readline()
                if not line:
                    return suggestion
                verdict = self._answer(line.strip().lower(), info, suggestion)
                if verdict is not None:
                    return verdict
        except OSError:
            return suggestion

    def close(self) -> None:
        """Close the others, too."""
        self._otherwise.close()
        self._terminal.close()

    def _answer(self, key: str, info: AgentFailureInfo, suggestion: Verdict) -> Verdict | None:
        if key == "":
            return suggestion
        if key in _STRATEGIES:
            return Verdict(_STRATEGIES[key], "person", "chosen at the terminal", beyond_budget=True)
        if key == "l":
            self._open_log(info)
        elif key == "t":
            for worker in info.workers[:1]:
                told = self._locals_of(info, worker) or worker.traceback
                self._write(f"{told or 'no traceback is known'}\n")
        else:
            self._write(_MENU)
        return None

    def _show(self, info: AgentFailureInfo, suggestion: Verdict) -> None:
        root = info.root_cause
        self._write(f"\nfailure of attempt {info.attempt} on {info.host} ({info.kind.value})\n")
        if root is not None:
            told = root.message or (
                f"exit code {root.exit_code}" if root.signal is None else f"signal {root.signal}"
            )
            self._write(f"rank {root.global_rank}: {told}\n")
            lines = root.traceback.splitlines()[-_TRACEBACK_LINES:]
            self._write("".join(f"  {line}\n" for line in lines))
        self._write(f"restarts left: {info.restarts_left}\n{_MENU}")
        self._write(
            f"Enter: {suggestion.strategy.value} ({suggestion.decided_by}: {suggestion.reason})\n"
        )

    def _open_log(self, info: AgentFailureInfo) -> None:
        path = self._log_of(info)
        if path is None or not path.exists():
            self._write("no log was kept\n")
            return
        pager = os.environ.get("PAGER") or shutil.which("less") or shutil.which("more")
        if pager is None:
            self._write(f"{path}\n")
            return
        terminal = self._terminal
        subprocess.run(
            [pager, str(path)], stdin=terminal.reader, stdout=terminal.writer, check=False
        )

    def _write(self, text: str) -> None:
        self._terminal.writer.write(text)
        self._terminal.writer.flush()


def open_terminal() -> Terminal:
    """The terminal to ask at, or a sentence about why there is none."""
    if os.isatty(0) and os.isatty(2):
        try:
            return Terminal(open("/dev/tty"), open("/dev/tty", "w"))
        except OSError:
            pass
    raise UsageError(
        "--interactive needs a terminal, and there is none here",
        hint="leave it out, or decide with --failover-rules or --dynamic-failover-extension",
    )
