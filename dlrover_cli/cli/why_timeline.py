"""The ranks of a run over time, as SVG; widths are shares, so that text keeps its size."""

from collections.abc import Iterator, Sequence
from html import escape

from dlrover_cli import words
from dlrover_cli.diagnosis.run_story import Attempt, AttemptEnd, Launch, RankSpan

MOST_RANKS = 64
MOST_SPANS = 4000
_LANE, _HEAD, _FOOT = 20, 20, 22
_MOST_TICKS = 5
_ROUND_STEPS = (
    *(factor * power for power in (0.001, 0.01, 0.1, 1) for factor in (1, 2, 5)),
    *(10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86400 * days for days in (1, 2, 5, 10, 20, 50)),
)
_LABEL_DISTANCE = 6.0
"""Per cent of the width that the number of an attempt takes."""


def timeline(launch: Launch, attempts: Sequence[Attempt], *, is_going_on: bool) -> str:
    """One lane for each rank, from the start to the end of one time that the job ran."""
    ranks = sorted({span.rank for attempt in attempts for span in attempt.ranks})
    if not ranks:
        return "<p>No workers were started.</p>"
    lanes = _shown_ranks(ranks, attempts)
    shown = _shown_attempts(attempts, len(lanes))
    scale = _Scale(launch.started, launch.ended)
    height = _HEAD + _LANE * len(lanes) + _FOOT
    labels = "".join(f"<div>{'rank ' if rank == lanes[0] else ''}{rank}</div>" for rank in lanes)
    drawing = "".join([*_marks(shown, scale, len(lanes)), *_bars(shown, scale, lanes, launch)])
    drawing += "".join(_ticks(scale, height, is_going_on=is_going_on))
    return (
        f'<div class="lanes"><div class="labels">{labels}</div>'
        f'<svg width="100%" height="{height}" role="img" aria-label="ranks over time">'
        f"{drawing}</svg></div>{_left_out(ranks, lanes, attempts, shown)}"
    )


class _Scale:
    """From a time to per cent of the width."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.seconds = start, max(end - start, 1e-3)

    def at(self, when: float) -> float:
        return min(max((when - self.start) / self.seconds * 100, 0.0), 100.0)


def _shown_ranks(ranks: Sequence[int], attempts: Sequence[Attempt]) -> list[int]:
    """All, or those that failed and as many others as there is room for."""
    if len(ranks) <= MOST_RANKS:
        return list(ranks)
    failed = {each.failures[0].rank for each in attempts if each.failures}
    by_interest = sorted(ranks, key=lambda rank: (rank not in failed, rank))
    return sorted(by_interest[:MOST_RANKS])


def _shown_attempts(attempts: Sequence[Attempt], lanes: int) -> Sequence[Attempt]:
    return attempts[-max(1, MOST_SPANS // lanes) :]


def _marks(attempts: Sequence[Attempt], scale: _Scale, lanes: int) -> Iterator[str]:
    """A line where each attempt begins, with its number where there is room."""
    last = -_LABEL_DISTANCE
    bottom = _HEAD + _LANE * lanes
    for attempt in attempts:
        x = scale.at(attempt.started)
        yield (f'<line class="start" x1="{x:.3f}%" x2="{x:.3f}%" y1="{_HEAD - 4}" y2="{bottom}"/>')
        if x - last >= _LABEL_DISTANCE:
            anchor = "end" if x > 100 - _LABEL_DISTANCE else "start"
            yield f'<text x="{x:.3f}%" y="12" text-anchor="{anchor}">#{attempt.number}</text>'
            last = x


def _bars(
    attempts: Sequence[Attempt], scale: _Scale, lanes: Sequence[int], launch: Launch
) -> Iterator[str]:
    row = {rank: _HEAD + _LANE * index for index, rank in enumerate(lanes)}
    for attempt in attempts:
        # If a node was lost, those that failed only went down with it.
        is_failure = attempt.end is AttemptEnd.FAILED and attempt.failures
        root = attempt.failures[0].rank if is_failure else None
        for span in attempt.ranks:
            if span.rank in row:
                yield _bar(attempt, span, scale, row[span.rank], launch, is_root=span.rank == root)
        if root in row and attempt.ended is not None:
            x, y = scale.at(attempt.failures[0].at), row[root] + _LANE / 2
            place = f'cx="{x:.3f}%" cy="{y:g}" r="5"'
            yield f'<circle class="failure" {place}>{_title(attempt.why)}</circle>'


def _bar(
    attempt: Attempt, span: RankSpan, scale: _Scale, y: int, launch: Launch, *, is_root: bool
) -> str:
    end = span.ended if span.ended is not None else attempt.ended or launch.ended
    left, right = scale.at(span.started), scale.at(end)
    kind, how = _how(attempt, span, is_root=is_root)
    lasted = words.span(end - span.started)
    title = _title(f"attempt {attempt.number}, rank {span.rank} on {span.node}: {how}, {lasted}")
    return (
        f'<rect class="{kind}" x="{left:.3f}%" width="{max(right - left, 0):.3f}%" '
        f'y="{y + 3}" height="{_LANE - 6}">{title}</rect>'
    )


def _how(attempt: Attempt, span: RankSpan, *, is_root: bool) -> tuple[str, str]:
    if is_root:
        return "failed", "failed first"
    if span.status == 0:
        return "good", "ended well"
    if span.status is not None:
        code = f"signal {-span.status}" if span.status < 0 else f"exit {span.status}"
        return "taken", f"went down with it ({code})"
    if attempt.end is AttemptEnd.RUNNING:
        return "running", "runs"
    return "unknown", "its end was not written down"


def _ticks(scale: _Scale, height: int, *, is_going_on: bool) -> Iterator[str]:
    for when in _round_times(scale.seconds):
        share = when / scale.seconds * 100
        if is_going_on and share > 100 - 2 * _LABEL_DISTANCE:
            break  # there is no room beside the last one
        anchor = "start" if not when else "end" if share > 100 - _LABEL_DISTANCE else "middle"
        text = words.span(when).replace(".0s", "s") if when else "0"
        yield f'<text x="{share:.3f}%" y="{height - 6}" text-anchor="{anchor}">{text}</text>'
    if is_going_on:
        yield f'<text x="100%" y="{height - 6}" text-anchor="end">now</text>'


def _round_times(seconds: float) -> list[float]:
    """From 0 on, as people count time, and as few as fit below a timeline on a phone."""
    step = next((each for each in _ROUND_STEPS if seconds / each <= _MOST_TICKS), seconds)
    return [step * index for index in range(int(seconds / step) + 1)]


def _left_out(
    ranks: Sequence[int],
    lanes: Sequence[int],
    attempts: Sequence[Attempt],
    shown: Sequence[Attempt],
) -> str:
    parts = []
    if len(lanes) < len(ranks):
        parts.append(f"{len(lanes)} of {len(ranks)} ranks are shown, those that failed among them.")
    if len(shown) < len(attempts):
        parts.append(f"The last {len(shown)} of {len(attempts)} attempts are shown.")
    return f'<p class="quiet">{" ".join(parts)}</p>' if parts else ""


def _title(text: str) -> str:
    return f"<title>{escape(words.one_line(text))}</title>"
