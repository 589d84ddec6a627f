"""The step rate of a run over time, as SVG: below the timeline of its ranks, on the same scale."""

from collections.abc import Iterator, Sequence
from html import escape

from dlrover_cli import words
from dlrover_cli.diagnosis.run_story import Attempt, Launch

_HEIGHT, _HEAD = 90, 4
_WIDTH = 10_000
"""Of the drawing in its own units; the browser stretches it to the width that there is."""


def rates(launch: Launch, attempts: Sequence[Attempt]) -> str:
    """One line for each attempt; nothing if nobody counted steps."""
    fastest = max((span.rate for each in attempts for span in each.pace.spans), default=0.0)
    if fastest <= 0:
        return ""
    drawing = "".join(part for each in attempts for part in _drawn(each, launch, fastest))
    height = _HEAD + _HEIGHT + 4
    return (
        f'<h3>Step rate <span class="quiet">up to {escape(words.rate(fastest))}</span></h3>'
        f'<div class="lanes"><div class="labels unseen">rank {_lowest_rank(attempts)}</div>'
        f'<svg width="100%" height="{height}" role="img" aria-label="step rate over time">'
        f'<svg y="{_HEAD}" width="100%" height="{_HEIGHT}" preserveAspectRatio="none" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">{drawing}</svg>'
        f'<line class="start" x1="0" x2="100%" y1="{_HEAD + _HEIGHT}" y2="{_HEAD + _HEIGHT}"/>'
        "</svg></div>"
    )


def _lowest_rank(attempts: Sequence[Attempt]) -> int:
    """The timeline's widest label, which takes as much room here."""
    return min((span.rank for attempt in attempts for span in attempt.ranks), default=0)


def _drawn(attempt: Attempt, launch: Launch, fastest: float) -> Iterator[str]:
    """Steps as stairs: a rate holds from the one step that was seen to the next."""
    spans = attempt.pace.spans
    if not spans:
        return
    seconds = max(launch.ended - launch.started, 1e-3)

    def x(when: float) -> float:
        return min(max((when - launch.started) / seconds, 0.0), 1.0) * _WIDTH

    stairs = " ".join(
        f"{x(when):.1f},{_HEIGHT * (1 - span.rate / fastest):.1f}"
        for span in spans
        for when in (span.since, span.until)
    )
    title = f"attempt {attempt.number}"
    if attempt.pace.steps_per_second is not None:
        title += f": {words.rate(attempt.pace.steps_per_second)} on average"
    told = f"<title>{escape(title)}</title>"
    left, right = x(spans[0].since), x(spans[-1].until)
    area = f"M{left:.1f},{_HEIGHT} L{stairs} L{right:.1f},{_HEIGHT} Z"
    yield f'<path class="under" d="{area}">{told}</path>'
    yield f'<path class="rate" d="M{stairs}">{told}</path>'
