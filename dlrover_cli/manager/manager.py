"""The manager of one job: observes agents and nodes, replaces what is lost, and ends it as one.

Everything arrives in one inbox, and one thread acts. What the agents decide among themselves
(NORMAL, GLOBAL, ABORTION) they also perform; the manager deals with nodes.
"""

import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.failover.decide import Action, Counters
from dlrover_cli.leash.server import Arrived, Departed, Said
from dlrover_cli.leash.wire import LeashAddress
from dlrover_cli.manager.cluster import (
    AgentEnded,
    AgentUnseen,
    Cluster,
    ClusterLost,
    Explain,
    Node,
    NodesChanged,
)
from dlrover_cli.manager.endings import LastWords, Meaning, job_exit_code
from dlrover_cli.manager.placer import Placed, Placer, Question
from dlrover_cli.manager.placing import Demand, missing, to_place
from dlrover_cli.manager.replacing import Relaunched, Replacer
from dlrover_cli.manager.roster import Roster, Seat
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.workers.inbox import Inbox, SignalReceived

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_ORPHAN_SECONDS = 4.0
"""What an agent takes to end its workers once its lease is over."""
_LOOK_AGAIN_SECONDS = 0.5
_COME_BACK_SECONDS = 1.0
"""What an agent whose leash was cut has to connect again, lest a network's hiccup cost a node."""
_LAST_SEEN_SECONDS = 60.0
"""How long an engine may show a node as healthy that is being relaunched."""
_ASK_AGAIN_SECONDS = 10.0
"""After which a placer that had no place is asked again, though no node has changed."""
_AGREED_SECONDS = 3.0
"""What the others have to end by themselves once the agents have agreed that the job fails."""


class Leashes(Protocol):
    """The manager's end of all leashes."""

    def address_for(self, agent: str, node: str) -> LeashAddress: ...
    def send(self, agent: str, kind: str, /, **data: Any) -> bool: ...
    def broadcast(self, kind: str, /, *, but: str = "", **data: Any) -> None: ...


class MakeCommand(Protocol):
    """How an agent is started."""

    def __call__(
        self, agent: str, node: Node, leash: LeashAddress, counters: Counters | None
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """The arguments and the environment of its process; counting goes on, if it has begun."""
        ...


@dataclass(frozen=True, slots=True)
class ManagerOptions:
    """What the user has said about the job as a whole. Times are in seconds."""

    demand: Demand
    max_node_relaunches: int = 3
    node_timeout: float = 600.0
    """How long the job waits for enough nodes."""
    end_together: float = 45.0
    """How long agents have to end after the first one has."""
    lease: float = 5.0
    relaunches: int = 0
    """How many nodes were replaced before, if the run goes on in another manager."""
    explain: Explain | None = None
    """Who knows what a signal means; without it the launcher was told to end."""
    more_signals: tuple[signal.Signals, ...] = ()
    """Signals of the platform that `explain` knows."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How the job ended."""

    exit_code: int
    reason: str
    signum: int | None = None
    """The signal that ended the manager, and with it the job."""
    goes_on: bool = False
    """Whether the engine starts the job again: the run is not over."""


@dataclass(slots=True)
class _State:
    """What the manager knows."""

    nodes: tuple[Node, ...] = ()
    excluded: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    """Nodes that have lost an agent."""
    relaunches: int = 0
    asked: set[str] = field(default_factory=set)
    """Nodes whose replacement was asked for and not answered yet."""
    going: dict[str, float] = field(default_factory=dict)
    """Nodes that were relaunched and are shown as before, with when that counts as new."""
    question: Question | None = None
    """What the placer was asked last."""
    is_asking: bool = False
    ask_again: float = 0.0
    refusal: str = ""
    """Why the placer has no more places."""
    short_since: float | None = None
    attempt: int | None = None
    next: Counters | None = None
    """Where counting goes on if every agent is lost, and nobody is left who would know."""
    outcome: JobOutcome | None = None
    ending_since: float | None = None
    stop_at: float | None = None
    """When the agents that are left are asked to end."""
    were_killed: bool = False
    is_explaining: bool = False
    """A signal has come, and the platform is asked what it means."""


class Manager:
    """Runs one job. `run` belongs to the main thread; `inbox.post` to any."""

    def __init__(
        self,
        inbox: Inbox,
        cluster: Cluster,
        leashes: Leashes,
        replacer: Replacer,
        make_command: MakeCommand,
        options: ManagerOptions,
        record: Recorder,
        say: Callable[[str], None],
        placer: Placer | None = None,
    ) -> None:
        self._inbox = inbox
        self._cluster = cluster
        self._leashes = leashes
        self._replacer = replacer
        self._make_command = make_command
        self._options = options
        self._record = record
        self._say = say
        self._placer = placer
        self._roster = Roster()
        self._state = _State(relaunches=options.relaunches)

    def run(self) -> JobOutcome:
        """Run the job to its end; nothing of it is left that the engine can reach."""
        with self._inbox.receiving_signals((*_SIGNALS, *self._options.more_signals)):
            self._cluster.open(self._inbox.post)
            try:
                while (outcome := self._step()) is None:
                    observation = self._inbox.next(time.monotonic() + _LOOK_AGAIN_SECONDS)
                    if observation is not None:
                        self._take(observation)
                return outcome
            finally:
                for seat in self._roster.unfinished():
                    self._cluster.kill(seat.agent)
                self._replacer.close()
                self._cluster.close()

    def nodes(self) -> tuple[Node, ...]:
        """The healthy ones, as of the last look; for any thread."""
        return self._state.nodes

    # ---- observing -----------------------------------------------------------------------------

    def _take(self, observation: object) -> None:
        match observation:
            case NodesChanged(nodes=nodes):
                self._note_nodes(nodes)
            case Arrived(agent=agent, facts=facts):
                self._note_arrival(agent, facts)
            case Said(agent=agent, message=message):
                self._note_message(agent, message)
            case Departed(agent=agent, was_silent=was_silent):
                self._note_departure(agent, was_silent=was_silent)
            case AgentEnded(agent=agent, exit_code=exit_code):
                self._note_end(agent, exit_code)
            case AgentUnseen(agent=agent, reason=reason):
                self._note_unseen(agent, reason)
            case Relaunched() as answer:
                self._note_relaunch(answer)
            case Placed() as answer:
                self._note_places(answer)
            case ClusterLost() as lost:
                self._state.is_explaining = False
                self._end(JobOutcome(lost.exit_code, lost.reason, lost.signum, lost.goes_on))
            case SignalReceived(signum=signum):
                self._note_signal(signum)
            case _:
                pass

    def _note_signal(self, signum: signal.Signals) -> None:
        """The first one ends the job in good order; Ctrl-C after that ends it at once."""
        self._record("signal", signal=signum.name)
        state = self._state
        if state.outcome is not None:
            if signum == signal.SIGINT and not state.were_killed:
                state.ending_since = time.monotonic() - self._options.end_together
            return
        explain = self._options.explain
        if explain is not None and not self._state.is_explaining:
            self._state.is_explaining = True
            explain(signum, self._inbox.post)
            return
        self._state.is_explaining = False
        self._end(JobOutcome(from_signal(signum), f"the launcher received {signum.name}", signum))

    def _note_nodes(self, nodes: tuple[Node, ...]) -> None:
        before = {node.id for node in self._state.nodes}
        after = {node.id for node in nodes}
        self._state.nodes = nodes
        if before != after:
            self._record("nodes", nodes=sorted(after), gone=sorted(before - after))
        self._state.excluded -= after - before  # as good as new
        self._state.doubtful -= after - before
        for node in before - after:
            self._state.going.pop(node, None)
        for seat in self._roster.unfinished():
            if seat.node.id in before - after:
                self._fence(seat, f"the engine says that {seat.node.hostname} is gone")

    def _fence(self, seat: Seat, reason: str) -> None:
        """Its machine may well live: end it over the leash, before anybody takes its place."""
        seat.is_fenced = True
        self._record("fence", agent=seat.agent, node=seat.node.id, reason=reason)
        if not self._leashes.send(seat.agent, "fence", reason=reason):
            self._condemn(seat, reason)

    def _condemn(self, seat: Seat, reason: str) -> None:
        if seat.condemned_at is not None or seat.has_ended:
            return
        seat.condemned_at = time.monotonic()
        self._record("agent_lost", agent=seat.agent, node=seat.node.id, reason=reason)
        self._tell_of_loss(seat)
        self._cluster.kill(seat.agent)  # it has no way back, and its end is known the sooner

    def _tell_of_loss(self, seat: Seat) -> None:
        self._leashes.broadcast(
            "lost",
            but=seat.agent,
            agent=seat.agent,
            host=seat.node.hostname,
            member=seat.member,
        )

    def _note_arrival(self, agent: str, facts: Mapping[str, Any]) -> None:
        seat = self._roster.get(agent)
        if seat is None:
            return
        seat.is_connected, seat.cut_at = True, None
        seat.host, seat.member = str(facts.get("host", "")), str(facts.get("member", ""))
        self._record("agent_arrived", agent=agent, host=seat.host, pid=facts.get("pid"))
        if seat.condemned_at is not None:
            self._fence(seat, "it was given up")

    def _note_message(self, agent: str, message: Mapping[str, Any]) -> None:
        seat = self._roster.get(agent)
        match message:
            case {"kind": "ending"} if seat is not None:
                action = message.get("action")
                seat.words = LastWords(
                    None if action is None else Action(action), str(message.get("reason", ""))
                )
            case {"kind": "round", "attempt": int(attempt)} if attempt != self._state.attempt:
                self._state.attempt = attempt
                self._state.next = Counters(
                    attempt + 1,
                    int(message.get("restart_count", 0)),
                    int(message.get("generation", 0)),
                )
                self._record(
                    "round",
                    attempt=attempt,
                    nodes=message.get("nodes"),
                    generation=message.get("generation"),
                )
            case _:
                pass

    def _note_departure(self, agent: str, *, was_silent: bool) -> None:
        seat = self._roster.get(agent)
        if seat is None:
            return
        seat.is_connected = False
        if not was_silent:
            seat.cut_at = time.monotonic()
        elif seat.words is None or seat.is_unseen:
            self._condemn(seat, "it has not been heard of")

    def _note_end(self, agent: str, exit_code: int | None) -> None:
        seat = self._roster.get(agent)
        if seat is None or seat.has_ended:
            return
        is_known = seat.condemned_at is not None
        seat.has_ended, seat.exit_code = True, exit_code
        self._record("agent_ended", agent=agent, node=seat.node.id, exit_code=exit_code)
        if seat.meaning is Meaning.LOST and not is_known:
            self._tell_of_loss(seat)

    def _note_unseen(self, agent: str, reason: str) -> None:
        """Two witnesses make an end: the engine that lost it, and a leash cut at its side."""
        seat = self._roster.get(agent)
        if seat is None or seat.has_ended:
            return
        seat.is_unseen = True
        if seat.is_connected:
            self._fence(seat, reason)
        elif seat.cut_at is None:
            self._condemn(seat, reason)

    def _look_for_cut_ones(self, now: float) -> None:
        for seat in self._roster.unfinished():
            if not seat.stays_away(now, _COME_BACK_SECONDS):
                continue
            if seat.is_unseen:
                self._note_end(seat.agent, None)
            elif seat.words is None:
                self._condemn(seat, "its connection broke")

    def _note_relaunch(self, answer: Relaunched) -> None:
        state = self._state
        state.asked -= set(answer.asked)
        shown = {node.id for node in state.nodes}
        last = time.monotonic() + _LAST_SEEN_SECONDS
        for node in state.excluded & set(answer.relaunched):
            if node in shown:
                state.going[node] = last
            else:
                state.excluded.discard(node)
        ignored = sorted(set(answer.asked) - set(answer.relaunched))
        self._record(
            "nodes_relaunched",
            relaunched=list(answer.relaunched),
            ignored=ignored,
            problem=answer.problem,
        )
        if answer.problem and ignored:
            self._say(f"{', '.join(ignored)} not replaced: {answer.problem}")

    # ---- deciding and performing ---------------------------------------------------------------

    def _step(self) -> JobOutcome | None:
        """Do what can be done; the outcome once the job is over and nothing runs any more."""
        if self._state.is_explaining:
            return None  # the engine may be ending the agents: that is no loss to make up for
        now = time.monotonic()
        patience = self._options.lease + _ORPHAN_SECONDS
        self._look_for_cut_ones(now)
        for seat in self._roster:
            if not seat.is_dealt_with and seat.is_gone(now, patience):
                seat.is_dealt_with = True
                if self._placer is not None:
                    self._placer.ended(seat.task)
                    self._state.question = None  # there is something new to ask about
                self._deal_with(seat)
        if self._state.outcome is not None:
            return self._wind_up(self._state.outcome, now)
        self._place(now)
        return None

    def _deal_with(self, seat: Seat) -> None:
        """The consequences of an agent that is surely gone."""
        match seat.meaning:
            case Meaning.SUCCESS:
                self._end(JobOutcome(ExitCode.SUCCESS, "every worker succeeded"))
            case Meaning.FAILURE:
                code = job_exit_code(seat.exit_code)
                self._end(JobOutcome(code, seat.why_it_failed()), is_agreed=seat.has_said_why)
            case Meaning.REPLACE:
                self._replace(seat, "a verdict wants it replaced", exclude=True)
            case Meaning.LOST:
                self._state.doubtful.add(seat.node.id)
                is_dead = seat.node.id not in {node.id for node in self._state.nodes}
                self._replace(seat, "it is lost", exclude=is_dead)

    def _replace(self, seat: Seat, reason: str, *, exclude: bool) -> None:
        if self._state.outcome is not None:
            return
        self._state.relaunches += 1
        limit = self._options.max_node_relaunches
        host = seat.node.hostname
        self._record("replacing", node=seat.node.id, reason=reason, number=self._state.relaunches)
        if self._state.relaunches > limit:
            self._end(
                JobOutcome(
                    ExitCode.BUDGET_SPENT,
                    f"{host} has to be replaced ({reason}), and all {limit} node relaunches "
                    "are spent",
                )
            )
            return
        self._say(f"replacing {host}: {reason} ({self._state.relaunches} of {limit})")
        if exclude:
            self._state.excluded.add(seat.node.id)
            self._state.asked.add(seat.node.id)
            self._replacer.ask([replace(seat.node, reason=reason)], self._inbox.post)

    def _place(self, now: float) -> None:
        state, demand = self._state, self._options.demand
        for name in [name for name, last in state.going.items() if now >= last]:
            del state.going[name]
            state.excluded.discard(name)
        occupied = self._roster.occupied()
        chosen = to_place(state.nodes, demand, state.excluded, occupied, state.doubtful)
        if not chosen and len(occupied) < demand.min_nodes:
            chosen = self._in_place(occupied)
        if self._placer is not None:
            self._ask_for_places(self._placer, chosen, now)
            chosen = []
        for node in chosen:
            self._start(node, now)
        if chosen or len(occupied) >= demand.min_nodes:
            state.short_since = None
            return
        state.short_since = now if state.short_since is None else state.short_since
        if now - state.short_since >= self._options.node_timeout:
            lacking = state.refusal or missing(state.nodes, demand, state.excluded)
            waited = f"after {self._options.node_timeout:g} s"
            self._end(JobOutcome(ExitCode.RENDEZVOUS, f"{lacking} {waited}"))

    def _ask_for_places(self, placer: Placer, free: Sequence[Node], now: float) -> None:
        """If there are free nodes, and something is new since the placer had no place."""
        state = self._state
        question = Question(state.nodes, frozenset(state.excluded), frozenset(state.doubtful))
        is_new = question != state.question or now >= state.ask_again
        if not free or state.is_asking or not is_new:
            return
        state.is_asking, state.question = True, question
        placer.ask(question, self._inbox.post)

    def _note_places(self, answer: Placed) -> None:
        """Start agents there; a node may be gone or given up by now, and the job may be ending."""
        state, now = self._state, time.monotonic()
        state.is_asking, state.ask_again = False, now + _ASK_AGAIN_SECONDS
        self._record("placement", places=dict(answer.places), reason=answer.reason)
        if answer.reason and answer.reason != state.refusal:
            self._say(f"waiting for nodes: {answer.reason}")
        state.refusal = answer.reason
        nodes = {node.id: node for node in state.nodes}
        for task, node in answer.places.items():
            is_usable = node in nodes and node not in state.excluded | self._roster.occupied()
            if is_usable and state.outcome is None:
                self._start(nodes[node], now, task)
            elif self._placer is not None:
                self._placer.ended(task)

    def _in_place(self, occupied: Iterable[str]) -> list[Node]:
        """Nobody replaced anything and there is no spare: the excluded ones that live must do."""
        state = self._state
        if state.asked or state.going or not self._roster.occupied() | state.excluded:
            return []
        taken = set(occupied)
        again = [node for node in state.nodes if node.id in state.excluded and node.id not in taken]
        room = self._options.demand.min_nodes - len(taken)
        for node in again[:room]:
            state.excluded.discard(node.id)
            self._record("restart_in_place", node=node.id)
            self._say(f"no other node is there: {node.hostname} is used again")
        return again[:room]

    def _start(self, node: Node, now: float, task: str = "") -> None:
        counters = None if self._roster.present() else self._state.next
        seat = self._roster.add(node, now, task)
        leash = self._leashes.address_for(seat.agent, node.id)
        argv, environ = self._make_command(seat.agent, node, leash, counters)
        self._record("agent_placed", agent=seat.agent, node=node.id, host=node.hostname)
        self._cluster.start(node, seat.agent, argv, environ)

    def _end(self, outcome: JobOutcome, *, is_agreed: bool = False) -> None:
        """The first outcome stands. If the agents have agreed on it, they end by themselves."""
        state = self._state
        if state.outcome is not None:
            return
        now = time.monotonic()
        state.outcome, state.ending_since = outcome, now
        self._record("job_ending", exit_code=outcome.exit_code, reason=outcome.reason)
        if outcome.exit_code != ExitCode.SUCCESS:
            state.stop_at = now + _AGREED_SECONDS if is_agreed else now

    def _wind_up(self, outcome: JobOutcome, now: float) -> JobOutcome | None:
        state = self._state
        left = [seat for seat in self._roster if not seat.is_dealt_with]
        if not left:
            return outcome
        if state.stop_at is not None and now >= state.stop_at:
            state.stop_at = None
            for seat in left:
                self._cluster.stop(seat.agent)
        assert state.ending_since is not None
        if now - state.ending_since >= self._options.end_together:
            if state.were_killed:
                return outcome
            state.were_killed = True
            state.ending_since = now - self._options.end_together + self._options.lease
            for seat in left:
                self._cluster.kill(seat.agent)
        return None
