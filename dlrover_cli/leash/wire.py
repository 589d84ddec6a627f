"""What goes over a leash: one JSON object per line, and the address that an agent is given.

agent → manager    hello {token, agent, pid, host, node, member,
                          restarting}                                 first, or nothing else counts
                   round {attempt, rank, nodes, restart_count,
                          generation}                                 a rendezvous is complete
                   ending {exit_code, action, reason}                 about to go by itself
                   restarting {attempt, restart_count, generation,
                               node_relaunches}                       the job starts afresh: may I?
                   answer {number, answer}                            to what was asked
                   beat {}
manager → agent    lost {agent, host, member}                         a peer is gone
                   fence {reason}                                     end your workers and yourself
                   go {generation}                                    start afresh where you are
                   ask {number, question}                             see control/wire.py
                   beat {}
"""

import json
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass
from typing import Any, Self

VARIABLE = "DLROVER_LEASH"
LONGEST_LINE = 1 << 20

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeashAddress:
    """Where the manager listens, the secret that it asks for, and who we are to it."""

    host: str
    port: int
    token: str
    agent: str
    node: str = ""
    """What the platform calls the machine."""
    lease: float = 5.0
    """Seconds without a word after which each gives the other up."""
    asks_again: bool = False
    """Whether somebody decides about places: before the job starts afresh, agents have to ask."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


def take_leash_address(environ: MutableMapping[str, str]) -> LeashAddress | None:
    """What the environment says; taken out of it, since workers must not speak in our name."""
    text = environ.pop(VARIABLE, None)
    return None if text is None else LeashAddress.from_json(text)


def line_of(kind: str, data: Mapping[str, Any]) -> bytes:
    return json.dumps({"kind": kind, **data}).encode() + b"\n"


class Lines:
    """Takes bytes as they come and gives back whole messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises ValueError for what is none."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError("a line that has no end")
        try:
            messages = [json.loads(line) for line in whole if line]
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not all(
            isinstance(each, dict) and isinstance(each.get("kind"), str) for each in messages
        ):
            raise ValueError("not a message")
        return messages


def keep_prompt(connection: socket.socket, timeout: float) -> None:
    """Send small lines at once, and never wait longer than ``timeout`` for the other side."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(timeout)
