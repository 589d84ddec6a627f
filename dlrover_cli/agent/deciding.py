"""One decision of the whole job on a report; this node's own, if the others cannot be asked."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dlrover_cli.agent.agreement import (
    WEIGHT_MEMBERSHIP,
    Agreement,
    ControlStoreLost,
    LocalAgreement,
    Report,
)
from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.calls import Call
from dlrover_cli.agent.judge import Judge, Settlement
from dlrover_cli.agent.loop import STORE_SECONDS, Loop
from dlrover_cli.agent.narration import cause_of
from dlrover_cli.agent.observations import LostPeer
from dlrover_cli.agent.reports import of_lost_peer, of_request
from dlrover_cli.agent.requests import OperatorRequest, Phase
from dlrover_cli.agent.rounds import Round
from dlrover_cli.failover.decide import Counters
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.workers.api import WorkerExit
from dlrover_cli.workers.inbox import Inbox


@dataclass(frozen=True, slots=True)
class Decider:
    """Brings reports before the judge of whichever node the agents agree on."""

    inbox: Inbox
    loop: Loop
    judge: Judge
    timeout: float
    """How long a decision may take, in seconds."""
    record: Recorder
    say: Callable[[str], None]

    def decide(
        self, report: Report | None, attempt: RunningAttempt, agreement: Agreement, round_: Round
    ) -> Settlement:
        """What the whole job does next. No report if a peer has one."""
        counters = round_.counters
        self.loop.phase = Phase.DECIDING
        try:
            if report is not None and isinstance(agreement, LocalAgreement):
                agreement.add_report(report)
            elif report is not None:
                self.loop.call("report", lambda: agreement.add_report(report))
            settled, is_first = self._await_settlement(attempt, agreement, round_)
        except ControlStoreLost as lost:
            self.record("control_store_lost", reason=lost.message)
            chosen = report or {"weight": WEIGHT_MEMBERSHIP, "reason": lost.message}
            settled = self.loop.call("judge", lambda: self.settle(chosen, counters), self.timeout)
            is_first = True  # it is this node's own
        settlement = Settlement.from_json(settled)
        if settlement.failure is not None:
            self.judge.remember(settlement.failure)
        if settlement.verdict is not None:
            for problem in settlement.verdict.problems:
                self.say(problem)
        self._record(settlement, is_first=is_first)
        return settlement

    def grant(self, request: OperatorRequest, node_rank: int, counters: Counters) -> Settlement:
        """What follows from a request, without asking anybody."""
        report = of_request(request, node_rank)
        settlement = self.judge.grant(report["request"], counters)
        self._record(settlement, is_first=True)
        return settlement

    def settle(self, report: Report, counters: Counters) -> Report:
        """Called off the loop, on the node whose report was chosen."""
        return self.judge.settle(report, counters).to_json()

    def _await_settlement(
        self, attempt: RunningAttempt, agreement: Agreement, round_: Round
    ) -> tuple[Report, bool]:
        """The decision, and whether this node is the first to act on it."""
        settle = partial(self.settle, counters=round_.counters)
        call = Call(
            self.inbox,
            "settle",
            lambda: (agreement.settle(settle, self.timeout), agreement.is_first()),
        )
        deadline = time.monotonic() + self.timeout + STORE_SECONDS
        while not call.done:
            match self.loop.next(deadline):
                case WorkerExit() as exit_:
                    attempt.note(exit_)
                case LostPeer(round_=lost_from, host=host) if lost_from is round_:
                    report = of_lost_peer(host)
                    Call(self.inbox, "report", partial(agreement.add_report, report))
                case None:
                    raise ControlStoreLost("no decision within the time that it may take")
                case _:
                    pass
        settled: tuple[Report, bool] = call.result()
        return settled

    def _record(self, settlement: Settlement, *, is_first: bool) -> None:
        verdict, failure = settlement.verdict, settlement.failure
        self.record(
            "decision",
            action=settlement.decision.action.value,
            reason=settlement.decision.reason,
            exit_code=settlement.decision.exit_code,
            cause=None if failure is None else cause_of(failure),
            trigger=_trigger(settlement),
            node_rank=settlement.node_rank,
            strategy=None if verdict is None else verdict.strategy.value,
            decided_by=None if verdict is None else verdict.decided_by,
            verdict_reason=None if verdict is None else verdict.reason,
            problems=[] if verdict is None else list(verdict.problems),
            seconds=settlement.seconds,
            backoff=settlement.backoff,
            is_first=is_first,
        )


def _trigger(settlement: Settlement) -> str:
    if settlement.failure is not None:
        return settlement.failure.kind.value
    return "membership" if settlement.request is None else "operator"
