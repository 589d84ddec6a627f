"""The agent and the manager of its job: what each hears of the other, if there is a manager."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousHandler

from dlrover_cli.agent.ending import Ending
from dlrover_cli.agent.observations import LostPeer
from dlrover_cli.agent.rounds import Round
from dlrover_cli.leash.client import Asked, Leash, PeerLost
from dlrover_cli.rendezvous.departure import bury, member_of
from dlrover_cli.workers.inbox import Inbox


@dataclass(frozen=True, slots=True)
class ManagerLink:
    """Turns what the manager says into observations."""

    leash: Leash | None
    inbox: Inbox
    handler: RendezvousHandler
    last_round: Callable[[], Round | None]
    """For any thread."""
    respond: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    """What this node answers to a question of the manager's user; for any thread."""

    @contextlib.contextmanager
    def held(self, ending: Callable[[], Ending | None]) -> Iterator[None]:
        """Be in touch with the manager; it hears last how the run ended here."""
        leash = self.leash
        if leash is None:
            yield
            return
        leash.start(self._hear, member_of(self.handler))
        try:
            yield
        finally:
            last = ending()
            leash.tell(
                "ending",
                action=None if last is None else last.decision.action.value,
                reason="" if last is None else last.decision.reason,
            )
            leash.close()

    def tell(self, kind: str, /, **data: Any) -> None:
        """Say something to the manager. Never raises."""
        if self.leash is not None:
            self.leash.tell(kind, **data)

    def _hear(self, observation: object) -> None:
        """In the leash's thread, which must not wait for a store: the manager hears it breathe."""
        if isinstance(observation, Asked):
            answer = partial(self._answer, observation)
            threading.Thread(target=answer, name="manager-ask", daemon=True).start()
            return
        if not isinstance(observation, PeerLost):
            self.inbox.post(observation)
            return
        self.inbox.post(LostPeer(self.last_round(), observation.host))
        funeral = partial(bury, self.handler, observation.member)
        threading.Thread(target=funeral, name="bury", daemon=True).start()

    def _answer(self, asked: Asked) -> None:
        self.tell("answer", number=asked.number, answer=self.respond(asked.question))
