"""The order in which advisers are asked: the first opinion is final, NORMAL the last word."""

from collections.abc import Sequence

from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy
from dlrover_cli.failover.advice import Adviser, History, Verdict

DEFAULT = Verdict(FailoverStrategy.NORMAL_FAILOVER, "default", "nobody had another opinion")


class Chain:
    """Asks each adviser in turn. Blocks as long as they do; never raises."""

    def __init__(self, advisers: Sequence[Adviser] = ()) -> None:
        self._advisers = tuple(advisers)

    def ask(self, info: AgentFailureInfo, history: History) -> Verdict:
        """The first opinion; NORMAL if nobody has one."""
        for adviser in self._advisers:
            verdict = adviser.advise(info, history)
            if verdict is not None:
                return verdict
        return DEFAULT

    def close(self) -> None:
        """Close every adviser."""
        for adviser in self._advisers:
            adviser.close()
