"""Watching one attempt: until it has succeeded here, or the job has something to decide."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dlrover_cli.agent.agreement import (
    BETTER_REPORT_SECONDS,
    Agreement,
    ControlStoreLost,
    PeersDone,
    PeersFrozen,
    Report,
)
from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.flight_recorder import keep_flight_records
from dlrover_cli.agent.hang_watch import HangWatch
from dlrover_cli.agent.judge import Judge
from dlrover_cli.agent.loop import Loop
from dlrover_cli.agent.membership import MembershipWatch, NodesWaiting
from dlrover_cli.agent.narration import promise
from dlrover_cli.agent.observations import LostPeer, Reported, Succeeded
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.progress import Hang
from dlrover_cli.agent.reports import Reporter, of_lost_peer, of_request, of_waiting_nodes
from dlrover_cli.agent.requests import OperatorRequest, Phase, Reply
from dlrover_cli.agent.rounds import Round
from dlrover_cli.agent.watchdog import Watchdog
from dlrover_cli.contracts import WorkerFailure
from dlrover_cli.diagnosis.causes import is_time_out
from dlrover_cli.failover.decide import Action
from dlrover_cli.workers.api import WorkerExit
from dlrover_cli.workers.stacks import summarise

_PEER_STACKS_SECONDS = 0.5
_PROMPT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to watch while one attempt runs."""

    attempt: RunningAttempt
    round_: Round
    agreement: Agreement
    membership: MembershipWatch | None
    watch: HangWatch


@dataclass(frozen=True, slots=True)
class Observer:
    """Belongs to the thread that runs the agent; waits only in its loop."""

    loop: Loop
    watchdog: Watchdog
    reporter: Reporter
    options: AgentOptions
    judge: Judge
    """Asked what follows from a request, before it is brought before the job."""

    def observe(self, scene: Scene) -> Succeeded | Reported:
        """Watch the running attempt until it has succeeded here or the job has to decide."""
        attempt = scene.attempt
        self.loop.phase = Phase.RUNNING
        while True:
            look = scene.watch.look()
            if look.hang is not None:
                return Reported(self._hang_report(scene, look.hang))
            if look.warning is not None:
                self._warn_of_hang(attempt, look.warning)
            match self.loop.next(_earliest(self.watchdog.next_check(), look.again_at)):
                case WorkerExit() as exit_ if attempt.note(exit_):
                    if exit_.status != 0:
                        asked = self._let_person_finish(scene)
                        return asked or Reported(self._failure_report(scene))
                    if not attempt.running:
                        return Succeeded(attempt.return_values())
                case NodesWaiting(watch=watch, count=count) if watch is scene.membership:
                    self.options.record("nodes_waiting", count=count)
                    return Reported(of_waiting_nodes(count))
                case None:
                    stuck = self.watchdog.stuck_worker(attempt.workers.pids())
                    if stuck is not None:
                        return Reported(self._stuck_report(scene, stuck))
                case observation:
                    if (told := self._told_by_others(observation, scene)) is not None:
                        return told

    def exit_together(self, scene: Scene, timeout: float) -> Reported | None:
        """Wait until every node has succeeded. A report comes back if a peer failed meanwhile."""
        deadline = time.monotonic() + timeout
        self.loop.phase = Phase.FINISHING
        try:
            self.loop.call("exit-barrier", scene.agreement.finish)
            while True:
                match self.loop.next(deadline):
                    case PeersDone(agreement=agreement) if agreement is scene.agreement:
                        leave(self.loop, agreement)
                        return None
                    case None:
                        self.options.say(
                            f"the other nodes did not finish within {timeout:g} s; "
                            "exiting without them"
                        )
                        self.options.record("exit_barrier_timeout")
                        return None
                    case observation:
                        if (told := self._told_by_others(observation, scene)) is not None:
                            return told
        except ControlStoreLost as lost:
            self.options.record("exit_barrier_lost", reason=lost.message)
            return None

    def keep_own_stacks(self, attempt: RunningAttempt) -> None:
        """Another node has noticed a hang and dumped its stacks; ours are as telling."""
        stacks = self.loop.call("stacks", lambda: attempt.stacks(_PEER_STACKS_SECONDS))
        self._keep_flight_records(attempt)
        self.options.record("stacks", stacks=stacks)

    def _told_by_others(self, observation: object, scene: Scene) -> Reported | None:
        """What a peer, the manager or a person has said that the job has to decide on."""
        match observation:
            case PeersFrozen(agreement=agreement) if agreement is scene.agreement:
                return Reported(None)
            case LostPeer(round_=round_, host=host) if round_ is scene.round_:
                return Reported(of_lost_peer(host))
            case OperatorRequest() as request if self._grants(request, scene):
                return Reported(of_request(request, scene.round_.rank), request)
            case _:
                return None  # of an earlier attempt, or nothing comes of it

    def _grants(self, request: OperatorRequest, scene: Scene) -> bool:
        """Take it, or say that nothing follows: it would make the job fail.

        What follows is said when the nodes have agreed: on another one, something may have happened
        a moment before. An abort is honoured whatever they agree on.
        """
        round_ = scene.round_
        settlement = self.judge.grant(of_request(request, round_.rank)["request"], round_.counters)
        is_granted = settlement.decision.action is not Action.FAIL
        says = promise(settlement, round_.world_size, has_manager=self.options.leash is not None)
        if is_granted and not request.is_abort:
            return request.take()
        return request.reply(Reply(is_granted, says)) and is_granted

    def _let_person_finish(self, scene: Scene) -> Reported | None:
        """A worker failed beside one that a person looks into: nothing is killed meanwhile.

        Unless an operator asks for something.
        """
        while scene.attempt.looked_into():
            match self.loop.next(time.monotonic() + _PROMPT_SECONDS):
                case WorkerExit() as exit_:
                    scene.attempt.note(exit_)
                case observation:
                    if (told := self._told_by_others(observation, scene)) is not None:
                        return told
        return None

    def _failure_report(self, scene: Scene) -> Report:
        """The failure of this node. One that looks like a consequence waits for a better one."""
        attempt = scene.attempt
        self.loop.phase = Phase.DECIDING
        deadline = time.monotonic() + BETTER_REPORT_SECONDS
        failures = attempt.failures()
        while attempt.running and attempt.has_only_consequences(failures):
            match self.loop.next(deadline):
                case WorkerExit() as exit_ if attempt.note(exit_):
                    failures = attempt.failures()
                case None:
                    break
                case PeersFrozen(agreement=agreement) if agreement is scene.agreement:
                    break
                case LostPeer(round_=round_, host=host) if round_ is scene.round_:
                    return of_lost_peer(host)
                case _:
                    pass
        round_, stacks = scene.round_, self._stacks_of_the_late(attempt, failures)
        return self.reporter.of_failure(attempt, failures, round_.rank, round_.counters, stacks)

    def _stacks_of_the_late(
        self, attempt: RunningAttempt, failures: Sequence[WorkerFailure]
    ) -> dict[int, str]:
        """Who gave up waiting has lost more time than it takes to ask where the others are."""
        if not attempt.running or not any(map(is_time_out, failures)):
            return {}
        stacks: dict[int, str] = self.loop.call(
            "stacks", lambda: attempt.stacks(_PEER_STACKS_SECONDS)
        )
        return stacks

    def _hang_report(self, scene: Scene, hang: Hang) -> Report:
        attempt, round_ = scene.attempt, scene.round_
        stacks = self.loop.call("stacks", attempt.stacks)
        self._keep_flight_records(attempt)
        return self.reporter.of_hang(attempt, hang, stacks, round_.rank, round_.counters)

    def _warn_of_hang(self, attempt: RunningAttempt, hang: Hang) -> None:
        stacks = self.loop.call("stacks", attempt.stacks)
        where = summarise({attempt.global_ranks[rank]: text for rank, text in stacks.items()})
        minutes = (time.monotonic() - hang.since) / 60
        self.options.record("no_progress_warning", minutes=minutes, where=where, stacks=stacks)
        self.options.say(
            f"nothing has moved for {minutes:.0f} minutes; --hang-timeout would act:\n{where}"
        )

    def _keep_flight_records(self, attempt: RunningAttempt) -> None:
        kept = keep_flight_records(attempt, self.options.run_directory)
        if kept:
            self.options.record("flight_records", files=[str(path) for path in kept])

    def _stuck_report(self, scene: Scene, stuck: WorkerFailure) -> Report:
        round_ = scene.round_
        report = self.reporter.of_failure(scene.attempt, [stuck], round_.rank, round_.counters)
        return {**report, "stuck": True}


def leave(loop: Loop, agreement: Agreement) -> None:
    """Say that this node needs the round no longer."""
    try:
        loop.call("leave", agreement.leave)
    except ControlStoreLost:
        return  # then nobody is left to wait for


def _earliest(*times: float | None) -> float | None:
    return min((time_ for time_ in times if time_ is not None), default=None)
