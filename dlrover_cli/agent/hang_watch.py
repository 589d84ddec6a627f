"""Looking after the progress of one attempt: this node's ranks, and what other nodes tell."""

import time

from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.board import ProgressBoard
from dlrover_cli.agent.progress import HangSettings, Look, ProgressWatch
from dlrover_cli.agent.rounds import Round


class HangWatch:
    """The progress of one attempt. Without one there is nothing to see."""

    def __init__(
        self, settings: HangSettings, attempt: RunningAttempt | None, round_: Round | None
    ) -> None:
        self._attempt = attempt
        self._watch = ProgressWatch(settings, time.monotonic())
        self._board: ProgressBoard | None = None
        if attempt is None or round_ is None or round_.world_size == 1 or settings.timeout <= 0:
            return
        self._board = ProgressBoard(
            round_.control, round_.rank, round_.world_size, settings.timeout, attempt.last_moved
        )

    def look(self) -> Look:
        """What to think of the running workers now."""
        if self._attempt is None:
            return Look()
        others = 0.0 if self._board is None else self._board.others_moved_at
        return self._watch.look(self._attempt.activities(others), time.monotonic())

    def stop(self) -> None:
        """Stop talking to the other nodes."""
        if self._board is not None:
            self._board.stop()
