"""One check of a round: node rank 0 says what comes next, every node does it, all hear the end."""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dlrover_cli.agent.agreement import ControlStoreLost
from dlrover_cli.agent.calls import Call
from dlrover_cli.agent.checking import Surroundings
from dlrover_cli.agent.loop import STORE_SECONDS
from dlrover_cli.agent.observations import LostPeer
from dlrover_cli.agent.rounds import Round
from dlrover_cli.preflight.exchange import Exchange, Message, NobodyElse, StoreExchange
from dlrover_cli.preflight.judging import Done, Reading, Stage, judge
from dlrover_cli.preflight.leaving import Ground, Verdict, settle
from dlrover_cli.preflight.plan import Wanted, next_stage
from dlrover_cli.preflight.probing import Part, PeerIsLost, Probes
from dlrover_cli.preflight.store import ProbeStore
from dlrover_cli.preflight.telling import bandwidths, lines_on, warnings_on
from dlrover_cli.rendezvous.departure import can_depart
from dlrover_cli.rendezvous.store_host import StoreHost
from dlrover_cli.telemetry.events import Recorder
from dlrover_cli.telemetry.run_dir import RunDirectory

_SLACK_SECONDS = 15.0
"""What a stage may take beside its probes: to end them, and for the store."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a check takes place; what an agent's options say as well."""

    record: Recorder
    say: Callable[[str], None]
    run_directory: RunDirectory | None
    min_nodes: int
    hosts_store: Callable[[], bool]
    store_host: StoreHost | None = None


class Check:
    """One check of one round, as one node goes through it."""

    def __init__(
        self, round_: Round, agent: Surroundings, probes: Probes, wanted: Wanted, place: Place
    ) -> None:
        self._round = round_
        self._agent = agent
        self._probes = probes
        self._wanted = wanted
        self._place = place
        self._history: list[Done] = []
        self._started = time.monotonic()
        self._exchange: Exchange = NobodyElse() if round_.world_size == 1 else StoreExchange(round_)

    def run(self) -> Verdict:
        verdict, hosts = self._lead() if self._round.rank == 0 else self._follow()
        self._place.record(
            "preflight_result",
            rank=self._round.rank,
            seconds=time.monotonic() - self._started,
            nodes=[
                {**finding.to_json(), "host": hosts[finding.node]} for finding in verdict.findings
            ],
            leaving=list(verdict.leaving),
            ends=verdict.ends,
        )
        hosts_store = self._round.rank == 0 or self._place.hosts_store()
        goes = bool(verdict.ends) or self._round.rank in verdict.leaving
        self._call("preflight-end", lambda: self._exchange.part(waits=hosts_store and goes))
        return verdict

    # ---- node rank 0 ---------------------------------------------------------------------------

    def _lead(self) -> tuple[Verdict, list[str]]:
        nodes = self._round.world_size
        reports: dict[int, Message] = {}
        with ProbeStore(self._place.store_host) as store:
            number = 0
            while True:
                measures = self._wanted.measures or self._round.check > 1
                stage = next_stage(nodes, self._history, measures=measures)
                if stage is None:
                    break
                workers = [reports.get(node, {}).get("workers", 0) for node in range(nodes)]
                order = {"stage": stage.to_json(), "port": store.port, "workers": workers}
                self._call("preflight-order", lambda: self._exchange.give(number, order))  # noqa: B023
                told = self._take_part(number, order)
                reports |= told
                readings = {
                    node: Reading.from_json(report["reading"])
                    for node, report in told.items()
                    if stage.group_of(node) is not None
                }
                self._history.append(Done(stage, readings))
                number += 1
        verdict = self._settled(reports)
        hosts = [str(reports.get(node, {}).get("host", "")) for node in range(nodes)]
        last = {
            "verdict": verdict.to_json(),
            "hosts": hosts,
            "warnings": warnings_on(verdict, self._history, hosts),
        }
        self._call("preflight-verdict", lambda: self._exchange.give(number, last))
        for line in lines_on(verdict, self._history, hosts, time.monotonic() - self._started):
            self._place.say(line)
        in_all = sum(int(report["workers"]) for report in reports.values())
        for line in bandwidths(self._history, in_all):
            self._place.say(line)
            self._place.record("preflight_bandwidth", line=line)
        return verdict, hosts

    def _take_part(self, number: int, order: Message) -> dict[int, Message]:
        self._do(number, order)
        seconds = self._wanted.seconds + _SLACK_SECONDS
        return self._call(
            "preflight-reports",
            lambda: self._exchange.collect(number, seconds),
            seconds + STORE_SECONDS,
        )

    def _settled(self, reports: dict[int, Message]) -> Verdict:
        ground = Ground(
            self._place.min_nodes,
            [node for node, report in reports.items() if report["hosts_store"]],
            can_depart(self._agent.spec.rdzv_handler),
        )
        findings = judge(self._round.world_size, self._history)
        return settle(findings, ground, excludes=self._wanted.excludes)

    # ---- the others ----------------------------------------------------------------------------

    def _follow(self) -> tuple[Verdict, list[str]]:
        # The first one may wait for others that do not report, and all of its own time.
        patience = 2 * (self._wanted.seconds + _SLACK_SECONDS) + STORE_SECONDS
        number = 0
        while True:
            order = self._call(
                "preflight-order",
                lambda: self._exchange.take(number, patience),  # noqa: B023
                patience + STORE_SECONDS,
            )
            if order is None:
                raise ControlStoreLost("the first node has not been heard of")
            if "verdict" in order:
                break
            self._do(number, order)
            number += 1
        for line in order["warnings"]:
            self._place.say(line)
        return Verdict.from_json(order["verdict"]), order["hosts"]

    # ---- every node ----------------------------------------------------------------------------

    def _do(self, number: int, order: Message) -> None:
        """This node's part in a stage, if it has one, and the report on it."""
        stage = Stage.from_json(order["stage"])
        group = stage.group_of(self._round.rank)
        reading = Reading()
        if group is not None:
            workers = [order["workers"][node] or self._own_workers for node in group]
            position = group.index(self._round.rank)
            reading = self._probes.run(
                Part(
                    stage.kind,
                    self._round.check,
                    sum(workers[:position]),
                    sum(workers),
                    self._round.master_addr,
                    order["port"],
                    f"{number}/{group[0]}",
                )
            )
            self._place.record("preflight_stage", group=list(group), **_told(stage, reading))
        report = {
            "reading": reading.to_json(),
            "host": socket.gethostname(),
            "workers": self._own_workers,
            "hosts_store": self._place.hosts_store(),
        }
        self._call("preflight-report", lambda: self._exchange.report(number, report))

    @property
    def _own_workers(self) -> int:
        return int(self._agent.spec.local_world_size)

    def _call(self, name: str, function: Callable[[], _T], seconds: float = STORE_SECONDS) -> _T:
        """As the loop's own, but it ends when a node is lost; nothing else is waited for."""
        call = Call(self._agent.inbox, name, function)
        deadline = time.monotonic() + seconds
        while not call.done:
            match self._agent.loop.next(deadline):
                case None:
                    raise ControlStoreLost(f"no answer within {seconds:g} s ({name})")
                case LostPeer():
                    raise PeerIsLost
                case _:
                    pass  # of workers and rounds that are over
        value: _T = call.result()
        return value


def _told(stage: Stage, reading: Reading) -> dict[str, Any]:
    return {"stage": stage.kind.value, **reading.to_json()}
