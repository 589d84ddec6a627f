"""What an extension may answer, and the words for what it may not."""

import asyncio
import enum
from collections.abc import Iterator

import pytest

from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.failover.answers import NotAnAnswer, strategy_of


class Theirs(enum.Enum):
    NODE_FAILOVER = 1
    SHRUG = 2


class Number(enum.IntEnum):
    GLOBAL_FAILOVER = 0


class Bits(enum.Flag):
    A = 1
    B = 2


@pytest.mark.parametrize("strategy", FailoverStrategy)
def test_a_strategy_is_itself(strategy: FailoverStrategy) -> None:
    assert strategy_of(strategy) is strategy


def test_none_is_no_opinion() -> None:
    assert strategy_of(None) is None


def test_members_of_other_enums_count_by_their_name() -> None:
    assert strategy_of(Theirs.NODE_FAILOVER) is FailoverStrategy.NODE_FAILOVER
    assert strategy_of(Number.GLOBAL_FAILOVER) is FailoverStrategy.GLOBAL_FAILOVER


def generator() -> Iterator[FailoverStrategy]:
    yield FailoverStrategy.NODE_FAILOVER


async def coroutine() -> FailoverStrategy:
    return FailoverStrategy.NODE_FAILOVER


@pytest.mark.parametrize(
    "answer, words",
    [
        ("NODE_FAILOVER", "the string 'NODE_FAILOVER'; return FailoverStrategy.NODE_FAILOVER"),
        ("node", "the string 'node' and not a FailoverStrategy"),
        ("x" * 1000, f"the string '{'x' * 60}…' and not a FailoverStrategy"),
        (2, "the int 2 and not a FailoverStrategy"),
        (True, "the bool True and not a FailoverStrategy"),
        (0.5, "the float 0.5 and not a FailoverStrategy"),
        (Theirs.SHRUG, "Theirs.SHRUG, which is none of NORMAL_FAILOVER, NODE_FAILOVER, "),
        (Bits.A | Bits.B, "Bits.A|B, which is none of "),
        (FailoverStrategy, "the class FailoverStrategy and not a FailoverStrategy"),
        ([FailoverStrategy.NODE_FAILOVER], "an object of type list, no FailoverStrategy"),
        (strategy_of, "an object of type function, no FailoverStrategy"),
        (generator(), "an object of type generator, no FailoverStrategy"),
    ],
)
def test_all_else_is_refused_in_words(answer: object, words: str) -> None:
    with pytest.raises(NotAnAnswer) as caught:
        strategy_of(answer)
    assert str(caught.value).startswith(words)


@pytest.mark.filterwarnings("error")
def test_a_coroutine_is_refused_and_not_left_to_complain() -> None:
    with pytest.raises(NotAnAnswer, match=r"^a coroutine and not a FailoverStrategy; the method"):
        strategy_of(coroutine())


def test_a_future_is_refused() -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(NotAnAnswer, match="must not be `async`"):
            strategy_of(loop.create_future())
    finally:
        loop.close()
