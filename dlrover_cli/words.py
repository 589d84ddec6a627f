"""Times, numbers and texts as people say them, short enough for a column."""

import signal
import time

_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))
_DAYS_IN_FULL = 10


def duration(seconds: float) -> str:
    """`0.4s`, `12s`, `3m 5s`, `2h 10m`, `4d 3h`, `30d`."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for large, large_unit, small, small_unit in _STEPS:
        if whole >= large:
            many, rest = divmod(whole, large)
            few = rest // small
            is_short = few == 0 or (large_unit == "d" and many >= _DAYS_IN_FULL)
            return f"{many}{large_unit}" if is_short else f"{many}{large_unit} {few}{small_unit}"
    return f"{whole}s"


def span(seconds: float) -> str:
    """As `duration`, but `40ms` of what may be as short as that."""
    return duration(seconds) if seconds >= 0.95 else f"{max(seconds, 0.0) * 1000:.0f}ms"


def age(since: float, now: float) -> str:
    """How long ago, in its largest unit alone: `5s`, `12m`, `3h`, `4d`."""
    return duration(max(round(now - since), 0)).partition(" ")[0].replace(".0s", "s")


def moment(when: float) -> str:
    """The local date and time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def printable(text: str) -> str:
    """With blanks for line ends, and for what a terminal might take for a command."""
    return "".join(each if each.isprintable() else " " for each in text)


def one_line(text: str) -> str:
    """As `printable`, and with one blank at a time."""
    return " ".join(printable(text).split())


def bounded(text: str, most: int = 2000) -> str:
    """Cut, and with its length, if it is longer than anybody reads: a name may be a whole file."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text):,} characters in all)"


def signal_name(number: int) -> str:
    """`SIGTERM`, or `signal 63` of one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def node_name(rank: int, host: str) -> str:
    """`node 1 (gpu-17)`, or `node 1` where the host is not known."""
    return f"node {rank} ({host})" if host else f"node {rank}"


def memory(amount: int) -> str:
    """`350 MiB`, `1.2 GiB`: to the precision that matters for a process."""
    if amount < 1 << 30:
        return f"{amount / (1 << 20):.0f} MiB"
    return f"{amount / (1 << 30):.1f} GiB"


def rate(steps_per_second: float) -> str:
    """`12.5 steps/s`, or `8.4s/step` of what is slower than one."""
    if steps_per_second >= 0.95:
        return f"{steps_per_second:,.1f} steps/s"
    if steps_per_second > 0:
        return f"{duration(1 / steps_per_second)}/step"
    return "0 steps/s"
