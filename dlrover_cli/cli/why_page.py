"""The story of a run as one page of HTML that asks nobody for anything; it may be sent around."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from dlrover_cli import words
from dlrover_cli.cli.why_rates import rates
from dlrover_cli.cli.why_style import STYLE
from dlrover_cli.cli.why_timeline import timeline
from dlrover_cli.cli.why_view import (
    attempt_heading,
    cost_in_words,
    decision_in_words,
    goodput_in_words,
    launch_lines,
    lost_in_words,
    steps_in_words,
)
from dlrover_cli.diagnosis.run_story import Attempt, FailureSeen, Interruption, Remark, RunStory
from dlrover_cli.diagnosis.verdict import lines_of
from dlrover_cli.errors import LaunchError

MOST_TIMELINES = 5
"""Of a periodic job, the last ones."""

MOST_REMARKS = 200

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LEGEND = (
    ("good", "ended well"),
    ("failed", "failed first"),
    ("taken", "went down with it"),
    ("running", "runs"),
    ("unknown", "end not known"),
)
_PARTS = ("starting", "useful", "lost", "ending")


def write_page(story: RunStory, path: Path) -> None:
    """Raises LaunchError if the file cannot be written."""
    try:
        path.write_text(page_of(story), encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise LaunchError(
            f"cannot write {path}: {reason}", hint="name a file in a directory that is there"
        ) from error


def page_of(story: RunStory) -> str:
    """The whole document."""
    title = f"{story.about.name}: {story.about.state.value}"
    body = "\n".join(filter(None, _sections(story)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _sections(story: RunStory) -> Iterator[str]:
    yield _head(story)
    if story.verdict is not None:
        block = "\n".join(lines_of(story.verdict))
        yield f'<details class="verdict" open><summary>Verdict</summary>{_pre(block)}</details>'
    yield _time(story)
    if story.attempts:
        yield _timelines(story)
        yield _lost(story.interruptions)
        yield _attempts(story)
    yield _remarks("Warnings", story.warnings)
    yield _remarks("History", story.history)
    yield _list("Not read", story.unreadable)
    yield f'<footer class="quiet">{_text(story.about.directory)}</footer>'


def _head(story: RunStory) -> str:
    about = story.about
    code = "" if about.exit_code is None else f", exit {about.exit_code}"
    when = f"{words.moment(about.submitted)} on {about.platform}, engine {about.engine}"
    reason = f"<p>{_text(story.reason)}</p>" if story.reason else ""
    return (
        f'<header><h1>{_text(about.name)} <span class="state {about.state.value}">'
        f"{about.state.value}{code}</span></h1>"
        f'<p class="quiet">run {_text(about.run_id)}, {_text(when)}</p>{reason}</header>'
    )


def _time(story: RunStory) -> str:
    if not story.launches:
        return ""
    costs = story.costs
    tiles = [
        ("Took", words.span(costs.wall)),
        ("Goodput", "unknown" if costs.goodput is None else f"{costs.goodput:.0%}"),
        ("Lost", words.span(costs.lost)),
        ("Attempts", str(len(story.attempts))),
    ]
    cells = "".join(f"<div><b>{_text(value)}</b>{name}</div>" for name, value in tiles)
    parts = [(name, getattr(costs, name)) for name in _PARTS]
    bar = "".join(
        f'<span class="{name}" style="flex-grow:{seconds:.4f}" title="{name}"></span>'
        for name, seconds in parts
        if seconds > 0
    )
    legend = "".join(
        f'<li><i class="{name}"></i>{name} {words.span(seconds)}</li>' for name, seconds in parts
    )
    told = f"Goodput {goodput_in_words(story)}."
    if story.interruptions:
        told += f" Lost {lost_in_words(story)}."
    split = ""
    if costs.goodput is not None:
        split = f'<div class="split">{bar}</div><ul class="legend">{legend}</ul>'
    return (
        f'<section><h2>Time</h2><div class="tiles">{cells}</div>{split}'
        f'<p class="quiet">{_text(told)}</p></section>'
    )


def _timelines(story: RunStory) -> str:
    shown = []
    for launch in story.launches[-MOST_TIMELINES:]:
        attempts = [each for each in story.attempts if each.launch == launch.number]
        is_last = launch is story.launches[-1]
        if len(story.launches) > 1:
            shown.append(f"<h3>{_text(launch_lines(story)[launch.number])}</h3>")
        shown.append(timeline(launch, attempts, is_going_on=story.is_going_on and is_last))
        shown.append(rates(launch, attempts))
    legend = "".join(f'<li><i class="{name}"></i>{text}</li>' for name, text in _LEGEND)
    return (
        f"<section><h2>Ranks and attempts</h2>{''.join(shown)}"
        f'<ul class="legend">{legend}<li><i class="dot"></i>failure</li></ul></section>'
    )


def _lost(interruptions: Sequence[Interruption]) -> str:
    if not interruptions:
        return ""
    rows = "".join(
        f"<tr><td>{each.attempt}</td><td>{_text(words.moment(each.at))}</td>"
        f"<td>{_text(cost_in_words(each))}</td><td>{_text(each.what)}</td></tr>"
        for each in interruptions
    )
    return (
        '<section><h2>Lost time</h2><div class="wide"><table><thead><tr><th>Attempt</th>'
        "<th>Since</th><th>Lost</th><th>To</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _attempts(story: RunStory) -> str:
    last = story.attempts[-1]
    return (
        "<section><h2>Attempts</h2>"
        + "".join(_attempt(each, is_open=each is last) for each in story.attempts)
        + "</section>"
    )


def _attempt(attempt: Attempt, *, is_open: bool) -> str:
    heading = (
        f"<b>{attempt.number}</b> <span class='end {attempt.end.value}'>{attempt.end.value}</span> "
        f"{_text(attempt.why)}"
    )
    facts = [attempt_heading(attempt)]
    if done := steps_in_words(attempt):
        facts.append(done)
    if attempt.decision is not None:
        facts.append(f"decided: {decision_in_words(attempt.decision)}")
        facts += [f"problem: {problem}" for problem in attempt.decision.problems]
    lines = "".join(f"<li>{_text(fact)}</li>" for fact in facts)
    more = "".join(part for failure in attempt.failures for part in _evidence(failure))
    return (
        f"<details{' open' if is_open else ''}><summary>{heading}</summary>"
        f"<ul>{lines}</ul>{more}</details>"
    )


def _evidence(failure: FailureSeen) -> Iterator[str]:
    who = f"{failure.node}, {failure.what}"
    if failure.traceback:
        yield _folded(f"Traceback: {_text(who)}", failure.traceback)
    for rank, stack in failure.stacks:
        yield _folded(f"Stack of rank {_text(rank)}", stack)


def _remarks(heading: str, remarks: Sequence[Remark]) -> str:
    earlier = len(remarks) - MOST_REMARKS
    items = [f"<li>{earlier} earlier ones are left out</li>"] if earlier > 0 else []
    for each in remarks[-MOST_REMARKS:]:
        line = f"{_text(words.moment(each.at))} {_text(each.what)}"
        if each.details:
            line = _folded(line, each.details)
        items.append(f"<li>{line}</li>")
    return f"<section><h2>{heading}</h2><ul>{''.join(items)}</ul></section>" if items else ""


def _list(heading: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<section><h2>{heading}</h2><ul>{items}</ul></section>" if items else ""


def _folded(heading: str, text: str) -> str:
    return f"<details><summary>{heading}</summary>{_pre(text)}</details>"


def _text(value: object) -> str:
    return escape(words.one_line(str(value)))


def _pre(text: str) -> str:
    shown = "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)
    return f"<pre>{escape(shown)}</pre>"
