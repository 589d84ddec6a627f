"""Whether a run may start on this node, for whoever has a say in it."""

from typing import Protocol


class Place(Protocol):
    """Taken before the agent starts, given back on every way out, also before `exec`."""

    def take(self, run_id: str, name: str) -> None:
        """Raises LaunchError if the run may not start here."""
        ...

    def take_again(self) -> None:
        """The whole job starts afresh: give it back and take it again, as if it came now.

        Called from another thread than the others, and never beside them. Raises LaunchError.
        """
        ...

    def give_back(self) -> None:
        """Does nothing if it is not taken, or not any more."""
        ...


class FreePlace:
    """Nobody has a say."""

    def take(self, run_id: str, name: str) -> None:
        return None

    def take_again(self) -> None:
        return None

    def give_back(self) -> None:
        return None
