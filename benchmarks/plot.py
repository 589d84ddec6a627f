"""The results of a race as a picture: a dot for each median on a logarithmic scale, in SVG.

A thin line goes from the median to the maximum. The picture follows light and dark mode.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape

from benchmarks.figures import Unit
from benchmarks.results import Result

_WIDTH, _TITLES, _RIGHT = 1120, 580, 40
_ROW, _TOP, _PANEL_GAP = 24, 44, 46
_COLOURS = 4
_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #24292f }
.scale { font-size: 11px; fill: #57606a }
.grid { stroke: #d0d7de }
.row { stroke: #eaeef2 }
.c0 { fill: #bc4c00; stroke: #bc4c00 }
.c1 { fill: #0969da; stroke: #0969da }
.c2 { fill: #1a7f37; stroke: #1a7f37 }
.c3 { fill: #8250df; stroke: #8250df }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .scale { fill: #9198a1 }
  .grid { stroke: #3d444d }
  .row { stroke: #262c36 }
  .c0 { fill: #f0883e; stroke: #f0883e }
  .c1 { fill: #58a6ff; stroke: #58a6ff }
  .c2 { fill: #3fb950; stroke: #3fb950 }
  .c3 { fill: #bc8cff; stroke: #bc8cff }
}"""


def svg(results: Sequence[Result]) -> str:
    """One panel for each unit that has medians above zero."""
    names = [lane.launcher for lane in results[0].lanes] if results else []
    body = list(_legend(names))
    top = _TOP
    for unit in (Unit.SECONDS, Unit.MEGABYTES, Unit.PERCENT):
        panel = [each for each in results if each.figure.unit is unit and _medians(each)]
        if panel:
            body += _panel(panel, unit, top)
            top += len(panel) * _ROW + _PANEL_GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" role="img">',
            "<title>Medians of the race, on a logarithmic scale; smaller is better</title>",
            f"<style>{_STYLE}</style>",
            *body,
            "</svg>",
        ]
    )


def _legend(names: Sequence[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        x = _TITLES + 130 * number
        yield f'<circle class="{_colour(number)}" cx="{x}" cy="18" r="5"/>'
        yield f'<text x="{x + 11}" y="22">{escape(name)}</text>'


def _panel(results: Sequence[Result], unit: Unit, top: float) -> Iterator[str]:
    values = [value for result in results for value in _all_values(result)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    bottom = top + len(results) * _ROW

    def x(value: float) -> float:
        share = (math.log10(value) - low) / (high - low)
        return round(_TITLES + share * (_WIDTH - _RIGHT - _TITLES), 1)

    for power in range(low, high + 1):
        place = x(10.0**power)
        yield f'<line class="grid" x1="{place}" x2="{place}" y1="{top}" y2="{bottom}"/>'
        yield (
            f'<text class="scale" x="{place}" y="{bottom + 15}" text-anchor="middle">'
            f"{10.0**power:g} {unit.value}</text>"
        )
    for number, result in enumerate(results):
        yield from _row(result, top + (number + 0.5) * _ROW, x)


def _row(result: Result, y: float, x: Callable[[float], float]) -> Iterator[str]:
    title = escape(result.figure.title.replace("`", ""))
    yield f'<text x="{_TITLES - 14}" y="{y + 4}" text-anchor="end">{title}</text>'
    yield f'<line class="row" x1="{_TITLES}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
    for number, lane in enumerate(result.lanes):
        summary = lane.summary()
        if summary is None or summary.median <= 0:
            continue
        middle, end = x(summary.median), x(summary.max)
        colour = _colour(number)
        said = f"{escape(lane.launcher)}: {summary.median:.3g} {result.figure.unit.value}"
        yield f'<line class="{colour}" x1="{middle}" x2="{end}" y1="{y}" y2="{y}"/>'
        yield (
            f'<circle class="{colour}" cx="{middle}" cy="{y}" r="5"><title>{said}</title></circle>'
        )


def _medians(result: Result) -> list[float]:
    summaries = [lane.summary() for lane in result.lanes]
    return [summary.median for summary in summaries if summary and summary.median > 0]


def _all_values(result: Result) -> list[float]:
    return _medians(result) + [
        summary.max
        for summary in (lane.summary() for lane in result.lanes)
        if summary and summary.median > 0
    ]


def _colour(number: int) -> str:
    return f"c{number % _COLOURS}"
