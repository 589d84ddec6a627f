"""How long to wait before a restart: pure, no clock.

An attempt that ends soon after it started, without a step, will most likely do so again at once:
forty such attempts fit into two seconds, and a budget of restarts would be gone before a passing
trouble has passed. So from the second one in a row on there is a wait, and each doubles it; after
the first the restart is immediate. Whoever decided on the failure may name a wait of their own, and
that one counts.
"""

from dataclasses import dataclass

SHORT_LIFE = 10.0
FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before the next attempt, and the count to hand in after it."""

    seconds: float
    fruitless_in_a_row: int


def backoff(
    *,
    lifetime: float,
    steps: int | None,
    fruitless_before: int,
    asked: float | None = None,
) -> Backoff:
    """What an attempt that just failed leads to.

    `lifetime` is how many seconds it ran, `steps` what it gained (None where nobody counted),
    `fruitless_before` how many fruitless attempts came right before it, and `asked` the wait that
    the adviser wants.
    """
    in_a_row = fruitless_before + 1 if is_fruitless(lifetime, steps) else 0
    if asked is not None:
        return Backoff(asked, in_a_row)
    return Backoff(_wait(in_a_row), in_a_row)


def is_fruitless(lifetime: float, steps: int | None) -> bool:
    """Whether an attempt ended early and nothing is known to have come of it."""
    return lifetime < SHORT_LIFE and not steps


def _wait(in_a_row: int) -> float:
    if in_a_row < 2:
        return 0.0
    doublings = min(in_a_row - 2, 16)  # past the longest wait, and far from overflowing
    return min(FIRST_WAIT * 2.0**doublings, LONGEST_WAIT)
