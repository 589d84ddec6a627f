"""Asking a person: the failure on the terminal, and one key for each thing that can be done."""

import os
import select
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy, WorkerFailure
from dlrover_cli.errors import UsageError
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.chain import Chain
from dlrover_cli.words import one_line, printable

_STRATEGIES = {
    "r": FailoverStrategy.NORMAL_FAILOVER,
    "n": FailoverStrategy.NODE_FAILOVER,
    "j": FailoverStrategy.GLOBAL_FAILOVER,
    "a": FailoverStrategy.ABORTION_FAILOVER,
}
_IN_WORDS = {
    FailoverStrategy.NORMAL_FAILOVER: "restart the workers",
    FailoverStrategy.NODE_FAILOVER: "replace the node",
    FailoverStrategy.GLOBAL_FAILOVER: "restart the job",
    FailoverStrategy.ABORTION_FAILOVER: "abort",
}
_MENU = (
    "[r] restart the workers   [n] replace the node   [j] restart the job   [a] abort\n"
    "[l] open the log          [t] traceback with local variables\n"
)
_TRACEBACK_LINES = 12
_LONGEST_LINE = 4096


class Terminal:
    """A terminal to ask at. ``close`` ends a question that nobody has answered yet."""

    def __init__(self, path: str = "/dev/tty") -> None:
        self.reader = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
        self.writer = open(path, "w")  # noqa: SIM115 - for as long as there are questions
        self._end, self._ended = os.pipe2(os.O_CLOEXEC)
        self._reading = threading.Lock()
        self._closed = False

    def read_line(self) -> str:
        """What was typed; empty if the terminal, or whoever asked, is gone."""
        with self._reading:
            if self._closed:
                return ""
            # A plain read could not be ended: Ctrl-C would wait for the answer to the question.
            poll = select.poll()
            for fd in (self.reader, self._end):
                poll.register(fd, select.POLLIN)
            if self._end in dict(poll.poll()):
                return ""
            return os.read(self.reader, _LONGEST_LINE).decode(errors="replace")

    def close(self) -> None:
        os.write(self._ended, b"\0")
        with self._reading:
            self._closed = True
            for fd in (self.reader, self._end, self._ended):
                os.close(fd)
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
                line = self._terminal.read_line()
                if not line:
                    return suggestion
                verdict = self._answer(line.strip().lower(), info, suggestion)
                if verdict is not None:
                    return verdict
        except (OSError, ValueError):  # ValueError: closed by us
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
                self._write(f"{_printable(told) or 'no traceback is known'}\n")
        else:
            self._offer(info, suggestion)
        return None

    def _show(self, info: AgentFailureInfo, suggestion: Verdict) -> None:
        root = info.root_cause
        self._write(f"\nfailure of attempt {info.attempt} on {info.host} ({info.kind.value})\n")
        if root is not None:
            told = root.message or (
                f"exit code {root.exit_code}" if root.signal is None else f"signal {root.signal}"
            )
            self._write(f"rank {root.global_rank}: {one_line(told)}\n")
            lines = _printable(root.traceback).splitlines()[-_TRACEBACK_LINES:]
            self._write("".join(f"  {line}\n" for line in lines))
        self._write(f"restarts left: {info.restarts_left}\n")
        self._offer(info, suggestion)

    def _offer(self, info: AgentFailureInfo, suggestion: Verdict) -> None:
        strategy, why = suggestion.strategy, one_line(suggestion.reason)
        enter = f"{_IN_WORDS[strategy]} ({strategy.value} by {suggestion.decided_by}: {why})"
        if suggestion.strategy is FailoverStrategy.NORMAL_FAILOVER and not info.restarts_left:
            enter += "; with no restarts left, the job fails"
        self._write(f"{_MENU}Enter: {enter}\n")

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
        try:
            subprocess.run(
                [*shlex.split(pager), str(path)],
                stdin=terminal.reader,
                stdout=terminal.writer,
                check=False,
            )
        except (OSError, ValueError) as error:  # ValueError: a quotation mark too few
            self._write(f"PAGER={pager} cannot be started: {error}\n{path}\n")

    def _write(self, text: str) -> None:
        self._terminal.writer.write(text)
        self._terminal.writer.flush()


def _printable(text: str) -> str:
    """What a worker has raised may hold anything, and this goes to a terminal."""
    return "\n".join(printable(line) for line in text.splitlines())


def open_terminal() -> Terminal:
    """The terminal to ask at, or a sentence about why there is none."""
    if os.isatty(0) and os.isatty(2):
        try:
            return Terminal()
        except OSError:
            pass
    raise UsageError(
        "--interactive needs a terminal, and there is none here",
        hint="leave it out, or decide with --failover-rules or --dynamic-failover-extension",
    )
