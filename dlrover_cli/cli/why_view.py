"""The story of a run as lines for a terminal."""

from collections.abc import Iterator, Sequence

from dlrover_cli import words
from dlrover_cli.cli.output import styled
from dlrover_cli.cli.run_view import STYLES
from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.diagnosis.run_story import (
    Attempt,
    AttemptEnd,
    DecisionMade,
    Interruption,
    Remark,
    RunStory,
)
from dlrover_cli.diagnosis.verdict import lines_of, ranks_in_words

MOST_ATTEMPTS = 20
"""Of a run with more, the first and the last ones; the documents have them all."""
MOST_REMARKS = 20

_FOLLOWS = {
    "restart_workers": "restarting all workers",
    "restart_job": "restarting the job",
    "replace_node": "replacing the node",
    "abort": "aborting the job",
    "fail": "the job fails",
    "admit": "starting the workers again",
}
_END_STYLES = {
    AttemptEnd.SUCCEEDED: "green",
    AttemptEnd.FAILED: "red",
    AttemptEnd.INTERRUPTED: "yellow",
    AttemptEnd.RUNNING: "blue",
    AttemptEnd.UNKNOWN: "magenta",
}


def story_lines(story: RunStory) -> Iterator[str]:
    """All of it."""
    for name, value in facts_of(story):
        yield f"{styled(name.ljust(10), 'bold')} {value}"
    if story.verdict is not None:
        yield ""
        yield from map(words.printable, lines_of(story.verdict))
    if len(story.launches) > 1:
        yield from _section("Times", _last(launch_lines(story)))
    elif not story.attempts:
        yield from _section("History", _remarks(story.history))
    yield from _section("Attempts", list(_attempts(story)))
    yield from _section("Warnings", _remarks(story.warnings))
    yield from _section("Not read", [words.one_line(each) for each in story.unreadable])


def facts_of(story: RunStory) -> list[tuple[str, str]]:
    """What it is and how it ended, with what it cost; those that are known."""
    about = story.about
    state = styled(about.state.value, STYLES[about.state])
    facts = [
        ("Run", about.run_id),
        ("Job", words.one_line(about.name)),
        ("Runs on", words.one_line(f"{about.platform}, engine {about.engine}")),
        ("Ended" if about.state.is_over else "State", f"{state}{_code_and_reason(story)}"),
        ("Hint", "" if story.verdict is not None else words.one_line(story.hint)),
        ("Took", _took(story)),
        ("Goodput", goodput_in_words(story)),
        ("Lost", lost_in_words(story)),
    ]
    return [(name, value) for name, value in facts if value]


def goodput_in_words(story: RunStory) -> str:
    """The share, and the parts of the time."""
    costs = story.costs
    if costs.goodput is None and story.attempts:
        return "unknown: nobody has written down how long the last attempt ran"
    if costs.goodput is None:
        return "unknown: no events tell when workers ran" if story.launches else ""
    parts = [(costs.starting, "starting"), (costs.lost, "lost"), (costs.ending, "ending")]
    rest = ", ".join(f"{words.span(part)} {name}" for part, name in parts if part >= 0.0005)
    share = f"{costs.goodput:.0%}: {words.span(costs.useful)} of "
    return f"{share}{words.span(costs.wall)} useful" + (f"; {rest}" if rest else "")


def lost_in_words(story: RunStory) -> str:
    """To how many interruptions how much."""
    if not story.interruptions:
        return ""
    failures = sum(each.is_failure for each in story.interruptions)
    others = len(story.interruptions) - failures
    counted = [words.counted(failures, "failure")] if failures else []
    counted += [words.counted(others, "other interruption")] if others else []
    return f"{words.span(story.costs.lost)} to {' and '.join(counted)}"


def attempt_heading(attempt: Attempt) -> str:
    """When, how long, on what."""
    where = f"on {words.counted(len(attempt.nodes), 'node')} ({', '.join(attempt.nodes)})"
    ranks = sorted({span.rank for span in attempt.ranks})
    who = ranks_in_words(ranks) if ranks else "no workers"
    if ranks and attempt.world_size is not None and attempt.world_size > len(ranks):
        who += f" of {attempt.world_size}"
    lasted = f"ran {words.span(attempt.ran)}" if attempt.ready is not None else "never ran"
    if attempt.end is AttemptEnd.RUNNING:
        lasted = "runs"
    elif attempt.end is AttemptEnd.UNKNOWN:
        lasted = "ran for an unknown time"
    return words.one_line(f"{words.moment(attempt.started)}, {lasted}, {who} {where}")


def decision_in_words(decision: DecisionMade) -> str:
    """What followed, who wanted it so and why."""
    follows = _FOLLOWS.get(decision.action, decision.action.replace("_", " "))
    by = decision.decided_by
    who = f"{by}: {decision.verdict_reason}; " if by and by != "default" else ""
    strategy = f"{decision.strategy} by {by}; " if by == "default" else ""
    if by and by != "default" and decision.strategy:
        strategy = f"{decision.strategy} by "
    is_last = decision.action in ("fail", "abort")
    wait = f"; after {decision.backoff:g} s" if decision.backoff and not is_last else ""
    return words.one_line(f"{follows} ({strategy}{who}{decision.reason}{wait})")


def steps_in_words(attempt: Attempt) -> str:
    """How many steps were done, and at which rate; empty if nobody counted."""
    if attempt.steps is None:
        return ""
    done = f"{words.counted(attempt.steps, 'step')} done"
    speed = attempt.pace.steps_per_second
    return done if speed is None else f"{done}, {words.rate(speed)}"


def cost_in_words(lost: Interruption) -> str:
    """How much, and until what."""
    until = "the run was over" if lost.next_attempt is None else f"attempt {lost.next_attempt} ran"
    return f"{words.span(lost.seconds)} until {until}"


def launch_lines(story: RunStory) -> list[str]:
    """The times that a job ran, if it did so more than once."""
    return [
        words.one_line(
            f"{launch.number}  {words.moment(launch.started)}, "
            f"took {words.span(launch.ended - launch.started)}"
            + ("" if launch.exit_code is None else f", exit {launch.exit_code}")
            + (f": {launch.reason}" if launch.reason else "")
        )
        for launch in story.launches
    ]


def _attempts(story: RunStory) -> Iterator[str]:
    lost = {(each.launch, each.attempt): each for each in story.interruptions}
    shown: Sequence[Attempt] = story.attempts
    left_out = len(shown) - MOST_ATTEMPTS
    if left_out > 0:
        half = MOST_ATTEMPTS // 2
        shown = [*shown[:half], *shown[-half:]]
    for index, attempt in enumerate(shown):
        if left_out > 0 and index == MOST_ATTEMPTS // 2:
            yield f"…  {words.counted(left_out, 'more attempt')}: -o json or --html shows all"
        time = f"time {attempt.launch}, " if len(story.launches) > 1 else ""
        yield f"{attempt.number}  {time}{attempt_heading(attempt)}"
        yield from _attempt_details(attempt, lost.get((attempt.launch, attempt.number)))


def _attempt_details(attempt: Attempt, lost: Interruption | None) -> Iterator[str]:
    end = styled(attempt.end.value.ljust(11), _END_STYLES[attempt.end])
    done = steps_in_words(attempt)
    why = words.one_line(attempt.why)
    if why or attempt.end is AttemptEnd.RUNNING:
        yield f"     {end} {why}{f' ({done})' if done else ''}".rstrip()
    if attempt.decision is not None:
        yield f"     decided     {decision_in_words(attempt.decision)}"
        for problem in attempt.decision.problems:
            yield f"     problem     {words.one_line(problem)}"
    if lost is not None:
        yield f"     lost        {cost_in_words(lost)}"


def _remarks(remarks: Sequence[Remark]) -> list[str]:
    return _last([f"{words.moment(each.at)}  {words.one_line(each.what)}" for each in remarks])


def _last(lines: Sequence[str]) -> list[str]:
    if len(lines) <= MOST_REMARKS:
        return list(lines)
    return [f"… {len(lines) - MOST_REMARKS} earlier ones", *lines[-MOST_REMARKS:]]


def _section(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"\n{styled(heading, 'bold')}"
        yield from (f"  {line}" for line in lines)


def _code_and_reason(story: RunStory) -> str:
    code = story.about.exit_code
    told = ["" if code is None else f"exit {code}", words.one_line(story.reason)]
    text = ": ".join(filter(None, told))
    return f", {text}" if text else ""


def _took(story: RunStory) -> str:
    if not story.launches:
        return ""
    attempts = words.counted(len(story.attempts), "attempt") if story.attempts else ""
    so_far = " so far" if story.is_going_on else ""
    if story.about.state is RunState.LOST:
        so_far = " up to its last event"
    times = f" in {len(story.launches)} times" if len(story.launches) > 1 else ""
    return ", ".join(filter(None, (f"{words.span(story.costs.wall)}{times}{so_far}", attempts)))
