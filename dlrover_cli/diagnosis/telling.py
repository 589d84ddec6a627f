"""Tells the story of a run from its papers. Pure: the clock is an argument."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.diagnosis.attempts import attempts_of
from dlrover_cli.diagnosis.costs import account
from dlrover_cli.diagnosis.papers import Event, Papers, text_in
from dlrover_cli.diagnosis.remarks import history_in, warnings_in
from dlrover_cli.diagnosis.run_story import About, Launch, RunStory
from dlrover_cli.diagnosis.verdict import Verdict, verdict_from

_AT_WORK = (RunState.STARTING, RunState.RUNNING, RunState.STOPPING)


def tell(papers: Papers, about: About, *, now: float) -> RunStory:
    """The story up to ``now``, whatever is missing of it."""
    is_going_on = about.state in _AT_WORK
    last = max(_last_sign(papers), about.started or 0.0)
    end = now if is_going_on else last
    if not is_going_on and about.state is not RunState.LOST and about.ended is not None:
        end = about.ended
    launches = _launches(papers, about, end)
    attempts = attempts_of(
        papers,
        launches,
        is_going_on=is_going_on,
        has_succeeded=about.state is RunState.FINISHED and about.exit_code in (0, None),
    )
    costs, interruptions = account(attempts, launches)
    everything = [event for events in papers.nodes.values() for event in events]
    result = papers.result
    # Of a job on many nodes; if it has recovered, what a node was replaced for is not its end.
    has_failed = about.state in (RunState.FAILED, RunState.LOST)
    return RunStory(
        about=about,
        is_going_on=is_going_on,
        outcome=text_in(result, "outcome"),
        reason=about.reason or text_in(result, "reason"),
        hint=text_in(result, "hint"),
        verdict=_verdict_in([result, *(papers.results.values() if has_failed else ())]),
        launches=launches,
        attempts=attempts,
        interruptions=interruptions,
        costs=costs,
        warnings=warnings_in([*everything, *papers.life]),
        history=history_in(papers.life),
        unreadable=papers.unreadable,
    )


def _last_sign(papers: Papers) -> float:
    """When anybody wrote anything, but for whoever found the run lost."""
    lost = RunState.LOST.value
    life = [
        event.time
        for event in papers.life
        if event.kind in ("state", "occurrence") and event.text("to") != lost
    ]
    return max(
        [*life, *(event.time for each in papers.nodes.values() for event in each)], default=0
    )


def _launches(papers: Papers, about: About, end: float) -> tuple[Launch, ...]:
    """Each time that the job ran."""
    done: list[Launch] = []
    current: Launch | None = None
    for event in papers.life:
        match event.kind, event.text("to"):
            case "state", "STARTING":
                since = event.number("since")
                started = event.time if since is None else since
                current = Launch(len(done), started, end, None, "")
            case "occurrence", _ if current is not None:
                code = event.integer("exit_code")
                current = replace(current, exit_code=code, reason=event.text("reason"))
            case "state", to if current is not None and (to == "PENDING" or _is_end(to)):
                done.append(_closed(current, event))
                current = None
            case _:
                pass
    if current is not None:
        done.append(replace(current, ended=max(current.started, end)))
    if not done:
        done += _only_launch(papers, about, end)
    return tuple(done)


def _is_end(state: str) -> bool:
    return state in RunState.__members__ and RunState[state].is_over and state != "LOST"


def _closed(launch: Launch, event: Event) -> Launch:
    ended = max(launch.started, event.time)
    if event.text("to") == "PENDING":
        # Of a periodic job, the reason is when it runs next.
        reason = launch.reason if launch.exit_code is not None else event.text("reason")
        return replace(launch, ended=ended, reason=reason)
    code = launch.exit_code if launch.exit_code is not None else event.integer("exit_code")
    return replace(launch, ended=ended, exit_code=code, reason=event.text("reason"))


def _only_launch(papers: Papers, about: About, end: float) -> list[Launch]:
    """Of a run whose own journal does not tell when it was started."""
    times = [event.time for events in papers.nodes.values() for event in events]
    start = min([*times, *([] if about.started is None else [about.started])], default=None)
    if start is None:
        return []
    return [Launch(0, start, max(start, end), about.exit_code, about.reason)]


def _verdict_in(results: Iterable[Mapping[str, Any]]) -> Verdict | None:
    """The verdict that the launcher has written down, if it is one."""
    kept = (result.get("verdict") for result in results)
    data = next((each for each in kept if isinstance(each, dict)), None)
    if data is None:
        return None
    try:
        return verdict_from(data)
    except (KeyError, TypeError, ValueError):  # of another version, or damaged
        return None
