"""The manager's control socket: what is asked of the job goes to its agents, over their leashes."""

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from dlrover_cli.control.opened import Control
from dlrover_cli.control.wire import Answer, By, Command, Missing, NodeAnswer, Request, in_words
from dlrover_cli.errors import LaunchError
from dlrover_cli.leash.server import Said
from dlrover_cli.manager.job import AbortJob
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.telemetry.run_dir import RunDirectory

_SPARE_SECONDS = 0.2


class Agents(Protocol):
    """The manager's end of all leashes."""

    def agents(self) -> list[str]: ...
    def send(self, agent: str, kind: str, /, **data: Any) -> bool: ...


@dataclass(slots=True, eq=False)
class _Question:
    """One question and the answers to it."""

    asked: frozenset[str]
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, agent: str, answer: Mapping[str, Any]) -> None:
        with self.changed:
            self.answers[agent] = answer
            self.changed.notify_all()

    def wait(self, deadline: float) -> dict[str, Mapping[str, Any]]:
        with self.changed:
            while not self.asked <= self.answers.keys():
                if not self.changed.wait(max(0.0, deadline - time.monotonic())):
                    break
            return dict(self.answers)


class Asking:
    """Stands between the leashes and the manager: answers of agents are for whoever has asked."""

    def __init__(self, post: Callable[[object], None], record: Recorder) -> None:
        """``post`` takes everything else that the leashes bring."""
        self._post = post
        self._record = record
        self._numbers = itertools.count(1)
        self._questions: dict[int, _Question] = {}
        self._agents: Agents | None = None
        self._hosts: Callable[[], Mapping[str, str]] = dict

    def hear(self, observation: object) -> None:
        """Called in the thread of the leashes."""
        match observation:
            case Said(agent=agent, message={"kind": "answer", "number": int(number), **rest}):
                question, answer = self._questions.get(number), rest.get("answer")
                if question is not None and isinstance(answer, dict):
                    question.note(agent, answer)
            case _:
                self._post(observation)

    @contextmanager
    def opened(
        self,
        agents: Agents,
        hosts: Callable[[], Mapping[str, str]],
        run_directory: RunDirectory,
    ) -> Iterator[None]:
        """Answer while inside; ``hosts`` has where each agent is. Without a socket the job runs."""
        self._agents, self._hosts, control = agents, hosts, None
        try:
            control = Control(self.respond, self._record, run_directory, os.environ)
        except LaunchError as error:
            self._record("control_unavailable", reason=error.message)
        try:
            yield
        finally:
            if control is not None:
                control.close()

    def respond(self, request: Request, by: By) -> Answer:
        """What all agents answer, or the one that is meant."""
        command = request.command.value
        self._record("control_request", command=command, by=asdict(by), ranks=list(request.ranks))
        hosts = dict(self._hosts())
        connected = [] if self._agents is None else self._agents.agents()
        match request.command:
            case Command.ABORT:
                return self._abort(request, by, hosts, connected)
            case Command.RESTART:
                answer = self._restart(request, by, hosts, connected)
            case Command.NODE_FAILOVER:
                answer = self._replace(request, by, hosts, connected)
            case _:
                return self._ask(request, by, connected, hosts)
        for node in answer.nodes:
            self._record("control_answer", command=command, done=node.done, says=node.says)
        return answer

    def _abort(
        self, request: Request, by: By, hosts: Mapping[str, str], connected: Sequence[str]
    ) -> Answer:
        answer = self._ask(request, by, connected, hosts)
        self._post(AbortJob(in_words(Command.ABORT, by)))
        if answer.nodes:
            return answer
        says = "no agent runs; the job ends with exit code 82, and nothing retries"
        return Answer((NodeAnswer(socket.gethostname(), says=says),), answer.missing)

    def _restart(
        self, request: Request, by: By, hosts: Mapping[str, str], connected: Sequence[str]
    ) -> Answer:
        """One agent is enough: it brings the matter before the others."""
        answer = self._ask(request, by, connected[:1], {})
        if answer.nodes or hosts:
            return answer
        says = "no agent runs: a new attempt starts anyway as soon as there are nodes"
        return Answer((NodeAnswer(socket.gethostname(), says=says),))

    def _replace(
        self, request: Request, by: By, hosts: Mapping[str, str], connected: Sequence[str]
    ) -> Answer:
        if request.node is None and len(connected) > 1:
            nodes = self._ask(Request(Command.NODE_FAILOVER, _NOBODY), by, connected, {}).nodes
            known = ", ".join(f"{node.node} ({node.host})" for node in _by_rank(nodes))
            return Answer(error=f"say which node with --node: {known}")
        answer = self._ask(request, by, connected, hosts)
        if request.node is None:
            return answer
        meant = tuple(node for node in answer.nodes if node.node == request.node)
        if not meant and not answer.missing:
            known = ", ".join(f"{node.node} ({node.host})" for node in answer.nodes)
            return Answer(error=f"there is no node {request.node}; there is: {known or 'none'}")
        return Answer(meant, () if meant else answer.missing)

    def _ask(
        self, request: Request, by: By, connected: Sequence[str], hosts: Mapping[str, str]
    ) -> Answer:
        """``hosts`` has those that are expected to answer."""
        number, question = next(self._numbers), _Question(frozenset(connected))
        seconds = request.patience + _SPARE_SECONDS
        deadline = time.monotonic() + seconds
        self._questions[number] = question
        try:
            document = {"request": request.to_json(), "by": asdict(by)}
            for agent in connected:
                if self._agents is not None:
                    self._agents.send(agent, "ask", number=number, question=document)
            answers = question.wait(deadline)
        finally:
            del self._questions[number]
        nodes = [NodeAnswer.from_json(answer) for answer in answers.values()]
        missing = [
            Missing(
                f"{agent} on {hosts.get(agent, '')}".removesuffix(" on "),
                f"no answer within {seconds:.1f} s" if agent in connected else "not connected",
            )
            for agent in sorted({*connected, *hosts} - answers.keys())
        ]
        return Answer(tuple(_by_rank(nodes)), tuple(missing))


_NOBODY = 1 << 30
"""The rank of no node: whoever is asked only says who they are."""


def _by_rank(nodes: Sequence[NodeAnswer]) -> list[NodeAnswer]:
    return sorted(nodes, key=lambda node: (node.node is None, node.node or 0))
