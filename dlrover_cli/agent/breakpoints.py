"""Telling a person who has come to a breakpoint, and how to get a prompt of his own there."""

from collections.abc import Callable

from dlrover_cli.diagnosis.verdict import ranks_in_words
from dlrover_cli.telemetry.live import NodeSample


class BreakpointTeller:
    """Looks at the samples of a node, and says it once in an attempt."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: int | None = None

    def __call__(self, sample: NodeSample) -> None:
        ranks = [rank.global_rank for rank in sample.ranks if rank.at_breakpoint]
        if not ranks or self._told == sample.attempt:
            return
        self._told = sample.attempt
        who = f"{ranks_in_words(ranks)} {'has' if len(ranks) == 1 else 'have'}"
        self._say(
            f"{who} come to a breakpoint(), where all ranks read the same stdin; "
            f"--debug_rank {ranks[0]} gives the terminal to that one alone"
        )
