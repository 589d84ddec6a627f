"""The places of runs in the foreground, written down: whoever is killed leaves them to the next.

<state>/places/<place>.json     who holds it, and which services were told of it

A place is here before a service hears of it, and until every service has heard that it is free. One
whose process was killed is given back by the next session, of whomever, that asks the same
services.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dlrover_cli.scheduling.model import TaskStatus, TaskView
from dlrover_cli.scheduling.plugin import Indifferent, Refusal
from dlrover_cli.scheduling.settings import ExtenderSettings
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import write_json_atomically

SCHEMA_VERSION = 1


class KeptPlaces:
    """Those of one state directory and one choice of services."""

    def __init__(
        self, state: Path, extenders: Sequence[ExtenderSettings], say: Callable[[str], None]
    ) -> None:
        self._directory = state / "places"
        self._services = [str(each.address) for each in extenders]
        self._say = say

    def lost(self) -> list[TaskView]:
        """What processes of this host held that are gone now."""
        found: list[TaskView] = []
        for path in self._files():
            with suppress(OSError, ValueError, KeyError, TypeError):  # of another version, or cut
                document = json.loads(path.read_bytes())
                owner = ProcessIdentity.from_json(document["owner"])
                is_lost = owner.is_here and not owner.is_alive()
                if is_lost and document["services"] == self._services:
                    found.append(_task(document["task"]))
        return found

    def keep(self, task: TaskView) -> None:
        """On a disk that takes nothing, a place is held without being written down."""
        if not self._services:
            return  # nobody hears of it
        document = {
            "schema_version": SCHEMA_VERSION,
            "owner": ProcessIdentity.own().to_json(),
            "services": self._services,
            "task": asdict(task),
        }
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_json_atomically(self._path(task), document)
        except OSError as error:
            self._say(f"if this is killed, its place is not given back: {error.strerror}")

    def note_session(self, released: Sequence[TaskView], unheard: Sequence[TaskView]) -> None:
        """All have heard of what was released, but for some, and for what was taken back in it."""
        places = {task.place for task in released}
        owed = {task.place for task in unheard}
        self.forget(task for task in released if task.place not in owed)
        for task in unheard:
            if task.place not in places:
                self.keep(task)

    def forget(self, tasks: Iterable[TaskView]) -> None:
        """All have heard that these are free."""
        for task in tasks:
            with suppress(OSError):
                self._path(task).unlink()

    def _files(self) -> list[Path]:
        if not self._services:
            return []
        try:
            with os.scandir(self._directory) as entries:
                return sorted(Path(each.path) for each in entries if each.name.endswith(".json"))
        except OSError:
            return []

    def _path(self, task: TaskView) -> Path:
        return self._directory / f"{task.place}.json"


class PlaceKeeper(Indifferent):
    """Writes a place down before the others of a session hear of it; asked before them."""

    def __init__(self, places: KeptPlaces) -> None:
        self._places = places
        self.taken: dict[str, TaskView] = {}
        """What was given in this session, and not taken back."""

    def allocated(self, task: TaskView) -> Refusal | None:
        self._places.keep(task)
        self.taken[task.place] = task
        return None

    def deallocated(self, task: TaskView) -> None:
        """Taken back in the session that gave it. What was held before may not be heard by all."""
        if self.taken.pop(task.place, None) is not None:
            self._places.forget([task])


def _task(document: dict[str, Any]) -> TaskView:
    task = TaskView(**{**document, "status": TaskStatus(document["status"])})
    return replace(task, status=TaskStatus.RUNNING)
