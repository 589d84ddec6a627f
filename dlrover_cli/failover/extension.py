"""The user's extension as an adviser: asked in a process of its own, behind a fence.

Whatever the extension does, hang, crash, exit, answer nonsense, the agent gets a verdict within the
time-out and a sentence about what happened. The object lives as long as its process does: it keeps
its state between failures, until it has to be ended or ends itself; then it is started afresh.
"""

import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, assert_never

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy
from dlrover_cli.errors import DlroverError, LaunchError, PluginError
from dlrover_cli.failover.advice import History, Verdict
from dlrover_cli.failover.extension_client import (
    ExtensionClient,
    ExtensionSource,
    ExtensionTrouble,
    Loaded,
    MisbehavedError,
    TimedOut,
)
from dlrover_cli.plugins.failover_extension import OPTION
from dlrover_cli.plugins.faults import Subject, describe

OnError = Literal["normal", "abort"]
Record = Callable[..., None]

_CLOSE_GRACE_SECONDS = 0.5
_STARTED_AGAIN = "it is started again, without what it had kept in memory"


class ExtensionFault(StrEnum):
    """Why an extension cannot be used, beyond what loading it in this process could find."""

    LOAD_TIMED_OUT = "load-timed-out"
    LOAD_CRASHED = "load-crashed"


def _record_nothing(kind: str, **data: Any) -> None:
    pass


class ExtensionAdviser:
    """Asks one extension about failures.

    `begin` starts its process and returns at once; `ready` waits until it is constructed, or raises
    PluginError. `advise` may be called from any thread, one call at a time; `close` from any
    thread, also while another one is in `advise`, which then returns.
    """

    def __init__(
        self,
        reference: str,
        roots: Sequence[Path],
        *,
        timeout: float,
        on_error: OnError = "normal",
        record: Record = _record_nothing,
        log_path: Path | None = None,
        log_shown_as: str | None = None,
        load_timeout: float | None = None,
        option: str = OPTION,
    ) -> None:
        """`timeout` is for each answer, and for construction unless `load_timeout` says otherwise.

        `log_path` is where its output goes, up to 1 MiB for each start; without it, nowhere.
        Sentences name it as `log_shown_as`, if that is given.
        """
        self.name = f"extension {reference.strip()}"
        self._source = ExtensionSource(reference, tuple(roots), option)
        self._timeout = timeout
        self._load_timeout = timeout if load_timeout is None else load_timeout
        self._on_error: OnError = on_error
        self._record = record
        self._log_path = log_path
        self._log_name = log_shown_as or log_path
        self._client: ExtensionClient | None = None
        self._closed = False
        self._state = threading.Lock()  # for the two above
        self._busy = threading.RLock()

    def begin(self) -> None:
        """Start its process, without waiting. Raises LaunchError."""
        with self._busy:
            if self._client is None:
                self._spawn()

    def ready(self, deadline: float | None = None) -> Loaded:
        """Wait until it is constructed; raise PluginError if it cannot be used.

        `deadline` is a point of `time.monotonic`; by default construction may take the load
        time-out, counted from `begin`.
        """
        with self._busy:
            client = self._client or self._spawn()
            if deadline is None:
                deadline = client.started + self._load_timeout
            try:
                return self._await_loaded(client, deadline)
            except ExtensionTrouble as trouble:
                self._end()
                raise self._load_error(trouble) from None
            except PluginError:
                self._end()
                raise

    def start(self) -> Loaded:
        """`begin` and `ready` in one."""
        self.begin()
        return self.ready()

    def advise(self, info: AgentFailureInfo, history: History) -> Verdict | None:
        """Its opinion, within the time-out; what `on_error` says if it has failed."""
        started = time.monotonic()
        problems: list[str] = []
        with self._busy:
            try:
                strategy = self._ask(info, started + self._timeout, problems)
            except Exception as error:  # noqa: BLE001 - the fence: a verdict, whatever happened
                problems.append(self._in_words(error))
                self._recover(error)
                return self._failed(problems, time.monotonic() - started)
        seconds = time.monotonic() - started
        self._record(
            "extension_answered",
            extension=self._source.reference,
            strategy=None if strategy is None else strategy.value,
            seconds=seconds,
            problems=problems,
        )
        if strategy is None:
            return None
        return Verdict(strategy, self.name, "the extension's answer", problems=tuple(problems))

    def close(self) -> None:
        """End its process and all below it."""
        with self._state:
            self._closed = True
            client = self._client
        if client is None:
            return
        idle = self._busy.acquire(blocking=False)
        if not idle:
            client.interrupt()
            self._busy.acquire()
        try:
            self._end(_CLOSE_GRACE_SECONDS)
        finally:
            self._busy.release()

    def _ask(
        self, info: AgentFailureInfo, deadline: float, problems: list[str]
    ) -> FailoverStrategy | None:
        client = self._client
        if client is not None and client.is_loaded and (ending := client.how_it_ended()):
            problems.append(f"{self.name} {ending} after the last failure; {_STARTED_AGAIN}")
            self._end()
            client = None
        client = client or self._spawn()
        self._await_loaded(client, deadline)
        return client.ask(info.to_json(), deadline)

    def _recover(self, error: Exception) -> None:
        """After a failed question: keep a process that can be asked again, replace any other."""
        if isinstance(error, MisbehavedError):
            return
        try:
            self._end()
            if self._on_error == "normal" and isinstance(error, ExtensionTrouble):
                self._spawn()  # now, so that it has loaded by the next failure
        except Exception as failed:  # noqa: BLE001 - the fence; the next question tries again
            self._record(
                "extension_not_started",
                extension=self._source.reference,
                reason=describe(failed),
            )

    def _failed(self, problems: list[str], seconds: float) -> Verdict:
        match self._on_error:
            case "normal":
                strategy = FailoverStrategy.NORMAL_FAILOVER
            case "abort":
                strategy = FailoverStrategy.ABORTION_FAILOVER
            case _:
                assert_never(self._on_error)
        self._record(
            "extension_failed",
            extension=self._source.reference,
            problems=problems,
            seconds=seconds,
            strategy=strategy.value,
        )
        return Verdict(
            strategy,
            f"{self.name} (failed)",
            f"--failover_on_error={self._on_error}",
            problems=tuple(problems),
        )

    def _in_words(self, error: Exception) -> str:
        match error:
            case MisbehavedError():
                return f"{self.name} {error}"
            case TimedOut():
                what = f"did not answer within {self._timeout:g} s and was ended"
                return f"{self.name} {what}{self._see_log()}{self._what_follows()}"
            case ExtensionTrouble():
                return f"{self.name} {error}{self._see_log()}{self._what_follows()}"
            case DlroverError():
                return f"{self.name} could not be started again: {error.message}"
            case _:
                return f"{self.name} could not be asked: {describe(error)}"

    def _see_log(self) -> str:
        return "" if self._log_name is None else f" (see {self._log_name})"

    def _what_follows(self) -> str:
        return "" if self._on_error == "abort" else f"; {_STARTED_AGAIN}"

    def _load_error(self, trouble: ExtensionTrouble) -> PluginError:
        subject = Subject.of_option(self._source.option, self._source.reference.strip())
        if isinstance(trouble, TimedOut):
            reason = ExtensionFault.LOAD_TIMED_OUT
            message = f"it was not constructed within {self._load_timeout:g} s{self._see_log()}"
            hint = (
                "let the constructor return at once and load in a thread, or give it a longer "
                "--failover_timeout"
            )
        else:
            reason = ExtensionFault.LOAD_CRASHED
            message = f"it {trouble} while it was loaded{self._see_log()}"
            hint = "nothing was started; mend it and run again"
        return PluginError(
            f"{subject.text}: {message}", reference=subject.reference, reason=reason, hint=hint
        )

    def _await_loaded(self, client: ExtensionClient, deadline: float) -> Loaded:
        if client.is_loaded:
            return client.await_loaded(deadline)
        loaded = client.await_loaded(deadline)
        self._record(
            "extension_loaded",
            extension=self._source.reference,
            pid=loaded.pid,
            file=loaded.file,
            seconds=time.monotonic() - client.started,
        )
        return loaded

    def _spawn(self) -> ExtensionClient:
        with self._state:
            if self._closed:
                raise LaunchError("the run is over")
            self._client = ExtensionClient(self._source, self._load_timeout, self._log_path)
            return self._client

    def _end(self, grace: float = 0.0) -> None:
        with self._state:
            client, self._client = self._client, None
        if client is None:
            return
        left = client.end(grace)
        if left:
            self._record("extension_left", extension=self._source.reference, pids=left)
