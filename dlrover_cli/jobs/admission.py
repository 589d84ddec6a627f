"""Who decides when a submitted run may start: the hook for a scheduler, which jobs know nothing of.

A submission that has an `Admittance` gets runners that have a `Gate`, but for jobs that ask by
themselves. Without one a run starts as soon as those that it comes after have ended.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from dlrover_cli.contracts.jobs import BaseJob, BaseJobConfig
from dlrover_cli.jobs.record import RunRecord


class Admittance(Protocol):
    """What a submission has to know."""

    @property
    def runner(self) -> str:
        """The module that is run as the runner of each run; it makes the gate."""
        ...

    @property
    def file(self) -> str:
        """What the runner needs to make it; kept in ``job.json``."""
        ...

    def admit(self, config: BaseJobConfig, place: str) -> bool:
        """Whether its run waits at a gate; else the job asks by itself, as its config then says.

        Raises UsageError if this job could never be let in; ``place`` is where it is written.
        """
        ...


class Gate(Protocol):
    """What a run goes through each time that it starts. Belongs to the runner's main thread."""

    def enter(self, interrupting: Callable[[], AbstractContextManager[None]]) -> None:
        """Return when the run may start. Waits only inside of ``interrupting``."""
        ...

    def why_it_makes_room(self) -> str:
        """For a run that was let in and has to end for another: the reason."""
        ...

    def leave(self) -> None:
        """Give the place back, if the run has one, and let others come in."""
        ...


class OpenGate:
    """Every run may start at once."""

    def enter(self, interrupting: Callable[[], AbstractContextManager[None]]) -> None:
        return None

    def why_it_makes_room(self) -> str:
        return "asked to make room"

    def leave(self) -> None:
        return None


MakeGate = Callable[[RunRecord, BaseJob, Callable[[str], None]], Gate]


def open_gate(record: RunRecord, job: BaseJob, say: Callable[[str], None]) -> Gate:
    return OpenGate()
