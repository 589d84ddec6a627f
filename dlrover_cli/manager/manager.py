"""The manager of one job: observes agents and nodes, replaces what is lost, and ends it as one.

Everything arrives in one inbox, and one thread acts. What the agents decide among themselves
(NORMAL, GLOBAL, ABORTION) they also perform; the manager deals with nodes. Where a placer decides
about those, agents ask it again before the whole job starts afresh.
"""

import signal
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.failover.decide import Action, Counters
from dlrover_cli.leash.server import Arrived, Departed, Said
from dlrover_cli.manager.afresh import counters_from, who_asks
from dlrover_cli.manager.cluster import (
    AgentEnded,
    AgentUnseen,
    Cluster,
    ClusterLost,
    Node,
    NodesChanged,
)
from dlrover_cli.manager.endings import LastWords, Meaning, job_exit_code
from dlrover_cli.manager.job import AbortJob, JobOutcome, Leashes, MakeCommand, ManagerOptions
from dlrover_cli.manager.known_nodes import KnownNodes
from dlrover_cli.manager.placer import Placed, Placer, Question
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
_ASK_AGAIN_SECONDS = 10.0
"""After which a placer that had no place is asked again, though no node has changed."""
_AGREED_SECONDS = 3.0
"""What the others have to end by themselves once the agents have agreed that the job fails."""


@dataclass(slots=True)
class _State:
    """What the manager knows of the job, beside its nodes and its agents."""

    relaunches: int = 0
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
        self._nodes = KnownNodes()
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
        return self._nodes.there

    def hosts(self) -> dict[str, str]:
        """Where each agent is that runs, as far as is known; for any thread."""
        return {seat.agent: seat.node.hostname for seat in self._roster.present()}

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
            case AbortJob(reason=reason):
                self._end(JobOutcome(ExitCode.ABORTED, reason), is_agreed=True)
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
        before = self._nodes.ids()
        gone = self._nodes.see(nodes)
        after = self._nodes.ids()
        if before != after:
            self._record("nodes", nodes=sorted(after), gone=sorted(gone))
        for seat in self._roster.unfinished():
            if seat.node.id in gone:
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
        elif isinstance(asks := facts.get("restarting"), dict):
            self._note_asking(seat, asks)

    def _note_message(self, agent: str, message: Mapping[str, Any]) -> None:
        seat = self._roster.get(agent)
        match message:
            case {"kind": "ending"} if seat is not None:
                action = message.get("action")
                seat.words = LastWords(
                    None if action is None else Action(action), str(message.get("reason", ""))
                )
            case {"kind": "restarting"} if seat is not None:
                self._note_asking(seat, message)
            case {"kind": "round", "attempt": int(attempt)}:
                if seat is not None:
                    seat.attempt = attempt
                self._note_round(attempt, message)
            case _:
                pass

    def _note_round(self, attempt: int, message: Mapping[str, Any]) -> None:
        if attempt == self._state.attempt:
            return
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

    def _note_asking(self, seat: Seat, message: Mapping[str, Any]) -> None:
        """It has ended its workers and starts afresh with the whole job, if it may."""
        counters = counters_from(message)
        if counters is None:
            return
        if seat.may_go == counters.generation:
            self._leashes.send(seat.agent, "go", generation=seat.may_go)  # it was not heard
        elif seat.asks_since is None:
            seat.asks_since = time.monotonic()
            self._state.next = counters

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
        ignored = self._nodes.note_relaunch(answer, time.monotonic())
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
        self._place_again(now)
        self._place(now)
        return None

    def _deal_with(self, seat: Seat) -> None:
        """The consequences of an agent that is surely gone."""
        if seat.has_no_place and seat.meaning is not Meaning.FAILURE:
            return  # it was sent away, and that costs nobody a relaunch
        match seat.meaning:
            case Meaning.SUCCESS:
                self._end(JobOutcome(ExitCode.SUCCESS, "every worker succeeded"))
            case Meaning.FAILURE:
                code = job_exit_code(seat.exit_code)
                self._end(JobOutcome(code, seat.why_it_failed()), is_agreed=seat.has_said_why)
            case Meaning.REPLACE:
                self._replace(seat, "a verdict wants it replaced", exclude=True)
            case Meaning.LOST:
                self._nodes.doubtful.add(seat.node.id)
                is_dead = seat.node.id not in self._nodes.ids()
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
            self._nodes.give_up(seat.node.id)
            self._replacer.ask([replace(seat.node, reason=reason)], self._inbox.post)

    def _place(self, now: float) -> None:
        state, demand = self._state, self._options.demand
        occupied = self._roster.occupied()
        chosen = self._nodes.to_place(demand, occupied, now)
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
            lacking = state.refusal or self._nodes.missing(demand)
            waited = f"after {self._options.node_timeout:g} s"
            self._end(JobOutcome(ExitCode.RENDEZVOUS, f"{lacking} {waited}"))

    def _place_again(self, now: float) -> None:
        """Once the workers of all have ended: their places are given back, and looked for again."""
        state = self._state
        seats = who_asks(self._roster.present(), state.attempt, now, self._options.end_together)
        if not seats or state.is_asking:
            return
        if self._placer is None:
            for seat in seats:
                self._let_go_on(seat, seat.task)
            return
        self._record("placing_again", agents=[seat.agent for seat in seats])
        state.is_asking, state.question = True, None
        question = self._nodes.question(seat.task for seat in seats)
        self._placer.ask(question, self._inbox.post)

    def _asked_again(self, answer: Placed) -> dict[str, Seat]:
        """By their nodes, the agents that wait for this answer where they are."""
        return {
            seat.node.id: seat
            for seat in self._roster.present()
            if seat.task in answer.again and seat.asks_since is not None and not seat.is_fenced
        }

    def _let_go_on(self, seat: Seat, task: str) -> None:
        assert self._state.next is not None
        seat.task, seat.asks_since = task, None
        seat.may_go = self._state.next.generation
        self._leashes.send(seat.agent, "go", generation=seat.may_go)

    def _send_away(self, seat: Seat, reason: str) -> None:
        """Its node has no place for it: it ends, and another one starts where there is one."""
        seat.has_no_place = True
        self._say(f"{seat.node.hostname} is left: {reason}")
        self._fence(seat, reason)

    def _ask_for_places(self, placer: Placer, free: Sequence[Node], now: float) -> None:
        """If there are free nodes, and something is new since the placer had no place."""
        state = self._state
        question = self._nodes.question()
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
        nodes = {node.id: node for node in self._nodes.there}
        asked = {} if state.outcome is not None else self._asked_again(answer)
        for node, seat in asked.items():
            if node not in answer.places.values():
                reason = answer.refused.get(node) or answer.reason
                self._send_away(seat, reason or "its place was given to nobody")
        for task, node in answer.places.items():
            if node in asked:
                self._let_go_on(asked[node], task)
                continue
            is_usable = node in nodes and node not in self._nodes.excluded | self._roster.occupied()
            if is_usable and state.outcome is None:
                self._start(nodes[node], now, task)
            elif self._placer is not None:
                self._placer.ended(task)

    def _in_place(self, occupied: Set[str]) -> list[Node]:
        """There is no spare: nodes that were given up are used again, if nobody replaces them."""
        again = self._nodes.take_back(occupied, self._options.demand.min_nodes - len(occupied))
        for node in again:
            self._record("restart_in_place", node=node.id)
            self._say(f"no other node is there: {node.hostname} is used again")
        return again

    def _start(self, node: Node, now: float, task: str = "") -> None:
        stays = any(not seat.is_fenced for seat in self._roster.present())
        counters = None if stays else self._state.next
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
