"""How fast an attempt went: from the samples of its nodes to spans of a steady rate. Pure.

A rate is measured from one sample in which a step was done to the next one, so that a training with
slow steps has a low rate and not one that jumps. Of a job on many nodes it is that of the node with
the lowest rank, by its typical worker: workers that train together take their steps together.
"""

from collections.abc import Iterable, Sequence
from statistics import median

from dlrover_cli.diagnosis.papers import Papers, Sample
from dlrover_cli.diagnosis.run_story import Pace, StepSpan

MOST_SPANS = 240
"""Of one attempt; more of them could not be told apart in a plot."""

_STALL_SECONDS = 5.0
_SHORTEST_SECONDS = 0.7


def pace_of(
    papers: Papers, attempt: int, begun: float, ended: float | None, *, is_good: bool
) -> Pace:
    """What the samples tell about one attempt that lasted from ``begun`` to ``ended``.

    If its end was good, workers that took no more steps before it were done.
    """
    nodes: list[list[Sample]] = []
    for samples in papers.samples.values():
        mine = [each for each in samples if each.attempt == attempt and _is_in(each, begun, ended)]
        if mine:
            nodes.append(sorted(mine, key=lambda each: each.time))
    if not nodes:
        return Pace()
    furthest = max(max(samples[-1].steps.values(), default=0) for samples in nodes)
    spans = _spans(min(nodes, key=lambda samples: min(samples[0].steps, default=0)))
    average = _average(spans)
    if not is_good:
        spans += _standstill(spans, max(samples[-1].time for samples in nodes))
    return Pace(furthest or None, average, tuple(_fewer(spans)))


def _is_in(sample: Sample, begun: float, ended: float | None) -> bool:
    """A periodic job has an attempt of this number each time."""
    return begun <= sample.time and (ended is None or sample.time <= ended + _STALL_SECONDS)


def _spans(samples: Sequence[Sample]) -> list[StepSpan]:
    spans: list[StepSpan] = []
    begun: tuple[float, float] | None = None
    for sample in samples:
        steps = median(sample.steps.values()) if sample.steps else 0
        if begun is None:
            begun = (sample.time, steps) if steps > 0 else None
        elif steps > begun[1] and sample.time > begun[0]:
            span = StepSpan(begun[0], sample.time, steps - begun[1])
            # The last sample comes when the attempt ends, shortly after another one.
            if spans and span.until - span.since < _SHORTEST_SECONDS:
                span = _together([spans.pop(), span])
            spans.append(span)
            begun = (sample.time, steps)
    return spans


def _standstill(spans: Sequence[StepSpan], last: float) -> list[StepSpan]:
    """The time after the last step, if that is longer than steps have taken to come."""
    if not spans:
        return []
    usual = max(each.until - each.since for each in spans)
    stands = last - spans[-1].until > max(_STALL_SECONDS, 3 * usual)
    return [StepSpan(spans[-1].until, last, 0)] if stands else []


def _average(spans: Sequence[StepSpan]) -> float | None:
    if not spans:
        return None
    return sum(each.steps for each in spans) / (spans[-1].until - spans[0].since)


def _fewer(spans: Sequence[StepSpan]) -> Iterable[StepSpan]:
    """Neighbours together, if there are too many."""
    size = -(-len(spans) // MOST_SPANS) or 1
    for start in range(0, len(spans), size):
        some = spans[start : start + size]
        yield _together(some)


def _together(spans: Sequence[StepSpan]) -> StepSpan:
    return StepSpan(spans[0].since, spans[-1].until, sum(each.steps for each in spans))
