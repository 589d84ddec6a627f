"""What one agent answers over its control socket, and how it passes questions on to its peers.

Answers come from threads of the socket, of a peer or of the manager, never from the agent's own.
What changes the job goes into the agent's inbox, and the agent says what follows.
"""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.flight_recorder import keep_flight_records
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.peer_line import PeerLine
from dlrover_cli.agent.requests import ABORTING, OperatorRequest, Phase, Reply, reply_in
from dlrover_cli.agent.rounds import Round
from dlrover_cli.control.opened import Control
from dlrover_cli.control.wire import (
    NATIVE_SECONDS,
    Answer,
    By,
    Command,
    Missing,
    NodeAnswer,
    Request,
)
from dlrover_cli.errors import LaunchError
from dlrover_cli.words import node_name
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.native_stacks import native_stacks

LARGEST_NODE_ANSWER = 700_000
"""Bytes of stacks that a node sends over a leash or a store, whose lines end at 1 MiB."""

_REPLY_SECONDS = 0.7
"""For the agent to look at a request; then whoever asked hears what it is busy with."""
_SENT_SECONDS = 0.3
_PEER_SECONDS = 0.2
"""For a peer, beyond what the workers may take."""
_GPU_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class View:
    """The agent as other threads see it."""

    phase: Phase
    round_: Round | None
    attempt: RunningAttempt | None

    @property
    def rank(self) -> int | None:
        return None if self.round_ is None else self.round_.rank

    @property
    def nodes(self) -> int:
        return 1 if self.round_ is None else self.round_.world_size


class AgentControl:
    """Opened for the life of one agent. Without a run directory there is no socket."""

    def __init__(self, options: AgentOptions, inbox: Inbox, view: Callable[[], View]) -> None:
        self._options = options
        self._inbox = inbox
        self._view = view
        self._line: PeerLine | None = None
        self._is_aborting = False
        self._host = socket.gethostname()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Answer while inside. A place without sockets costs the socket, never the job."""
        directory, control = self._options.run_directory, None
        if directory is not None:
            try:
                control = Control(self.respond, self._options.record, directory, os.environ)
            except LaunchError as error:
                self._options.record("control_unavailable", reason=error.message)
                self._options.say(f"dlrover-job cannot ask this launcher: {error.message}")
        try:
            yield
        finally:
            if self._line is not None:
                self._line.close()
            if control is not None:
                control.close()

    def enter(self, round_: Round) -> None:
        """From now on the peers are those of this round; until then, those of the last one."""
        before, self._line = self._line, None
        if round_.world_size > 1:
            self._line = PeerLine(
                round_.control, round_.rank, round_.world_size, self.respond_to_node
            )
        if before is not None:
            before.close(wait=False)  # its store may be lost, and the workers shall start

    def respond(self, request: Request, by: By) -> Answer:
        """The answer of the whole job, as far as this node reaches it."""
        view, line = self._view(), self._line
        if request.node is not None and not self._is_known(request.node, view):
            return Answer(error=_no_such_node(request.node, view))
        is_for_another = _is_for_another(request, view)
        is_for_all = request.command in (Command.STACKS, Command.DUMP, Command.ABORT)
        if line is None or not (is_for_all or is_for_another):
            return Answer((self._here(request, by),), remarks=self._remarks(view, request))
        forwarded = _Forwarded(line, request, by)
        here = () if is_for_another else (self._here(request, by),)
        answers, missing = forwarded.collect()
        if is_for_another:
            answers = tuple(each for each in answers if each.node == request.node)
            missing = tuple(each for each in missing if each.who.startswith(f"node {request.node}"))
        remarks = (f"only this node was asked: {line.problem}",) if line.problem else ()
        return Answer((*here, *answers), missing, remarks)

    def respond_to_node(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """What this node alone answers to a peer, or to the manager."""
        try:
            request = Request.from_json(question["request"])
            by = By.from_json(question["by"])
        except (KeyError, TypeError, ValueError) as error:
            text = f"of another version: {error}"
            return NodeAnswer(self._host, self._view().rank, done=False, says=text).to_json()
        view = self._view()
        if _is_for_another(request, view):
            return NodeAnswer(self._host, view.rank, done=False).to_json()
        return self._here(request, by).within(LARGEST_NODE_ANSWER).to_json()

    def _here(self, request: Request, by: By) -> NodeAnswer:
        view = self._view()
        record = self._options.record
        command = request.command.value
        record("control_request", command=command, by=asdict(by), ranks=list(request.ranks))
        if not request.command.changes_the_job:
            return self._shown(request, view)
        reply = self._reply_to(OperatorRequest(request.command, by))
        record("control_answer", command=command, done=reply.done, says=reply.says)
        return NodeAnswer(self._host, view.rank, self._agent, reply.done, reply.says)

    def _reply_to(self, asked: OperatorRequest) -> Reply:
        self._is_aborting = self._is_aborting or asked.is_abort
        if self._is_aborting and not asked.is_abort:
            return ABORTING
        self._inbox.post(asked)
        if (reply := asked.wait(_REPLY_SECONDS)) is not None:
            return reply
        reply = reply_in(self._view().phase, asked.command)
        if asked.is_abort:  # it stays where it is: the agent takes it as soon as it looks
            return reply
        return asked.give_up(ABORTING if self._is_aborting else reply)

    def _shown(self, request: Request, view: View) -> NodeAnswer:
        attempt = view.attempt
        gpus = _gpus() if request.command is Command.DUMP else ""
        if attempt is None:
            says = f"no workers run: {view.phase.value}"
            return NodeAnswer(self._host, view.rank, self._agent, False, says, gpus=gpus)
        if request.command is Command.DUMP:
            keep_flight_records(attempt, self._options.run_directory)
        wanted = set(request.ranks) or set(attempt.global_ranks.values())
        stacks = {
            rank: text
            for rank, text in attempt.stacks_by_global_rank(request.seconds).items()
            if rank in wanted
        }
        native = {}
        if request.native:
            pids = attempt.running_pids()
            wanted_pids = {rank: pids[rank] for rank in stacks if rank in pids}
            native = native_stacks(wanted_pids, NATIVE_SECONDS)
        return NodeAnswer(
            self._host, view.rank, self._agent, stacks=stacks, native=native, gpus=gpus
        )

    def _is_known(self, node: int, view: View) -> bool:
        return view.round_ is None or node < view.nodes

    def _remarks(self, view: View, request: Request) -> tuple[str, ...]:
        if view.round_ is None and not request.command.changes_the_job:
            return ("the nodes have not met yet: only this one was asked",)
        if view.round_ is None and request.command is Command.ABORT:
            return ("the nodes have not met yet: those that wait learn of it from the rendezvous",)
        return ()

    @property
    def _agent(self) -> str:
        directory = self._options.run_directory
        return "" if directory is None else directory.agent


class _Forwarded:
    """A question on its way to all peers, so that our own answer does not wait for theirs."""

    def __init__(self, line: PeerLine, request: Request, by: By) -> None:
        self._line = line
        self._seconds = request.patience + _PEER_SECONDS
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._silent = dict.fromkeys(line.peers, "")
        self._deadline = time.monotonic() + self._seconds
        question = {"request": request.to_json(), "by": asdict(by)}
        is_sent = threading.Event()

        def ask() -> None:
            self._answers, self._silent = line.ask(question, self._deadline, is_sent.set)
            is_sent.set()

        self._thread = threading.Thread(target=ask, name="peer-ask", daemon=True)
        self._thread.start()
        if request.command is Command.ABORT:
            # Our own end must not look like a failure to those who have not heard of it.
            is_sent.wait(_SENT_SECONDS)

    def collect(self) -> tuple[tuple[NodeAnswer, ...], tuple[Missing, ...]]:
        self._thread.join(max(0.0, self._deadline - time.monotonic()) + 0.1)
        took = self._seconds - max(0.0, self._deadline - time.monotonic())
        answers = tuple(NodeAnswer.from_json(each) for _, each in sorted(self._answers.items()))
        missing = tuple(
            Missing(node_name(peer, host), f"no answer within {took:.1f} s")
            for peer, host in sorted(self._silent.items())
        )
        return answers, missing


def _is_for_another(request: Request, view: View) -> bool:
    return request.command is Command.NODE_FAILOVER and request.node not in (None, view.rank)


def _no_such_node(node: int, view: View) -> str:
    last = view.nodes - 1
    return f"there is no node {node}: the job has " + ("node 0" if last == 0 else f"nodes 0-{last}")


def _gpus() -> str:
    """What nvidia-smi shows; empty where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "-q"], capture_output=True, text=True, timeout=_GPU_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}\n"
    return done.stdout or done.stderr
