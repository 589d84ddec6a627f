"""Rules as values, and which of them a failure meets: pure, no I/O, no clock.

All conditions of a rule must hold; the first rule that applies decides. Searching text is handed
in, because a pattern can take for ever and only the caller knows what to do about that.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice

from dlrover_cli.contracts import (
    AgentFailureInfo,
    FailoverStrategy,
    FailureKind,
    WorkerFailure,
    WorkerPhase,
)
from dlrover_cli.failover.advice import History
from dlrover_cli.failover.fingerprint import culprit, fingerprint, phase_of

LONGEST_MESSAGE = 8_192
LONGEST_LOG = 32_768
_SIGNAL_BASE = 128

Search = Callable[[re.Pattern[str], str], bool]
"""Whether the pattern is found anywhere in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The conditions of a rule; what is None is not asked about."""

    exit_codes: frozenset[int] | None = None
    signals: frozenset[int] | None = None
    exceptions: tuple[str, ...] | None = None
    message: re.Pattern[str] | None = None
    log: re.Pattern[str] | None = None
    phase: WorkerPhase | None = None
    kinds: frozenset[FailureKind] | None = None
    oom: bool | None = None
    same_failure: int | None = None
    no_progress: int | None = None
    same_host: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Under these conditions, this is what to do."""

    name: str
    strategy: FailoverStrategy
    when: When = field(default_factory=When)
    backoff: float | None = None
    reason: str = ""
    on: bool = True
    shipped: bool = False

    @property
    def title(self) -> str:
        """How a decision names the rule."""
        return f"{'shipped ' if self.shipped else ''}rule {self.name!r}"


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of one or several files, in the order in which they are asked."""

    rules: tuple[Rule, ...] = ()
    shipped: frozenset[str] | None = None
    """The shipped rules that the user wants; None where nothing was said about them."""

    def followed_by(self, other: "RuleSet") -> "RuleSet":
        """These rules first, then those of `other`; what is said here of shipped rules counts."""
        shipped = other.shipped if self.shipped is None else self.shipped
        return RuleSet(self.rules + other.rules, shipped)


def first_match(
    rules: Iterable[Rule], info: AgentFailureInfo, history: History, search: Search
) -> Rule | None:
    """The first rule that is on and applies to the failure."""
    return next(
        (rule for rule in rules if rule.on and applies(rule.when, info, history, search)), None
    )


def applies(when: When, info: AgentFailureInfo, history: History, search: Search) -> bool:
    """Whether all conditions hold. Text is searched last, and only if all else holds."""
    return (
        _fits_worker(when, culprit(info))
        and (when.phase is None or when.phase is phase_of(info))
        and (when.kinds is None or info.kind in when.kinds)
        and _fits_history(when, info, history)
        and _fits_text(when, info, search)
    )


def _fits_worker(when: When, worker: WorkerFailure | None) -> bool:
    asked = (when.exit_codes, when.signals, when.exceptions, when.oom)
    if worker is None:
        return all(condition is None for condition in asked)
    return (
        (when.exit_codes is None or _shell_status(worker) in when.exit_codes)
        and (when.signals is None or worker.signal in when.signals)
        and (when.exceptions is None or _is_any_of(worker.exception_type, when.exceptions))
        and (when.oom is None or worker.oom == when.oom)
    )


def _shell_status(worker: WorkerFailure) -> int | None:
    """The exit code as a shell, a container runtime and our own exit code have it."""
    return worker.exit_code if worker.signal is None else _SIGNAL_BASE + worker.signal


def _is_any_of(exception_type: str | None, patterns: Sequence[str]) -> bool:
    if exception_type is None:
        return False
    return any(_is_exception(exception_type, pattern) for pattern in patterns)


def _is_exception(full_name: str, pattern: str) -> bool:
    """Compare full names where both are full, and the bare class names otherwise."""
    if "." in full_name and "." in pattern:
        return fnmatchcase(full_name, pattern)
    return fnmatchcase(full_name.rpartition(".")[2], pattern.rpartition(".")[2])


def _fits_history(when: When, info: AgentFailureInfo, history: History) -> bool:
    latest_first = (info, *reversed(history.failures))
    return (
        (when.same_failure is None or _same_failure(latest_first, when.same_failure))
        and (when.no_progress is None or _no_progress(latest_first, when.no_progress))
        and (when.same_host is None or _same_host(latest_first, when.same_host))
    )


def _same_failure(latest_first: Sequence[AgentFailureInfo], times: int) -> bool:
    if len(latest_first) < times:
        return False
    mine = fingerprint(latest_first[0])
    return all(fingerprint(each) == mine for each in islice(latest_first, 1, times))


def _no_progress(latest_first: Sequence[AgentFailureInfo], restarts: int) -> bool:
    # The first attempt of a run is not a restart, so one more failure is there than restarts.
    if len(latest_first) <= restarts:
        return False
    takes_steps = any(each.steps for each in latest_first)
    return all(_took_no_step(each, takes_steps) for each in latest_first[:restarts])


def _took_no_step(info: AgentFailureInfo, takes_steps: bool) -> bool:
    """Whether an attempt certainly came to nothing.

    Where none was noticed, the script may have a way to train that nobody can see; unless the
    attempt did not get as far as training, or another one of the run did take steps.
    """
    if info.steps is not None:
        return info.steps == 0
    return takes_steps or phase_of(info) is WorkerPhase.START_UP


def _same_host(latest_first: Sequence[AgentFailureInfo], times: int) -> bool:
    host = latest_first[0].host
    return (
        bool(host)
        and len(latest_first) >= times
        and all(each.host == host for each in latest_first[:times])
    )


def _fits_text(when: When, info: AgentFailureInfo, search: Search) -> bool:
    if when.message is not None:
        worker = culprit(info)
        if worker is None or not search(when.message, worker.message[:LONGEST_MESSAGE]):
            return False
    return when.log is None or search(when.log, _both_ends(info.log_content))


def _both_ends(text: str) -> str:
    """The root cause stands first in a log and the last words last; between them may be much."""
    if len(text) <= LONGEST_LOG:
        return text
    half = LONGEST_LOG // 2
    return f"{text[:half]}\n{text[-half:]}"
