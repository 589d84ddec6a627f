"""What is asked of a live job and what it answers: one line of JSON each, both bounded."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Self

SCHEMA_VERSION = 1
LONGEST_REQUEST = 1 << 16
LONGEST_ANSWER = 1 << 26
LONGEST_WAIT = 60.0
"""Seconds that whoever asks can give the workers to show their stacks."""

NATIVE_SECONDS = 10.0
"""What py-spy may take for one worker; it looks at four of a node at a time."""
_MOST_RANKS = 10_000
_NO_PLACE = "[cut: the stacks of this node take too much place; ask for fewer with --rank]"


class Command(Enum):
    """What can be asked for."""

    STACKS = "stacks"
    RESTART = "restart"
    ABORT = "abort"
    NODE_FAILOVER = "node-failover"
    DUMP = "dump"

    @property
    def changes_the_job(self) -> bool:
        return self in (Command.RESTART, Command.ABORT, Command.NODE_FAILOVER)


_DEEDS = {
    Command.RESTART: "restarted by {} with dlrover-job restart",
    Command.ABORT: "aborted by {} with dlrover-job abort",
    Command.NODE_FAILOVER: "asked for by {} with dlrover-job node-failover",
}


@dataclass(frozen=True, slots=True)
class By:
    """Who asks, as the kernel of their host tells it."""

    uid: int
    pid: int
    user: str
    host: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(int(data["uid"]), int(data["pid"]), str(data["user"]), str(data["host"]))


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Who asks is no part of it: nobody is taken at their word for that."""

    command: Command
    node: int | None = None
    """The rank of a node; None for the one that is asked."""
    ranks: tuple[int, ...] = ()
    """The workers that are meant; none means all."""
    native: bool = False
    seconds: float = 0.8
    """How long workers may take to show their stacks."""

    @property
    def patience(self) -> float:
        """Seconds that a node may take to answer."""
        return self.seconds + (2 * NATIVE_SECONDS if self.native else 0.0)

    def to_json(self) -> dict[str, Any]:
        fields = {**asdict(self), "command": self.command.value, "ranks": list(self.ranks)}
        return {"schema_version": SCHEMA_VERSION, **fields}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises ValueError with a sentence for what is no request."""
        if not isinstance(data, dict):
            raise ValueError("a request is a JSON object")
        if data.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(
                f"it is of version {data.get('schema_version')!r}, and this launcher knows "
                f"{SCHEMA_VERSION}: use the dlrover-job that belongs to it"
            )
        known = {command.value: command for command in Command}
        if data.get("command") not in known:
            raise ValueError(f"there is no command {str(data.get('command'))[:40]!r}")
        node, ranks = data.get("node"), data.get("ranks", [])
        if node is not None and not _is_count(node):
            raise ValueError("a node is named by its rank")
        if (
            not isinstance(ranks, list)
            or len(ranks) > _MOST_RANKS
            or not all(map(_is_count, ranks))
        ):
            raise ValueError("ranks are a list of numbers")
        return cls(
            known[data["command"]],
            node,
            tuple(ranks),
            data.get("native") is True,
            _seconds(data.get("seconds", 0.8)),
        )


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What one node has to say."""

    host: str
    node: int | None = None
    """Its rank; None before the first rendezvous, and of the manager."""
    agent: str = ""
    done: bool = True
    """Whether what was asked for is done, or will be."""
    says: str = ""
    stacks: Mapping[int, str] = field(default_factory=dict)
    """By global rank."""
    native: Mapping[int, str] = field(default_factory=dict)
    gpus: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "stacks": {str(rank): text for rank, text in self.stacks.items()},
            "native": {str(rank): text for rank, text in self.native.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        names = ("host", "node", "agent", "done", "says", "gpus")
        known = {key: data[key] for key in names if key in data}
        stacks, native = (
            {int(rank): str(text) for rank, text in data.get(key, {}).items()}
            for key in ("stacks", "native")
        )
        return cls(**known, stacks=stacks, native=native)

    def within(self, most: int) -> Self:
        """The same with its longest texts cut, so that it takes at most about so many bytes."""
        texts = {f"s{k}": v for k, v in self.stacks.items()}
        texts |= {f"n{k}": v for k, v in self.native.items()}
        if sum(map(_size, texts.values())) <= most:
            return self
        each = max(0, most // len(texts) - len(_NO_PLACE) - 8)
        cut = {key: _cut(text, each) for key, text in texts.items()}
        return replace(
            self,
            stacks={rank: cut[f"s{rank}"] for rank in self.stacks},
            native={rank: cut[f"n{rank}"] for rank in self.native},
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """A node that has not answered."""

    who: str
    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request."""

    nodes: tuple[NodeAnswer, ...] = ()
    missing: tuple[Missing, ...] = ()
    remarks: tuple[str, ...] = ()
    error: str = ""
    """Why nothing was done at all."""

    @property
    def stacks(self) -> dict[int, str]:
        """Those of all nodes, by global rank."""
        return {rank: text for node in self.nodes for rank, text in node.stacks.items()}

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "nodes": [node.to_json() for node in self.nodes],
            "missing": [asdict(each) for each in self.missing],
            "remarks": list(self.remarks),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises ValueError for what is no answer."""
        try:
            return cls(
                tuple(NodeAnswer.from_json(each) for each in data["nodes"]),
                tuple(Missing(str(each["who"]), str(each["reason"])) for each in data["missing"]),
                tuple(map(str, data["remarks"])),
                str(data["error"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError("this is no answer of a launcher") from error


def in_words(command: Command, by: By) -> str:
    """Who has asked for what, as the reason of a decision."""
    return _DEEDS[command].format(by.user)


def line_of(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode("ascii") + b"\n"


def document_in(line: bytes) -> Any:
    """Raises ValueError for what is no JSON."""
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("seconds are a number")
    return min(max(float(value), 0.0), LONGEST_WAIT)


def _size(text: str) -> int:
    """In a line of JSON, where a character may take six bytes."""
    return len(json.dumps(text))


def _cut(text: str, most: int) -> str:
    """The end is where the main thread is."""
    if _size(text) <= most:
        return text
    tail = text[-most:] if most else ""
    while tail and _size(tail) > most:
        tail = tail[len(tail) // 4 + 1 :]
    return f"{_NO_PLACE}\n{tail}"
