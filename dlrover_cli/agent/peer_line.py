"""Asking the other nodes of a round over its control store, and answering them.

Every node has numbered questions of its own in the store, and one thread that waits for the next
of them with a store client of its own. All of it needs set, get, add, wait and check; keys that
were read are deleted where the store can do that.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed import Store

from dlrover_cli.agent.agreement import wait_for_keys

_WAIT_SLICE = timedelta(days=1)  # torch prints two warnings at the end of each
_CLOSE_SECONDS = 0.5
_LOOK_SECONDS = 0.005

Question = Mapping[str, Any]
Respond = Callable[[Question], Mapping[str, Any]]


class PeerLine:
    """Of one node in one round. `ask` and `close` may be called from any thread."""

    def __init__(self, store: Store, rank: int, world_size: int, respond: Respond) -> None:
        """``respond`` is called in a thread of our own, once per question."""
        self._store = store
        self._rank = rank
        self._peers = [peer for peer in range(world_size) if peer != rank]
        self._respond = respond
        self._is_closed = threading.Event()
        self.problem = ""
        """Why no other node can be asked; empty as long as that is not known to be so."""
        self._farewell = threading.Thread(
            target=self._wake_listener, name="peer-line-end", daemon=True
        )
        self._thread = threading.Thread(target=self._listen, name="peer-line", daemon=True)
        self._thread.start()

    @property
    def peers(self) -> list[int]:
        return list(self._peers)

    def ask(
        self,
        question: Question,
        deadline: float,
        is_sent: Callable[[], None] = lambda: None,
    ) -> tuple[dict[int, Mapping[str, Any]], dict[int, str]]:
        """The answers by node rank, and the hosts of those that gave none. Blocks.

        ``is_sent`` is called once every peer can read the question.
        """
        answers: dict[int, Mapping[str, Any]] = {}
        hosts = dict.fromkeys(self._peers, "")
        try:
            store = _second_client(self._store)
            numbers = {peer: _put(store, peer, question) for peer in self._peers}
            is_sent()
            keys = {peer: f"answer/{peer}/{number}" for peer, number in numbers.items()}
            # Looked for rather than waited for: torch complains on stderr of waits that end.
            while len(answers) < len(keys) and time.monotonic() < deadline:
                if self._is_closed.is_set():
                    return answers, {peer: "" for peer in hosts if peer not in answers}
                for peer in keys.keys() - answers.keys():
                    if store.check([keys[peer]]):
                        answers[peer] = json.loads(store.get(keys[peer]))
                        _delete(store, keys[peer])
                time.sleep(_LOOK_SECONDS)
            for peer in keys.keys() - answers.keys():
                if store.check([f"host/{peer}"]):
                    hosts[peer] = store.get(f"host/{peer}").decode()
        except (RuntimeError, OSError) as error:
            self.problem = self.problem or _problem(error)
        return answers, {peer: host for peer, host in hosts.items() if peer not in answers}

    def close(self, *, wait: bool = True) -> None:
        """Answer no more. A thread that hangs in a lost store is left behind, at once or soon."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            self._farewell.start()
        if wait:
            self._farewell.join(_CLOSE_SECONDS)
            self._thread.join(_CLOSE_SECONDS)

    def _wake_listener(self) -> None:
        with suppress(Exception):  # then the store is gone, and the listener knows it
            _put(_second_client(self._store), self._rank, {})

    def _listen(self) -> None:
        try:
            store = _second_client(self._store)
            store.set(f"host/{self._rank}", socket.gethostname())
            self._answer_all(store)
        # Whatever the store raises, nobody can be asked over it any more.
        except Exception as error:  # noqa: BLE001
            self.problem = _problem(error)

    def _answer_all(self, store: Store) -> None:
        number = 0
        while True:
            number += 1
            key = f"ask/{self._rank}/{number}"
            while not wait_for_keys(store, [key], _WAIT_SLICE):
                pass
            if self._is_closed.is_set():
                return
            question = json.loads(store.get(key))
            _delete(store, key)
            store.set(f"answer/{self._rank}/{number}", json.dumps(self._respond(question)))


def _put(store: Store, peer: int, question: Question) -> int:
    number = store.add(f"asks/{peer}", 1)
    store.set(f"ask/{peer}/{number}", json.dumps(question))
    return number


def _delete(store: Store, key: str) -> None:
    with suppress(RuntimeError, NotImplementedError):  # not every store can
        store.delete_key(key)


class _NoSecondClient(RuntimeError):
    """A store that is written in Python, for example."""


def _second_client(store: Store) -> Store:
    """A wait blocks every other call on the same client."""
    from torch.distributed import DistError

    try:
        clone: Store = store.clone()  # type: ignore[attr-defined]
    except DistError:  # it has one, and cannot be reached
        raise
    except (RuntimeError, NotImplementedError) as error:
        raise _NoSecondClient from error
    return clone


def _problem(error: BaseException) -> str:
    if isinstance(error, _NoSecondClient):
        return "the store of the rendezvous has no second client"
    what = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"the store of the round is lost: {what}"
