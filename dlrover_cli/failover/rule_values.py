"""The values that may stand in a rule: each reader takes what TOML holds, or says what is wrong."""

import re
import signal
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TypeVar

from dlrover_cli.config.durations import checked, parse_duration
from dlrover_cli.config.values import shown
from dlrover_cli.contracts import FailoverStrategy, FailureKind, WorkerPhase

_Read = TypeVar("_Read")


class BadValue(ValueError):
    """A value that cannot be used; the message goes on after the key's name."""

    def __init__(self, what: str, example: str = "", *, hint: str = "") -> None:
        super().__init__(what)
        self.example = example
        self.hint = hint


def line_of_text(value: object) -> str:
    """A text for people, on one line."""
    if not isinstance(value, str):
        raise BadValue(f"takes a text, not {shown(value)}", '"..."')
    if not value.strip() or not value.isprintable():
        raise BadValue("takes one line of text that is not empty", '"..."')
    return value


def strategy(value: object) -> FailoverStrategy:
    """`"ABORTION_FAILOVER"`, or for short `"abort"`."""
    if not isinstance(value, str):
        raise BadValue(f"takes one of {_SHORT}, not {shown(value)}", '"abort"')
    found = _STRATEGIES.get(value.lower())
    if found is None:
        raise BadValue(
            f"takes one of {_SHORT}, not {value!r}", hint=_meant(value.lower(), _STRATEGIES)
        )
    return found


def seconds(value: object) -> float:
    """`"30s"`, `"2m"`, or a number of seconds."""
    try:
        match value:
            case bool():
                pass
            case str():
                return parse_duration(value)
            case int() | float():
                return checked(float(value))
    except (ValueError, OverflowError) as error:
        raise BadValue(str(error), '"30s"') from None
    raise BadValue(f"takes a time, not {shown(value)}", '"30s"')


def yes_or_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadValue(f"takes true or false, not {shown(value)}", "true")
    return value


def one_or_more(value: object) -> int:
    return _count(value, 1)


def two_or_more(value: object) -> int:
    return _count(value, 2)


def exit_codes(value: object) -> frozenset[int]:
    """`3`, `"100-120"`, or a list of such."""
    return frozenset().union(*_each(value, _exit_code_range, "3"))


def signals(value: object) -> frozenset[int]:
    """`"SIGKILL"`, a number, or a list of such."""
    return frozenset(_each(value, _signal, '"SIGKILL"'))


def exceptions(value: object) -> tuple[str, ...]:
    """`"torch.OutOfMemoryError"`, `"OutOfMemoryError"`, `"Cuda*"`, or a list of such."""
    return tuple(_each(value, _exception, '"RuntimeError"'))


def kinds(value: object) -> frozenset[FailureKind]:
    """`"hang"`, or a list of such."""
    return frozenset(_each(value, _kind, '"hang"'))


def phase(value: object) -> WorkerPhase:
    if not isinstance(value, str) or value not in _PHASES:
        what = f'takes "start-up" or "training", not {shown(value)}'
        raise BadValue(what, hint=_meant(str(value), _PHASES))
    return _PHASES[value]


def pattern(value: object) -> re.Pattern[str]:
    """A regular expression; `^` and `$` stand for the ends of lines."""
    if not isinstance(value, str):
        raise BadValue(f"takes a regular expression, not {shown(value)}", "'NCCL.*timeout'")
    if not value:
        raise BadValue("is empty, which is found in every text", "'NCCL.*timeout'")
    try:
        return re.compile(value, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "Single quotes keep backslashes as they are: 'exit code \\d+'"
        raise BadValue(f"is not a regular expression: {error}", hint=hint) from None


def _each(value: object, read: Callable[[object], _Read], example: str) -> list[_Read]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise BadValue("is an empty list, so the rule could never apply", example)
    return [read(each) for each in values]


def _count(value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadValue(f"takes a whole number, {least} or more, not {shown(value)}", "3")
    return value


def _exit_code_range(value: object) -> frozenset[int]:
    match value:
        case bool():
            pass
        case int():
            return frozenset({_exit_code(value)})
        case str() if found := re.fullmatch(r"([0-9]{1,9}) *- *([0-9]{1,9})", value):
            first, last = _exit_code(int(found[1])), _exit_code(int(found[2]))
            if first <= last:
                return frozenset(range(first, last + 1))
    raise BadValue(f"takes a code or a range FROM-TO, not {shown(value)}", '[3, "100-120"]')


def _exit_code(number: int) -> int:
    if number < 0:
        hint = f"Signals are asked about by name: {_by_signal(-number)}"
        raise BadValue(f"takes 1 to 255, not {number}", hint=hint)
    if not 1 <= number <= 255:
        raise BadValue(f"takes 1 to 255, not {number}", "3")
    return number


def _by_signal(number: int) -> str:
    name = signal.Signals(number).name if number in signal.valid_signals() else "SIGKILL"
    return f'signal = "{name}"'


def _signal(value: object) -> int:
    if isinstance(value, str):
        if value in signal.Signals.__members__:
            return signal.Signals[value].value
        hint = _meant(value.upper(), signal.Signals.__members__, cutoff=0.6)
        raise BadValue(f"takes the name of a signal, not {value!r}", '"SIGKILL"', hint=hint)
    if isinstance(value, int) and not isinstance(value, bool) and value in signal.valid_signals():
        return int(value)
    raise BadValue(f"takes the name of a signal, not {shown(value)}", '"SIGKILL"')


def _exception(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[\w.*?\[\]!-]+", value):
        return value
    what = f"takes the name of an exception class, not {shown(value)}"
    raise BadValue(what, hint="Put the words of its message into message = '...'")


def _kind(value: object) -> FailureKind:
    known = {kind.value: kind for kind in FailureKind}
    if isinstance(value, str) and value in known:
        return known[value]
    what = f"takes {', '.join(known)}, not {shown(value)}"
    raise BadValue(what, hint=_meant(str(value), known))


def _meant(written: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    names = list(known)
    near = get_close_matches(written, names, n=1, cutoff=cutoff)
    return f'Did you mean "{near[0]}"?' if near else f'Write, for example, "{names[0]}".'


_STRATEGIES = {
    "normal": FailoverStrategy.NORMAL_FAILOVER,
    "node": FailoverStrategy.NODE_FAILOVER,
    "global": FailoverStrategy.GLOBAL_FAILOVER,
    "abort": FailoverStrategy.ABORTION_FAILOVER,
    "abortion": FailoverStrategy.ABORTION_FAILOVER,
    **{each.value.lower(): each for each in FailoverStrategy},
}
_SHORT = "normal, node, global or abort"
_PHASES = {each.value: each for each in (WorkerPhase.START_UP, WorkerPhase.TRAINING)}
