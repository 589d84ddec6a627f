"""What the events of a run tell about it: one pure step per event, whoever reads them.

`submitted`, `owned`, `state`, `waiting`, `cleaning`, `cleaning_failed` and `cleaned` are steps. All
else is remarks. A change of state that the table of states does not allow was not made. One that
was made before it could be written says `since` when it holds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dlrover_cli.contracts.run_states import RunState
from dlrover_cli.telemetry.process_identity import ProcessIdentity

LATEST = 1e11
"""No clock shows a time so late; no date could be shown for what a damaged file may hold."""


@dataclass(frozen=True, slots=True)
class Story:
    """How far a run has come."""

    steps: int = 0
    """How many events brought it here. Of two stories of one run, that with more is the later."""
    state: RunState = RunState.PENDING
    reason: str = ""
    exit_code: int | None = None
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    submitter: ProcessIdentity | None = None
    owner: ProcessIdentity | None = None
    is_taken_over: bool = False
    """Whether the owner only stops what another one has left."""
    cleaner: ProcessIdentity | None = None
    """Who has begun to clean up and not said that it is done."""
    is_cleaned: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"state": self.state.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Story":
        """The story that `to_json` has written."""
        told = {name: _process(data[name]) for name in ("submitter", "owner", "cleaner")}
        return cls(**{**data, **told, "state": RunState(data["state"])})

    def after(self, event: Mapping[str, Any]) -> "Story":
        """The story with one more event; as it is if the event is none of its steps."""
        try:
            told = self._told(event["kind"], event["data"], _moment(event["time"]))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return self  # written by another version, or by nobody who should have
        return self if told is None else replace(told, steps=self.steps + 1)

    def _told(self, kind: str, data: Mapping[str, Any], at: float) -> "Story | None":
        match kind:
            case "submitted":
                submitter = _process(data.get("by"))
                return replace(self, submitted=at, submitter=submitter)
            case "owned":
                owner = ProcessIdentity.from_json(data["owner"])
                return replace(self, owner=owner, is_taken_over=self.state is RunState.LOST)
            case "state":
                return self.moved(
                    RunState(data["to"]),
                    str(data.get("reason") or ""),
                    _exit_code(data.get("exit_code")),
                    _moment(data.get("since", at)),
                )
            case "waiting":
                is_pending = self.state is RunState.PENDING
                return replace(self, reason=str(data["reason"])) if is_pending else None
            case "cleaning":
                return replace(self, cleaner=ProcessIdentity.from_json(data["by"]))
            case "cleaning_failed":
                return replace(self, cleaner=None)
            case "cleaned":
                return replace(self, cleaner=None, is_cleaned=True)
            case _:
                return None

    def moved(self, to: RunState, reason: str, exit_code: int | None, at: float) -> "Story | None":
        """The story in its next state, None if it cannot get there."""
        if not self.state.may_become(to):
            return None
        started, ended = times_of(to, at, self.started)
        moved = replace(
            self, state=to, reason=reason, exit_code=exit_code, started=started, ended=ended
        )
        if to is RunState.PENDING:  # what it makes when it runs again has to be cleaned up again
            return replace(moved, cleaner=None, is_cleaned=False)
        return moved


def times_of(to: RunState, at: float, started: float | None) -> tuple[float | None, float | None]:
    """When a run that becomes ``to`` was started, and when it ended."""
    if to is RunState.PENDING:
        return None, None
    if to is RunState.STARTING:
        return at, None
    return started, at if to.is_over else None


def _moment(value: Any) -> float:
    moment = float(value)
    if not abs(moment) < LATEST:
        raise ValueError(f"{value!r} is no time")
    return moment


def _exit_code(value: Any) -> int | None:
    if value is not None and not abs(int(value)) < 1 << 32:
        raise ValueError(f"{value!r} is no exit code")
    return None if value is None else int(value)


def _process(data: Any) -> ProcessIdentity | None:
    return None if data is None else ProcessIdentity.from_json(data)
