"""What the coordinator of a round makes of those who come at the same time."""

import time

from dlrover_cli.rendezvous.coordinator import Coordinator
from dlrover_cli.rendezvous.forming import Rules
from tests.rendezvous.nodes import Job

BOUNDS = (3, 3)
RULES = Rules(*BOUNDS, keep_alive_interval=1000.0)


def test_one_who_was_read_before_it_had_a_ticket_tells_of_those_in_between(job: Job) -> None:
    """They ring for nobody: only the last one to get a ticket does."""
    job.board.log(1, {"node": "first", "bounds": BOUNDS})
    assert job.board.take_ticket(1) == 1
    now = time.monotonic()
    coordinator = Coordinator(
        job.board,
        "first",
        1,
        RULES,
        None,
        lambda _: None,
        lambda _: None,
        now=now,
        takes_over=False,
    )
    try:
        job.board.log(1, {"node": "last", "bounds": BOUNDS})
        coordinator.step(now)
        job.board.log(1, {"node": "between", "bounds": BOUNDS})
        assert job.board.take_ticket(1) == 2
        coordinator.hear({"kind": "arrived", "ticket": job.board.take_ticket(1)}, now)
        coordinator.step(now)
        assert coordinator.count == 3
    finally:
        coordinator.stop()
