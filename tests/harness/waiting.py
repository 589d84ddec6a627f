"""Wait for something to become true, with a deadline and a sentence when it does not."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    predicate: Callable[[], T], deadline: float = 10.0, *, what: str = "", interval: float = 0.01
) -> T:
    """The first truthy answer of the predicate; an AssertionError after the deadline (seconds)."""
    end = time.monotonic() + deadline
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= end:
            name = what or getattr(predicate, "__name__", "the condition")
            raise AssertionError(f"{name} did not come true within {deadline:g} s")
        time.sleep(interval)
