"""The agent's end of one extension process: start it, ask it, end it, each within a deadline.

Deadlines are points of `time.monotonic` for the whole of a request: sending it, the extension's
thinking, and the last byte of its answer. No thread is needed, and none is started.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.errors import LaunchError, PluginError
from dlrover_cli.failover import extension_guard, extension_process
from dlrover_cli.plugins.faults import PluginFault
from dlrover_cli.words import signal_name

_LARGEST_REPORT = 1 << 20
_LARGEST_GUARD_REPORT = 1 << 16
# Selectors refuse to wait for centuries; whoever wants to may.
_LONGEST_WAIT = 3600.0
# How long the guard may take to say how the extension ended, before we call it not ended.
_ENDING_SECONDS = 1.0
# Longer than the guard's own patience with processes that do not die.
_GUARD_SECONDS = 7.0


@dataclass(frozen=True, slots=True)
class ExtensionSource:
    """Which extension, and where it is looked for."""

    reference: str
    roots: Sequence[Path]
    option: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """An extension that can be asked."""

    pid: int
    file: str


class ExtensionTrouble(Exception):
    """There is no answer; the text goes on from "extension a::B …"."""


class MisbehavedError(ExtensionTrouble):
    """It raised or returned something else; it can be asked again."""


class TimedOut(ExtensionTrouble):
    """The deadline has passed; the process must be ended."""


class Lost(ExtensionTrouble):
    """It crashed, exited or cut the connection; the process must be ended."""


class ExtensionClient:
    """One process of one extension, from its start to its end.

    `interrupt` may be called from any thread; all else belongs to one thread at a time.
    """

    def __init__(
        self, source: ExtensionSource, load_timeout: float, log_path: Path | None = None
    ) -> None:
        """Start it, without waiting for anything. Raises LaunchError."""
        self.started = time.monotonic()
        self._loaded: Loaded | None = None
        self._asked = 0
        self._idle = False
        self._guard_report = b""
        control, self._guard, channel = _start_guard(log_path)
        self._control = control
        self._channel = extension_process.Channel(channel, largest=_LARGEST_REPORT)
        self._channel.post(
            {
                "op": "load",
                "reference": source.reference,
                "roots": [str(root.absolute()) for root in source.roots],
                "option": source.option,
                "sys_path": [str(entry) for entry in sys.path],
                "deadline": self.started + load_timeout,
            }
        )
        with contextlib.suppress(EOFError):  # gone already: whoever waits for it will hear why
            self._channel.flush()

    @property
    def is_loaded(self) -> bool:
        return self._loaded is not None

    def await_loaded(self, deadline: float) -> Loaded:
        """Wait until it is constructed. Raises PluginError as loading it here would, or Lost or
        TimedOut."""
        if self._loaded is None:
            match self._await_report(lambda report: "event" in report, deadline):
                case {"event": "loaded", "pid": int(pid), "file": str(file)}:
                    self._loaded = Loaded(pid, file)
                    self._idle = True
                case {"event": "refused", **fault}:
                    raise _rebuilt(fault)
                case other:
                    raise Lost(f"wrote {str(other)[:60]!r} into its connection to the agent")
        return self._loaded

    def ask(self, failure: Mapping[str, Any], deadline: float) -> FailoverStrategy | None:
        """Its answer to a failure; None is no opinion. Raises ExtensionTrouble."""
        self._idle = False
        self._asked += 1
        number = self._asked
        self._channel.post({"op": "ask", "id": number, "failure": failure, "deadline": deadline})
        report = self._await_report(lambda report: report.get("id") == number, deadline)
        self._idle = True
        match report:
            case {"event": "answer", "strategy": None}:
                return None
            case {"event": "answer", "strategy": str(name)} if name in FailoverStrategy.__members__:
                return FailoverStrategy[name]
            case {"event": "no_answer", "raised": str(what)}:
                raise MisbehavedError(f"raised {what}")
            case {"event": "no_answer", "returned": str(what)}:
                raise MisbehavedError(f"returned {what}")
            case _:
                raise Lost(f"wrote {str(report)[:60]!r} into its connection to the agent")

    def how_it_ended(self) -> str | None:
        """In words, if it has ended since it was asked last; None if it is there."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._channel, selectors.EVENT_READ)
            ready = _select(selector, 0)
        if self._control in ready:
            return self._ending()
        if self._channel in ready:
            try:
                for _ in self._channel.read():
                    pass  # nothing was asked
            except (EOFError, ValueError):
                return self._ending()
        return None

    def interrupt(self) -> None:
        """Have it ended at once, and whoever waits for it in another thread come back."""
        self._channel.shut_down()
        self._tell_guard()

    def end(self, grace: float = 0.0) -> list[int]:
        """End the process and all below it; return the pids that cannot be killed.

        One that waits for a question may first run its exit functions, for `grace` seconds.
        """
        self._channel.shut_down()
        if self._idle and grace > 0:
            self._await_guard(time.monotonic() + grace)
        self._tell_guard()
        if not self._await_guard(time.monotonic() + _GUARD_SECONDS):
            # Stuck itself, in writing the log for one. The extension dies with it.
            self._guard.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(_GUARD_SECONDS)
        self._channel.close()
        self._control.close()
        return list(self._parsed_guard_report().get("left", ()))

    def _tell_guard(self) -> None:
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def _await_report(
        self, wanted: Callable[[Mapping[str, Any]], bool], deadline: float
    ) -> dict[str, Any]:
        """Send what is queued, then read until a wanted report comes or the time is up.

        What has come already counts, however late we look.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ | selectors.EVENT_WRITE)
            selector.register(self._control, selectors.EVENT_READ)
            while True:
                remaining = deadline - time.monotonic()
                ready = _select(selector, remaining)
                # First what it said, then whether it has ended: it may have done both.
                if self._channel in ready:
                    try:
                        self._channel.flush()
                        for report in self._channel.read():
                            if wanted(report):
                                return report
                    except EOFError:
                        raise Lost(self._ending()) from None
                    except ValueError as error:
                        raise Lost(f"wrote into its connection to the agent: {error}") from None
                elif self._control in ready:
                    raise Lost(self._ending())
                if remaining <= 0:
                    raise TimedOut
                if not self._channel.has_unsent:
                    selector.modify(self._channel, selectors.EVENT_READ)

    def _ending(self) -> str:
        if not self._await_guard(time.monotonic() + _ENDING_SECONDS):
            return "closed its connection to the agent"
        report = self._parsed_guard_report()
        match report.get("status"):
            case int(status) if status < 0:
                return f"was killed by {signal_name(-status)}{_memory_in_words(status, report)}"
            case int(status):
                return f"ended its process with exit code {status}"
            case _:
                return "was lost together with the process that guards it"

    def _await_guard(self, deadline: float) -> bool:
        """Read the guard's report; whether the guard has ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            while (remaining := deadline - time.monotonic()) > 0:
                if not _select(selector, remaining):
                    continue
                try:
                    data = self._control.recv(4096)
                except OSError:
                    return True
                if not data:
                    return True
                if len(self._guard_report) < _LARGEST_GUARD_REPORT:
                    self._guard_report += data
        return False

    def _parsed_guard_report(self) -> dict[str, Any]:
        try:
            report = json.loads(self._guard_report)
        except ValueError:
            return {}
        return report if isinstance(report, dict) else {}


def _select(selector: selectors.BaseSelector, seconds: float) -> set[object]:
    """What can be read or written now, or within this time."""
    waited = selector.select(min(max(seconds, 0), _LONGEST_WAIT))
    return {key.fileobj for key, _ in waited}


def _start_guard(
    log_path: Path | None,
) -> tuple[socket.socket, "subprocess.Popen[bytes]", socket.socket]:
    """The guard, its socket, and the socket of the extension that it starts."""
    with contextlib.ExitStack() as on_error, contextlib.ExitStack() as always:
        try:
            control, control_end = socket.socketpair()
            on_error.callback(control.close)
            always.callback(control_end.close)
            channel, channel_end = socket.socketpair()
            on_error.callback(channel.close)
            always.callback(channel_end.close)
            control_fd, channel_fd = control_end.fileno(), channel_end.fileno()
            extension = [sys.executable, "-P", "-u", extension_process.__file__, str(channel_fd)]
            guard = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", extension_guard.__file__),
                    *(str(os.getpid()), str(control_fd), str(channel_fd)),
                    "" if log_path is None else str(log_path.absolute()),
                    *extension,
                ],
                pass_fds=[control_fd, channel_fd],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(
                f"no process can be started for the failover extension: {error.strerror}",
                hint="is the machine out of processes, descriptors or memory?",
            ) from error
        on_error.pop_all()
        channel.setblocking(False)
        return control, guard, channel


def _rebuilt(fault: Mapping[str, Any]) -> PluginError:
    reason = str(fault.get("reason"))
    with contextlib.suppress(ValueError):
        reason = PluginFault(reason)
    hint = fault.get("hint")
    return PluginError(
        str(fault.get("message")),
        reference=str(fault.get("reference")),
        reason=reason,
        hint=None if hint is None else str(hint),
    )


def _memory_in_words(status: int, report: Mapping[str, Any]) -> str:
    """SIGKILL is what the kernel sends when memory runs out; how much was used tells."""
    used = report.get("max_rss_kb")
    if status != -signal.SIGKILL or not isinstance(used, int):
        return ""
    return f" (it had used {used / 1024:.0f} MiB of memory)"
