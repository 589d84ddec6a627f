"""From the events of all nodes to attempts: who ran, what failed, what was decided. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from dlrover_cli.diagnosis.papers import Event, Papers, integer_in, readable
from dlrover_cli.diagnosis.run_story import (
    Attempt,
    AttemptEnd,
    DecisionMade,
    FailureSeen,
    Launch,
    RankSpan,
)
from dlrover_cli.diagnosis.step_rates import pace_of
from dlrover_cli.diagnosis.verdict import describe

_NO_FAILURE = ("membership", "operator")
_STOPS = ("signal", "workers_stopping", "taken_out")
_LOSSES = ("agent_lost", "node_unreachable")

Key = tuple[int, int]
"""Of an attempt: which time of the job, and its number."""


def attempts_of(
    papers: Papers, launches: Sequence[Launch], *, is_going_on: bool, has_succeeded: bool
) -> tuple[Attempt, ...]:
    """All attempts, in their order. ``has_succeeded`` is about the run as a whole."""
    groups: dict[Key, list[Event]] = defaultdict(list)
    losses = []
    for events in papers.nodes.values():
        launch = _launch_of(events, launches)
        losses += [event for event in events if event.kind in _LOSSES]
        for event in events:
            if event.attempt is not None and event.attempt >= 0:
                groups[launch, event.attempt].append(event)
    ordered = sorted(groups)
    starts = {key: _start_of(groups[key]) for key in ordered}
    told = []
    for key, following in zip_longest(ordered, ordered[1:]):
        until = None if following is None else starts[following]
        end_of_launch = next((each.ended for each in launches if each.number == key[0]), None)
        told.append(
            _attempt(
                key,
                sorted(groups[key], key=lambda event: event.time),
                papers,
                lost_at=_first_between(losses, starts[key], until),
                limit=until if following and following[0] == key[0] else end_of_launch,
                is_going_on=is_going_on and following is None,
                has_succeeded=has_succeeded and following is None,
            )
        )
    return tuple(told)


def _launch_of(events: Sequence[Event], launches: Sequence[Launch]) -> int:
    if not events:
        return 0
    begun = [each.number for each in launches if each.started <= events[0].time]
    return begun[-1] if begun else 0


def _start_of(events: Iterable[Event]) -> float:
    by_kind: dict[str, float] = {}
    for event in events:
        by_kind[event.kind] = min(event.time, by_kind.get(event.kind, event.time))
    for kind in ("workers_started", "rendezvous_completed"):
        if kind in by_kind:
            return by_kind[kind]
    return min(by_kind.values())


def _first_between(events: Iterable[Event], start: float, until: float | None) -> float | None:
    times = [
        each.time for each in events if start <= each.time and (until is None or each.time < until)
    ]
    return min(times, default=None)


def _attempt(
    key: Key,
    events: Sequence[Event],
    papers: Papers,
    *,
    lost_at: float | None,
    limit: float | None,
    is_going_on: bool,
    has_succeeded: bool,
) -> Attempt:
    start = _start_of(events)
    decided = next((event for event in events if event.kind == "decision"), None)
    failures = _failures(events, papers, start, decided)
    spans = _spans(events)
    end, why, ended = _end(
        events, spans, failures, decided, is_going_on=is_going_on, has_succeeded=has_succeeded
    )
    if lost_at is not None and end in (AttemptEnd.INTERRUPTED, AttemptEnd.UNKNOWN):
        ended = lost_at if ended is None else min(ended, lost_at)
    if ended is None and end is not AttemptEnd.RUNNING:
        ended = limit if limit is not None else events[-1].time
    started = [event for event in events if event.kind == "workers_started"]
    met = [event for event in events if event.kind == "rendezvous_completed"]
    missing = {event.node for event in met} - {event.node for event in started}
    first = started[0] if started else None
    return Attempt(
        launch=key[0],
        number=key[1],
        started=start,
        ready=max(event.time for event in started) if started and not missing else None,
        ended=ended,
        end=end,
        why=why,
        world_size=next(filter(None, (event.integer("world_size") for event in met)), None),
        nodes=tuple(sorted({event.node for event in events})),
        ranks=spans,
        restart_count=None if first is None else first.integer("restart_count"),
        generation=None if first is None else first.integer("generation"),
        failures=failures,
        decision=None if decided is None else _decision(decided),
        pace=pace_of(papers, key[1], start, ended, is_good=end is AttemptEnd.SUCCEEDED),
    )


def _failures(
    events: Iterable[Event], papers: Papers, start: float, decided: Event | None
) -> tuple[FailureSeen, ...]:
    """The one that was decided about first, then in the order of time."""
    chosen = None if decided is None else decided.integer("node_rank")
    seen = [
        (event.node_rank != chosen, failure.at, failure)
        for event in events
        if event.kind == "failure"
        for failure in [_failure(event, papers, start)]
    ]
    return tuple(failure for *_, failure in sorted(seen, key=lambda each: each[:2]))


def _failure(event: Event, papers: Papers, start: float) -> FailureSeen:
    number, rank = event.integer("number"), event.integer("root_rank")
    kind = event.text("failure_kind") or "failure"
    who = "a worker" if rank is None else f"rank {rank}"
    info = None if number is None else papers.failures.get((event.node, number))
    if info is None or info.attempt != event.attempt:
        return FailureSeen(event.node, number, rank, kind, event.time, f"{who} failed ({kind})")
    root = info.root_cause
    at, what, traceback = event.time, f"{who} failed ({kind})", ""
    if root is not None:
        what = f"rank {root.global_rank} {describe(root, info.kind)}"
        traceback = readable(root.traceback)
        if start <= root.time_ns / 1e9 <= event.time:  # the clocks agree
            at = root.time_ns / 1e9
    stacks = tuple((readable(each), readable(text)) for each, text in info.stacks.items())
    return FailureSeen(
        event.node, number, rank, kind, at, readable(what), traceback, stacks, info.steps
    )


def _spans(events: Sequence[Event]) -> tuple[RankSpan, ...]:
    exits = {
        (event.node, event.integer("global_rank")): event
        for event in events
        if event.kind == "worker_exited"
    }
    spans = []
    for event in events:
        workers = event.data.get("workers") if event.kind == "workers_started" else None
        for worker in workers if isinstance(workers, list) else ():
            rank = integer_in(worker, "global_rank") if isinstance(worker, dict) else None
            if rank is None or rank < 0:
                continue
            left = exits.get((event.node, rank))
            ended = None if left is None else max(left.time, event.time)
            status = None if left is None else left.integer("status")
            pid = integer_in(worker, "pid")
            spans.append(RankSpan(rank, event.node, pid, event.time, ended, status))
    return tuple(sorted(spans, key=lambda span: (span.rank, span.started)))


def _end(
    events: Sequence[Event],
    spans: Sequence[RankSpan],
    failures: Sequence[FailureSeen],
    decided: Event | None,
    *,
    is_going_on: bool,
    has_succeeded: bool,
) -> tuple[AttemptEnd, str, float | None]:
    """How it ended, why, and when it stopped to be of use, if that is known."""
    failed_at = min((failure.at for failure in failures), default=None)
    if decided is not None:
        at = decided.time if failed_at is None else min(decided.time, failed_at)
        if decided.text("trigger") in _NO_FAILURE:
            return AttemptEnd.INTERRUPTED, decided.text("reason"), at
        what = failures[0].what if failures else decided.text("reason")
        return AttemptEnd.FAILED, what, at
    if failed_at is not None:
        return AttemptEnd.FAILED, failures[0].what, failed_at
    exits = [span.ended for span in spans if span.ended is not None]
    if spans and all(span.status == 0 for span in spans):
        return AttemptEnd.SUCCEEDED, "every worker succeeded", max(exits)
    stop = next((event for event in events if event.kind in _STOPS), None)
    if stop is not None:
        return AttemptEnd.INTERRUPTED, _stop_in_words(stop), stop.time
    if is_going_on:
        return AttemptEnd.RUNNING, "", None
    if has_succeeded:
        return AttemptEnd.SUCCEEDED, "the run succeeded", max(exits, default=None)
    return AttemptEnd.UNKNOWN, "nobody has written down its end", None


def _stop_in_words(event: Event) -> str:
    match event.kind:
        case "signal":
            return f"the launcher received {event.text('signal')}"
        case "taken_out":
            return event.text("reason") or "the node was taken out"
        case _:
            return f"its workers were stopped with {event.text('signal')}"


def _decision(event: Event) -> DecisionMade:
    data: Mapping[str, object] = event.data
    return DecisionMade(
        at=event.time,
        action=readable(data.get("action") or ""),
        reason=event.text("reason"),
        strategy=event.text("strategy"),
        decided_by=event.text("decided_by"),
        verdict_reason=event.text("verdict_reason"),
        problems=event.texts("problems"),
        seconds=event.number("seconds"),
        backoff=event.number("backoff"),
    )
