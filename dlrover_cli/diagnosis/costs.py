"""Where the time of a run went: starting, useful, lost to interruptions, ending. Pure.

Useful is the time for which all workers of an attempt ran, up to its failure or its good end.
"""

from collections.abc import Sequence

from dlrover_cli.diagnosis.run_story import Attempt, AttemptEnd, Costs, Interruption, Launch


def account(
    attempts: Sequence[Attempt], launches: Sequence[Launch]
) -> tuple[Costs, tuple[Interruption, ...]]:
    """What the time was spent on, and each interruption with what it has cost."""
    wall = starting = useful = ending = 0.0
    interruptions: list[Interruption] = []
    for launch in launches:
        cursor, cause = launch.started, None
        for attempt in (each for each in attempts if each.launch == launch.number):
            begin, stop = _bounds(attempt, cursor, launch.ended)
            if cause is None:
                starting += begin - cursor
            else:
                interruptions.append(_interruption(cause, cursor, begin, attempt.number))
            useful += stop - begin
            cursor, cause = stop, attempt
        rest = launch.ended - cursor
        if cause is not None and cause.end in (AttemptEnd.FAILED, AttemptEnd.INTERRUPTED):
            interruptions.append(_interruption(cause, cursor, launch.ended, None))
        elif cause is None:
            starting += rest
        else:
            ending += rest
        wall += launch.ended - launch.started
    lost = sum(each.seconds for each in interruptions)
    # The last thing that a killed run has told may be days before its end.
    is_known = bool(attempts) and attempts[-1].end is not AttemptEnd.UNKNOWN
    goodput = useful / wall if wall > 0 and is_known else None
    return Costs(wall, starting, useful, lost, ending, goodput), tuple(interruptions)


def _bounds(attempt: Attempt, earliest: float, latest: float) -> tuple[float, float]:
    """From when to when it was of use; the same time twice if it never was."""
    ended = latest if attempt.ended is None else attempt.ended
    stop = min(max(ended, earliest), latest)
    if attempt.ready is None:
        return stop, stop
    begin = min(max(attempt.ready, earliest), stop)
    return begin, stop


def _interruption(
    cause: Attempt, since: float, until: float, following: int | None
) -> Interruption:
    return Interruption(
        launch=cause.launch,
        attempt=cause.number,
        at=since,
        seconds=until - since,
        is_failure=cause.end is AttemptEnd.FAILED,
        what=cause.why,
        next_attempt=following,
    )
