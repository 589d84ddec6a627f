"""What an extension may answer: a strategy, whoever's enum it is from, or None."""

import inspect
from enum import Enum

from dlrover_cli.contracts import FailoverStrategy

_LONGEST_TEXT = 60


class NotAnAnswer(Exception):
    """The extension returned something that is no decision; the text says what it returned."""


def strategy_of(answer: object) -> FailoverStrategy | None:
    """The strategy that was meant; None is no opinion. Raises NotAnAnswer for all else.

    Members of other enums count by their name, since DLRover may be installed and have its own. A
    text or a number is refused even where it could be read: it is a mistake in the extension, and
    one that another version of it may make with a worse result.
    """
    match answer:
        case None | FailoverStrategy():
            return answer
        case Enum() if answer.name in FailoverStrategy.__members__:
            return FailoverStrategy[answer.name]
        case Enum():
            raise NotAnAnswer(f"{type(answer).__name__}.{answer.name}, which is none of {_known()}")
        case str() if answer in FailoverStrategy.__members__:
            raise NotAnAnswer(f"the string {answer!r}; return FailoverStrategy.{answer}")
        case str():
            shown = answer if len(answer) <= _LONGEST_TEXT else answer[:_LONGEST_TEXT] + "…"
            raise NotAnAnswer(f"the string {shown!r} and not a FailoverStrategy")
        case bool() | int() | float():
            raise NotAnAnswer(f"the {type(answer).__name__} {answer} and not a FailoverStrategy")
        case _ if inspect.isawaitable(answer):
            _forget(answer)
            raise NotAnAnswer(
                f"a {type(answer).__name__} and not a FailoverStrategy; "
                "the method must not be `async`"
            )
        case type():
            raise NotAnAnswer(f"the class {answer.__name__} and not a FailoverStrategy")
        case _:
            raise NotAnAnswer(f"an object of type {type(answer).__name__}, no FailoverStrategy")


def _known() -> str:
    return ", ".join(FailoverStrategy.__members__)


def _forget(awaitable: object) -> None:
    # A coroutine that nobody awaits would complain later, at some other place.
    if inspect.iscoroutine(awaitable):
        awaitable.close()
