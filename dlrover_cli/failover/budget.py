"""When the restart budget is full again: after as much progress as the user asked for. Pure."""

import re
from dataclasses import dataclass, replace

from dlrover_cli.config.durations import NotADuration, parse_duration
from dlrover_cli.config.settings import SETTING
from dlrover_cli.config.sources import Source, SourceKind
from dlrover_cli.errors import ConfigError
from dlrover_cli.failover.decide import Counters

_NAME = "restart_budget_reset"


@dataclass(frozen=True, slots=True)
class BudgetReset:
    """How much progress refills the budget: so many steps, or so many seconds."""

    steps: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What one attempt came to before it failed."""

    steps: int | None
    """Steps taken; None where nobody counted."""
    seconds: float
    """From the attempt's start to its last sign of life: a step, a heartbeat or output."""


def parse_budget_reset(text: str, origin: Source | None = None) -> BudgetReset | None:
    """`"500 steps"` or `"1h"`; an empty text means that the budget is never refilled."""
    origin = origin or Source(SourceKind.FLAG, SETTING[_NAME].option)
    text = text.strip()
    if not text:
        return None
    if re.fullmatch(r"[0-9.]+", text):
        raise _wrong(origin, f"does not say what {text} counts: steps or seconds", text)
    if found := re.fullmatch(r"([0-9]{1,15})\s*steps?", text, re.ASCII):
        reset = BudgetReset(steps=int(found[1]))
    else:
        reset = BudgetReset(seconds=_seconds(text, origin))
    if not (reset.steps or reset.seconds):
        raise _wrong(origin, "needs more than nothing, or no budget would ever be spent", "500")
    return reset


def earned(reset: BudgetReset | None, progress: Progress) -> bool:
    """Whether an attempt progressed for long enough to refill the budget."""
    if reset is None:
        return False
    if reset.steps is not None:
        return progress.steps is not None and progress.steps >= reset.steps
    # Where steps are counted and none was taken, the time was not progress, however long it was.
    return reset.seconds is not None and progress.steps != 0 and progress.seconds >= reset.seconds


def refilled(counters: Counters, reset: BudgetReset | None, progress: Progress) -> Counters:
    """The counters that the decision on a failure starts from, after the attempt's progress.

    Only restarts are refilled; replaced nodes and fresh starts of the job stay counted.
    """
    return replace(counters, restart_count=0) if earned(reset, progress) else counters


def _seconds(text: str, origin: Source) -> float:
    try:
        return parse_duration(text)
    except NotADuration:
        what = f"takes a number of steps or a time, not {text!r}"
        raise _wrong(origin, what, "500") from None
    except ValueError as error:
        raise _wrong(origin, str(error), "500") from None


def _wrong(origin: Source, what: str, number: str) -> ConfigError:
    return ConfigError(
        f"{origin.subject} {what}.",
        setting=_NAME,
        hint=f"Write {origin.example(_quoted(origin, f'{number} steps'))}"
        f" or {origin.example('1h')}",
    )


def _quoted(origin: Source, value: str) -> str:
    return value if origin.kind is SourceKind.FILE else f"'{value}'"
