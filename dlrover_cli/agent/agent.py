"""The elastic agent: joins a round, starts the workers, watches, and acts on what it observes.

The loop is observe, decide, perform. Everything that can happen arrives in one inbox; the agent's
thread never blocks on anything else, so that a signal is acted on at once even in the middle of a
rendezvous. torch's WorkerSpec, rendezvous handlers, events and metrics are used under their own
names.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch.distributed.elastic.agent.server.api import (
    DEFAULT_ROLE,
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.metrics import prof, put_metric
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import RendezvousGracefulExitError, RendezvousHandler

from dlrover_cli.agent.agreement import (
    BETTER_REPORT_SECONDS,
    Agreement,
    ControlStoreLost,
    LocalAgreement,
    PeersDone,
    PeersFrozen,
    Report,
    StoreAgreement,
)
from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.calls import Call
from dlrover_cli.agent.deciding import Decider
from dlrover_cli.agent.ending import Ending
from dlrover_cli.agent.flight_recorder import collect_flight_records
from dlrover_cli.agent.hang_watch import HangWatch
from dlrover_cli.agent.judge import Judge, Settlement
from dlrover_cli.agent.launches import LaunchBuilder
from dlrover_cli.agent.loop import STORE_SECONDS, Loop, TakenOut
from dlrover_cli.agent.membership import MembershipWatch, NodesWaiting
from dlrover_cli.agent.narration import narrate
from dlrover_cli.agent.observations import LostPeer, Reported, Succeeded
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.progress import Hang, HangSettings
from dlrover_cli.agent.ranks import Hello
from dlrover_cli.agent.reports import (
    Reporter,
    kept_failures,
    of_departure,
    of_lost_peer,
    of_waiting_nodes,
)
from dlrover_cli.agent.rounds import Round, StoreForWorkers, join
from dlrover_cli.agent.torch_glue import fill_group, process_failure, profiled_as, workers_of
from dlrover_cli.agent.watchdog import Watchdog
from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure
from dlrover_cli.errors import DlroverError, LaunchError, RendezvousFailed
from dlrover_cli.failover.decide import Action, Counters, Limits
from dlrover_cli.leash.client import PeerLost
from dlrover_cli.rendezvous.aborted import mark_aborted
from dlrover_cli.rendezvous.departure import bury, member_of
from dlrover_cli.rendezvous.faults import explain
from dlrover_cli.workers.api import StartRequest, WorkerExit, Workers, WorkerStarter
from dlrover_cli.workers.commands import CommandStarter
from dlrover_cli.workers.functions import FunctionStarter
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.never_started import NeverStarted
from dlrover_cli.workers.stacks import summarise

_DEPARTURE_SECONDS = 1.0
_WARM_UP_SECONDS = 86_400.0  # imports take what they take, as they would in the workers
_PEER_STACKS_SECONDS = 0.5
_SILENCE_SECONDS = 1.0


class LocalElasticAgent(SimpleElasticAgent):
    """Runs the workers of one node; takes the arguments of torch's class of the same name.

    Guarantees: every worker of an attempt has ended before the next attempt starts; no worker
    outlives the agent, however the agent ends; ``attempt``, ``restart_count`` and ``generation``
    are the same on every node; the shutdown timeout holds on every path.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs | None = None,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: int = 30,
        health_check_server: Any = None,
        *,
        starter: WorkerStarter | None = None,
        options: AgentOptions | None = None,
    ) -> None:
        super().__init__(spec, exit_barrier_timeout)
        self._shutdown_timeout = shutdown_timeout
        self._options = options or AgentOptions()
        limits = self._options.limits or Limits(max_restarts=spec.max_restarts)
        self._counters = self._options.counters
        self._reporter = Reporter(limits, self._options.record, self._options.run_directory)
        self._inbox = Inbox()
        self._loop = Loop(self._inbox)
        self._decider = Decider(
            self._inbox,
            self._loop,
            _judge(self._options, limits),
            self._options.decision_timeout,
            self._options.record,
            self._options.say,
        )
        self._starter = starter or _default_starter(spec, start_method, self._options.say)
        self._store_for_workers = StoreForWorkers(
            spec.rdzv_handler, spec.master_addr, spec.master_port, self._options.store_host
        )
        self._watchdog = Watchdog(health_check_server, self._options.record)
        self._launches = LaunchBuilder(
            spec,
            logs_specs or DefaultLogsSpecs(),
            log_line_prefix_template,
            self._watchdog,
            self._options.run_directory,
            self._options.say,
            python=self._options.python_workers,
            frame_locals=self._options.frame_locals,
        )
        self._round: Round | None = None
        self._agreement: Agreement = LocalAgreement(self._inbox)
        self._membership: MembershipWatch | None = None
        self._attempt: RunningAttempt | None = None
        self._watch = HangWatch(HangSettings(), None, None)
        self.ending: Ending | None = None

    @property
    def counters(self) -> Counters:
        """The three numbers of the attempt that is under way, or of the last one."""
        return self._counters

    @profiled_as("SimpleElasticAgent.run")
    def run(self, role: str = DEFAULT_ROLE) -> RunResult:
        """Run the workers to their end. Raises SignalException, RendezvousFailed, LaunchError."""
        started = time.monotonic()
        clean = False
        with self._inbox.receiving_signals(self._options.signals), self._leashed():
            try:
                result = self._invoke_run(role)
                self._total_execution_time = int(time.monotonic() - started)
                self._record_metrics(result)
                self._record_worker_events(result)
                clean = not result.is_failed()
                return result
            except RendezvousGracefulExitError as left_out:
                self._options.record("rendezvous_left_out", reason=str(left_out))
                clean = True
                return RunResult(state=WorkerState.SUCCEEDED)
            except SignalException as caught:
                self._options.record("signal", signal=caught.sigval.name)
                with self._telling_of_patience(caught.sigval):
                    self._announce_departure(caught.sigval)
                    self._shutdown(caught.sigval, self._shutdown_timeout)
                raise
            except TakenOut as taken:
                self._options.record("taken_out", reason=taken.message)
                self._end_attempt(
                    signal.SIGTERM if taken.grace else signal.SIGKILL,
                    taken.grace,
                    forward_to_all=True,
                )
                raise
            finally:
                self._shutdown(signal.SIGTERM, self._shutdown_timeout)
                self._starter.close(leave_survivors=clean)
                self._launches.close()
                self._watchdog.stop()
                self._total_execution_time = int(time.monotonic() - started)
                self._inbox.close()

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        group = self._worker_group
        while True:
            self._initialize_workers(group)
            self._put_state_metrics(WorkerState.HEALTHY)
            happening = self._observe(self._current())
            if isinstance(happening, Succeeded):
                group.state = WorkerState.SUCCEEDED
                self._put_state_metrics(WorkerState.SUCCEEDED)
                peers = self._exit_together()
                if peers is None:
                    self._stop_workers(group)
                    return RunResult(WorkerState.SUCCEEDED, happening.return_values)
                happening = peers
            self._stop_membership_watch()
            attempt = self._current()
            settlement = self._decider.decide(
                happening.report, attempt, self._agreement, self._last_round()
            )
            result = self._perform(attempt, settlement)
            if result is not None:
                return result

    # ---- joining and starting ------------------------------------------------------------------

    @profiled_as("SimpleElasticAgent._rendezvous")
    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        spec = worker_group.spec
        backend = spec.rdzv_handler.get_backend()
        self._options.record("rendezvous_started", backend=backend)
        started = time.monotonic()
        with self.record_duration("RENDEZVOUS"):
            round_ = self._join(spec, backend)
        with self.record_duration("ASSIGN_WORKER_RANKS"):
            worker_group.workers = self._assign_worker_ranks(
                round_.store, round_.rank, round_.world_size, spec, round_
            )
        self._round = round_
        self._counters = round_.counters
        self._remaining_restarts = spec.max_restarts - self._counters.restart_count
        fill_group(worker_group, round_)
        self._agreement = (
            LocalAgreement(self._inbox)
            if round_.world_size == 1
            else StoreAgreement(
                self._inbox,
                round_.control,
                round_.rank,
                round_.world_size,
                self._options.patience,
            )
        )
        self._options.on_round(round_.rank, self._counters.attempt)
        self._tell_manager(
            "round",
            attempt=self._counters.attempt,
            rank=round_.rank,
            nodes=round_.world_size,
            restart_count=self._counters.restart_count,
            generation=self._counters.generation,
        )
        self._options.record(
            "rendezvous_completed",
            nodes=round_.world_size,
            world_size=round_.placement.world_size,
            seconds=time.monotonic() - started,
        )

    def _join(self, spec: WorkerSpec, backend: str) -> Round:
        hello = Hello(spec.role, spec.local_world_size, self._counters)
        try:
            round_: Round = self._loop.call(
                "rendezvous",
                lambda: join(
                    spec.rdzv_handler,
                    hello,
                    self._store_for_workers,
                    spec.local_addr,
                    self._options.join_timeout,
                ),
                self._options.join_timeout + STORE_SECONDS,
            )
        except ControlStoreLost as lost:
            raise RendezvousFailed(
                f"the rendezvous did not come to an end: {lost.message}",
                hint="check the network between the nodes; --rdzv-conf timeout=SECONDS allows more",
            ) from lost
        except (DlroverError, SignalException, RendezvousGracefulExitError):
            raise
        # Whatever a rendezvous handler, ours or a user's, may raise; sys.exit() in it included.
        except (Exception, SystemExit) as error:
            endpoint = f"{spec.master_addr}:{spec.master_port}" if spec.master_addr else backend
            raise explain(error, backend, endpoint) from error
        return round_

    @profiled_as("SimpleElasticAgent._assign_worker_ranks")
    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec, round_: Round
    ) -> list[Worker]:
        return workers_of(round_, spec.local_world_size)

    @prof
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        spec = worker_group.spec
        if self._round is None or spec.entrypoint is None:
            raise DlroverError("workers start after a rendezvous, with something to run")
        prepared = self._launches.build(worker_group, self._round)
        request = StartRequest(
            self._counters.attempt,
            spec.entrypoint,
            prepared.launches,
            getattr(spec, "numa_options", None),
        )
        workers = self._start_or_fail(request, alone=self._round.world_size == 1)
        self._attempt = RunningAttempt(
            self._counters.attempt,
            workers,
            {worker.local_rank: worker.global_rank for worker in worker_group.workers},
            {launch.local_rank: launch.error_file for launch in prepared.launches},
            prepared.directories,
            prepared.pages,
            self._options.record,
            self._options.say,
        )
        self._watch = HangWatch(self._options.hang, self._attempt, self._round)
        self._agreement.watch()
        if not getattr(spec.rdzv_handler, "never_grows", False):
            self._membership = MembershipWatch(
                spec.rdzv_handler,
                spec.monitor_interval,
                self._inbox,
                self._options.record,
                self._options.say,
            )
        self._options.record(
            "workers_started",
            restart_count=self._counters.restart_count,
            generation=self._counters.generation,
            workers=[
                {
                    "global_rank": worker.global_rank,
                    "local_rank": worker.local_rank,
                    "pid": workers.pids()[worker.local_rank],
                }
                for worker in worker_group.workers
                if worker.local_rank in workers.pids()
            ],
        )
        return workers.pids()

    def _start_or_fail(self, request: StartRequest, *, alone: bool) -> Workers:
        try:
            self._loop.call("warm-up", self._starter.ready, _WARM_UP_SECONDS)
            return self._starter.start(request, self._inbox)
        except LaunchError as error:
            if alone:
                raise
            self._options.say(error.message)
            return NeverStarted(request, error, self._inbox)

    # ---- observing -----------------------------------------------------------------------------

    def _observe(self, attempt: RunningAttempt) -> Succeeded | Reported:
        """Watch the running attempt until it has succeeded here or the job has to decide."""
        while True:
            look = self._watch.look()
            if look.hang is not None:
                return Reported(self._hang_report(attempt, look.hang))
            if look.warning is not None:
                self._warn_of_hang(attempt, look.warning)
            match self._loop.next(_earliest(self._watchdog.next_check(), look.again_at)):
                case WorkerExit() as exit_ if attempt.note(exit_):
                    if exit_.status != 0:
                        return Reported(self._failure_report(attempt))
                    if not attempt.running:
                        return Succeeded(attempt.return_values())
                case PeersFrozen(agreement=agreement) if agreement is self._agreement:
                    return Reported(None)
                case LostPeer(round_=round_, host=host) if round_ is self._round:
                    return Reported(of_lost_peer(host))
                case NodesWaiting(watch=watch, count=count) if watch is self._membership:
                    self._options.record("nodes_waiting", count=count)
                    return Reported(of_waiting_nodes(count))
                case None:
                    stuck = self._watchdog.stuck_worker(attempt.workers.pids())
                    if stuck is not None:
                        return Reported(self._stuck_report(attempt, stuck))
                case _:
                    pass  # of an earlier attempt

    def _exit_together(self) -> Reported | None:
        """Wait until every node has succeeded. A report comes back if a peer failed meanwhile."""
        deadline = time.monotonic() + self._exit_barrier_timeout
        self._in_exit_barrier = True
        try:
            self._loop.call("exit-barrier", self._agreement.finish)
            while True:
                match self._loop.next(deadline):
                    case PeersDone(agreement=agreement) if agreement is self._agreement:
                        self._leave()
                        return None
                    case PeersFrozen(agreement=agreement) if agreement is self._agreement:
                        return Reported(None)
                    case LostPeer(round_=round_, host=host) if round_ is self._round:
                        return Reported(of_lost_peer(host))
                    case None:
                        self._options.say(
                            "the other nodes did not finish within "
                            f"{self._exit_barrier_timeout:g} s; exiting without them"
                        )
                        self._options.record("exit_barrier_timeout")
                        return None
                    case _:
                        pass
        except ControlStoreLost as lost:
            self._options.record("exit_barrier_lost", reason=lost.message)
            return None
        finally:
            self._in_exit_barrier = False

    def _failure_report(self, attempt: RunningAttempt) -> Report:
        """The failure of this node. One that looks like a consequence waits for a better one."""
        deadline = time.monotonic() + BETTER_REPORT_SECONDS
        failures = attempt.failures()
        while attempt.running and attempt.has_only_consequences(failures):
            match self._loop.next(deadline):
                case WorkerExit() as exit_ if attempt.note(exit_):
                    failures = attempt.failures()
                case None:
                    break
                case PeersFrozen(agreement=agreement) if agreement is self._agreement:
                    break
                case LostPeer(round_=round_, host=host) if round_ is self._round:
                    return of_lost_peer(host)
                case _:
                    pass
        return self._reporter.of_failure(attempt, failures, self._node_rank(), self._counters)

    def _hang_report(self, attempt: RunningAttempt, hang: Hang) -> Report:
        stacks = self._loop.call("stacks", attempt.stacks)
        self._keep_flight_records(attempt)
        return self._reporter.of_hang(attempt, hang, stacks, self._node_rank(), self._counters)

    def _warn_of_hang(self, attempt: RunningAttempt, hang: Hang) -> None:
        stacks = self._loop.call("stacks", attempt.stacks)
        where = summarise({attempt.global_ranks[rank]: text for rank, text in stacks.items()})
        minutes = (time.monotonic() - hang.since) / 60
        self._options.record("no_progress_warning", minutes=minutes, where=where, stacks=stacks)
        self._options.say(
            f"nothing has moved for {minutes:.0f} minutes; --hang-timeout would act:\n{where}"
        )

    def _keep_flight_records(self, attempt: RunningAttempt) -> None:
        directory = self._options.run_directory
        if directory is not None:
            since = time.time() - attempt.lifetime()
            destination = directory.node / "flight_records"
            ranks = attempt.global_ranks.values()
            kept = collect_flight_records(os.environ, ranks, since, destination)
            if kept:
                self._options.record("flight_records", files=[str(path) for path in kept])

    def _stuck_report(self, attempt: RunningAttempt, stuck: WorkerFailure) -> Report:
        report = self._reporter.of_failure(attempt, [stuck], self._node_rank(), self._counters)
        return {**report, "stuck": True}

    # ---- performing ----------------------------------------------------------------------------

    def _perform(self, attempt: RunningAttempt, settlement: Settlement) -> RunResult | None:
        """Carry out a decision: the result if the run is over here, None if it goes on."""
        failure, action = settlement.failure, settlement.decision.action
        self._options.say(narrate(settlement))
        mine = failure is not None and failure.node_rank == self._node_rank()
        if failure is not None and failure.kind is FailureKind.HANG and not mine:
            # The node that noticed has dumped its own; ours are as telling, and still to be had.
            stacks = self._loop.call("stacks", lambda: attempt.stacks(_PEER_STACKS_SECONDS))
            self._keep_flight_records(attempt)
            self._options.record("stacks", stacks=stacks)
        over = action in (Action.FAIL, Action.ABORT) or (action is Action.REPLACE_NODE and mine)
        if failure is not None and over:
            return self._end_run(attempt, settlement, failure)
        self._put_state_metrics(WorkerState.HEALTHY if failure is None else WorkerState.FAILED)
        self._stop_workers(self._worker_group)
        self._worker_group.state = WorkerState.STOPPED
        self._counters = settlement.counters
        self._loop.wait(settlement.backoff)
        return None

    def _end_run(
        self, attempt: RunningAttempt, settlement: Settlement, failure: AgentFailureInfo
    ) -> RunResult:
        alone = self._options.leash is None and (self._round is None or self._round.world_size == 1)
        world_size = 1 if self._round is None else self._round.placement.world_size
        self.ending = Ending(settlement, failure, alone, world_size)
        # Taken down before our own signals blur who failed by itself.
        failures = {
            worker.global_rank: process_failure(worker, attempt.error_file(worker.global_rank))
            for worker in (*failure.workers, *attempt.failures())
        }
        self._put_state_metrics(WorkerState.FAILED)
        if settlement.decision.action is Action.ABORT:
            with contextlib.suppress(ControlStoreLost):
                self._loop.call("mark-aborted", lambda: mark_aborted(self._handler()))
        self._stop_workers(self._worker_group)
        self.ending = replace(self.ending, alike=attempt.failed_alone())
        self._worker_group.state = WorkerState.FAILED
        if settlement.decision.action is not Action.REPLACE_NODE:  # else the others go on
            self._leave()
        elif alone:
            self._loop.wait(settlement.backoff)
        return RunResult(WorkerState.FAILED, failures=failures)

    def _leave(self) -> None:
        with contextlib.suppress(ControlStoreLost):  # then nobody is left to wait for
            self._loop.call("leave", self._agreement.leave)

    def _announce_departure(self, signum: signal.Signals) -> None:
        """Tell the peers that we go because we were told to, so that it costs them no restart."""
        agreement, attempt = self._agreement, self._attempt
        if attempt is None or isinstance(agreement, LocalAgreement) or attempt.has_succeeded():
            return
        report = of_departure(socket.gethostname(), signum.name)
        settle = partial(self._decider.settle, counters=self._counters)
        call = Call(
            self._inbox,
            "departure",
            lambda: agreement.depart(report, settle, _DEPARTURE_SECONDS),
        )
        deadline = time.monotonic() + _DEPARTURE_SECONDS
        while not call.done:
            match self._inbox.next(deadline):
                case WorkerExit() as exit_:
                    attempt.note(exit_)
                case None:
                    return
                case _:
                    pass

    # ---- stopping ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _telling_of_patience(self, signum: signal.Signals) -> Iterator[None]:
        """Whoever pressed Ctrl-C should not wonder for half a minute whether it was noticed."""
        line = (
            f"{signum.name} received: the workers have {self._shutdown_timeout} s to end; "
            "Ctrl-C or SIGINT kills them at once"
        )
        timer = threading.Timer(_SILENCE_SECONDS, self._options.say, [line])
        timer.name = "patience"
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    @prof
    def _stop_workers(self, worker_group: WorkerGroup, *args: Any, **kwargs: Any) -> None:
        self._end_attempt(signal.SIGTERM, self._shutdown_timeout, forward_to_all=False)

    def _shutdown(
        self,
        death_sig: signal.Signals = signal.SIGTERM,
        timeout: int = 30,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._end_attempt(death_sig, timeout, forward_to_all=True)

    def _end_attempt(self, signum: signal.Signals, timeout: float, *, forward_to_all: bool) -> None:
        """End the attempt that is under way; does nothing the second time."""
        self._stop_membership_watch()
        self._watch.stop()
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end(self._inbox, signum, timeout, forward_to_all=forward_to_all)

    def _stop_membership_watch(self) -> None:
        watch, self._membership = self._membership, None
        if watch is not None:
            watch.stop()

    # ---- helpers -------------------------------------------------------------------------------

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Part of torch's interface; this agent is woken by events and never polls."""
        return RunResult(worker_group.state)

    @contextlib.contextmanager
    def _leashed(self) -> Iterator[None]:
        """Be in touch with the manager of the job, if it has one."""
        leash = self._options.leash
        if leash is None:
            yield
            return
        leash.start(self._hear_manager, member_of(self._handler()))
        try:
            yield
        finally:
            leash.tell(
                "ending",
                action=None if self.ending is None else self.ending.decision.action.value,
                reason="" if self.ending is None else self.ending.decision.reason,
            )
            leash.close()

    def _hear_manager(self, observation: object) -> None:
        """In the leash's thread, which must not wait for a store: the manager hears it breathe."""
        if not isinstance(observation, PeerLost):
            self._inbox.post(observation)
            return
        self._inbox.post(LostPeer(self._round, observation.host))
        funeral = partial(bury, self._handler(), observation.member)
        threading.Thread(target=funeral, name="bury", daemon=True).start()

    def _tell_manager(self, kind: str, **data: Any) -> None:
        if self._options.leash is not None:
            self._options.leash.tell(kind, **data)

    def _node_rank(self) -> int:
        return 0 if self._round is None else self._round.rank

    def _handler(self) -> RendezvousHandler:
        handler: RendezvousHandler = self._worker_group.spec.rdzv_handler
        return handler

    def _last_round(self) -> Round:
        if self._round is None:
            raise DlroverError("there was no rendezvous yet")
        return self._round

    def _current(self) -> RunningAttempt:
        if self._attempt is None:
            raise DlroverError("no attempt is under way")
        return self._attempt

    def _put_state_metrics(self, state: WorkerState) -> None:
        role = self._worker_group.spec.role
        put_metric(f"workers.{role}.remaining_restarts", self._remaining_restarts)
        put_metric(f"workers.{role}.{state.name.lower()}", 1)


def _earliest(*times: float | None) -> float | None:
    return min((time_ for time_ in times if time_ is not None), default=None)


def _judge(options: AgentOptions, limits: Limits) -> Judge:
    directory = options.run_directory
    earlier = () if directory is None else kept_failures(directory)
    return Judge(options.chain, limits, options.hosts_control_store, options.budget_reset, earlier)


def _default_starter(
    spec: WorkerSpec, start_method: str, say: Callable[[str], None]
) -> WorkerStarter:
    if isinstance(spec.entrypoint, str):
        return CommandStarter(say)
    return FunctionStarter(spec.role, start_method, say)
