"""The results of a race as a Markdown table, as lines for a person who waits, and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.figures import Unit
from benchmarks.results import Lane, Result, surroundings
from benchmarks.track import Launcher

_DIGITS = {Unit.SECONDS: 3, Unit.MEGABYTES: 0, Unit.PERCENT: 2}


def markdown(results: Sequence[Result], launchers: Sequence[Launcher]) -> str:
    names = [launcher.name for launcher in launchers]
    heads = ["figure", *(f"{name}: median (p95, max)" for name in names)]
    heads += [*(f"{name} / {names[0]}" for name in names[1:]), "at most", "runs", "remarks"]
    where = ", ".join(f"{key} {value}" for key, value in surroundings().items())
    lines = [
        f"Smaller is better. {where}.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for result in results:
        cells = [result.figure.title, *(lane_cell(result, lane) for lane in result.lanes)]
        cells += [ratio_cell(result, lane) for lane in result.lanes[1:]]
        cells += [limit_cell(result), runs_cell(result), remarks(result)]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def one_line(result: Result) -> str:
    """One figure, for who waits for the table."""
    lanes = ", ".join(f"{lane.launcher} {lane_cell(result, lane)}" for lane in result.lanes)
    ratios = [ratio_cell(result, lane) for lane in result.lanes[1:]]
    parts = [f"{result.figure.name}: {lanes}", f"ratio {', '.join(ratios)}" if ratios else ""]
    parts += [f"at most {limit}" if (limit := limit_cell(result)) else "", remarks(result)]
    return "; ".join(filter(None, parts))


def as_document(results: Sequence[Result], launchers: Sequence[Launcher]) -> dict[str, Any]:
    return {
        "surroundings": surroundings(),
        "launchers": {launcher.name: list(launcher.command) for launcher in launchers},
        "figures": {result.figure.name: _figure_document(result) for result in results},
    }


def lane_cell(result: Result, lane: Lane) -> str:
    summary = lane.summary()
    if summary is None:
        return "-"
    if result.figure.unit is Unit.RECOVERED:
        return f"{lane.samples.count(1.0)} of {len(lane.samples)}"
    digits = _DIGITS[result.figure.unit]
    median, p95, most = (f"{v:.{digits}f}" for v in (summary.median, summary.p95, summary.max))
    return f"{median} ({p95}, {most}) {result.figure.unit.value}"


def ratio_cell(result: Result, lane: Lane) -> str:
    ratio = result.ratio(lane)
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" if ratio > 0.1 else f"{ratio:.4f} (1/{1 / ratio:.1f})" if ratio else "0"


def limit_cell(result: Result) -> str:
    verdict = result.verdict()
    if verdict is None:
        return ""
    limit = result.figure.limit
    return f"{limit.words if limit else 'all'}: {verdict.value}"


def runs_cell(result: Result) -> str:
    return " / ".join(str(len(lane.samples)) for lane in result.lanes)


def remarks(result: Result) -> str:
    parts = [
        f"{lane.launcher} failed {len(lane.failures)} of {len(lane.failures) + len(lane.samples)}: "
        f"{lane.failures[-1]}"
        for lane in result.lanes
        if lane.failures
    ]
    if result.out_of_time:
        parts.append("cut short: out of time")
    return "; ".join(parts)


def _figure_document(result: Result) -> dict[str, Any]:
    verdict = result.verdict()
    return {
        "title": result.figure.title,
        "unit": result.figure.unit.value,
        "limit": result.figure.limit and result.figure.limit.ratio,
        "verdict": verdict and verdict.value,
        "out_of_time": result.out_of_time,
        "lanes": [
            asdict(lane) | {"summary": (summary := lane.summary()) and asdict(summary)}
            for lane in result.lanes
        ],
        "ratios": {lane.launcher: result.ratio(lane) for lane in result.lanes[1:]},
    }
