"""The elastic agent: joins a round, starts the workers, watches, and acts on what it observes.

The loop is observe, decide, perform. Everything that can happen arrives in one inbox; the agent's
thread never blocks on anything else, so that a signal is acted on at once even in the middle of a
rendezvous. torch's WorkerSpec, rendezvous handlers, events and metrics are used under their own
names.
"""

import contextlib
import signal
import time
from collections.abc import Callable
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
    Agreement,
    ControlStoreLost,
    LocalAgreement,
    StoreAgreement,
)
from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.checking import Surroundings
from dlrover_cli.agent.control import AgentControl, View
from dlrover_cli.agent.deciding import Decider
from dlrover_cli.agent.departing import announce_departure, telling_of_patience
from dlrover_cli.agent.ending import Ending
from dlrover_cli.agent.hang_watch import HangWatch
from dlrover_cli.agent.judge import Judge, Settlement
from dlrover_cli.agent.launches import LaunchBuilder, Prepared
from dlrover_cli.agent.loop import Loop, TakenOut
from dlrover_cli.agent.manager_link import ManagerLink
from dlrover_cli.agent.meeting import Meeting
from dlrover_cli.agent.membership import MembershipWatch
from dlrover_cli.agent.narration import narrate, reply_after
from dlrover_cli.agent.observations import Reported, Succeeded
from dlrover_cli.agent.observing import Observer, Scene, leave
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.progress import HangSettings
from dlrover_cli.agent.reports import Reporter, kept_failures
from dlrover_cli.agent.requests import AbortRequested, OperatorRequest, Phase
from dlrover_cli.agent.rounds import Round
from dlrover_cli.agent.sampling import sampler_of
from dlrover_cli.agent.terminal_modes import TerminalModes
from dlrover_cli.agent.torch_glue import fill_group, process_failure, profiled_as, workers_of
from dlrover_cli.agent.watchdog import Watchdog
from dlrover_cli.contracts import FailureKind
from dlrover_cli.errors import DlroverError, LaunchError
from dlrover_cli.failover.decide import Action, Counters, Limits
from dlrover_cli.rendezvous.aborted import mark_aborted
from dlrover_cli.telemetry.stop_request import read_stop_request
from dlrover_cli.workers.api import StartRequest, Workers, WorkerStarter
from dlrover_cli.workers.commands import CommandStarter
from dlrover_cli.workers.functions import FunctionStarter
from dlrover_cli.workers.inbox import Inbox
from dlrover_cli.workers.never_started import NeverStarted

_MARK_SECONDS = 2.0
_PLACEMENT_SECONDS = 86_400.0  # whoever decides says so when it has waited long enough
_WARM_UP_SECONDS = 86_400.0  # imports take what they take, as they would in the workers


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
        reporter = Reporter(limits, self._options.record, self._options.run_directory)
        self._inbox = Inbox()
        self._loop = Loop(self._inbox, self._hand_on)
        self._decider = Decider(
            self._inbox,
            self._loop,
            _judge(self._options, limits),
            self._options.decision_timeout,
            self._options.record,
            self._options.say,
        )
        self._starter = starter or _default_starter(spec, start_method, self._options.say)
        self._meeting = Meeting(spec, self._loop, self._options)
        self._watchdog = Watchdog(health_check_server, self._options.record)
        self._launches = LaunchBuilder(
            spec,
            logs_specs or DefaultLogsSpecs(),
            replace(self._options.shown, teed_prefix=log_line_prefix_template),
            self._watchdog,
            self._options.run_directory,
            self._options.say,
            python=self._options.python_workers,
            frame_locals=self._options.frame_locals,
            debugging=self._options.debugging,
        )
        self._observer = Observer(
            self._loop, self._watchdog, reporter, self._options, self._decider.judge
        )
        self._terminal = TerminalModes(is_lent=self._options.debugging.lends_terminal)
        self._control = AgentControl(self._options, self._inbox, self._view)
        self._manager = ManagerLink(
            self._options.leash,
            self._inbox,
            spec.rdzv_handler,
            lambda: self._round,
            self._control.respond_to_node,
        )
        self._round: Round | None = None
        self._agreement: Agreement = LocalAgreement(self._inbox)
        self._membership: MembershipWatch | None = None
        self._attempt: RunningAttempt | None = None
        self._watch = HangWatch(HangSettings(), None, None)
        self._sampler = sampler_of(self._options)
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
        signals = self._inbox.receiving_signals(self._options.signals)
        with signals, self._manager.held(lambda: self.ending), self._control.opened():
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
                self._loop.phase = Phase.ENDING
                self._depart(caught.sigval)
                raise
            except AbortRequested as asked:
                granted = self._decider.grant(asked.request, self._node_rank(), self._counters)
                self._options.say(narrate(granted))
                return self._end_run(self._attempt, granted)
            except TakenOut as taken:
                self._options.record("taken_out", reason=taken.message)
                self._end_attempt(
                    signal.SIGTERM if taken.grace else signal.SIGKILL,
                    taken.grace,
                    forward_to_all=True,
                )
                raise
            finally:
                self._loop.phase = Phase.ENDING
                self._shutdown(signal.SIGTERM, self._shutdown_timeout)
                self._starter.close(leave_survivors=clean)
                self._sampler.close()
                self._launches.close()
                self._watchdog.stop()
                self._total_execution_time = int(time.monotonic() - started)
                self._inbox.close()

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        group = self._worker_group
        while True:
            self._initialize_workers(group)
            self._put_state_metrics(WorkerState.HEALTHY)
            happening = self._observer.observe(self._scene())
            if isinstance(happening, Succeeded):
                group.state = WorkerState.SUCCEEDED
                self._put_state_metrics(WorkerState.SUCCEEDED)
                peers = self._exit_together()
                if peers is None:
                    self._loop.phase = Phase.ENDING
                    self._stop_workers(group)
                    return RunResult(WorkerState.SUCCEEDED, happening.return_values)
                happening = peers
            self._stop_membership_watch()
            attempt = self._current()
            settlement = self._decider.decide(
                happening.report, attempt, self._agreement, self._last_round()
            )
            if happening.request is not None:
                self._answer(happening.request, settlement)
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
            round_ = self._join_checked(spec, backend)
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
        self._control.enter(round_)
        self._options.on_round(round_.rank, self._counters.attempt)
        self._manager.tell(
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
        self._meeting.warn_of_differences(round_.differing)

    def _join_checked(self, spec: WorkerSpec, backend: str) -> Round:
        """A round of nodes that are fit to train; whoever is not leaves, and the others go on."""
        agent = Surroundings(spec, self._inbox, self._loop, self._starter)
        while True:
            round_ = self._meeting.join(self._counters, backend)
            self._counters = round_.counters
            if round_.check == 0 or self._options.check.passes(round_, agent):
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
            self._silence_over(prepared),
            lends_terminal=self._options.debugging.lends_terminal,
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
        self._watch = HangWatch(self._options.hang, self._attempt, self._round)
        self._sampler.watch(self._attempt, self._round)
        self._agreement.watch()
        if not getattr(spec.rdzv_handler, "never_grows", False):
            self._membership = MembershipWatch(
                spec.rdzv_handler,
                spec.monitor_interval,
                self._inbox,
                self._options.record,
                self._options.say,
            )
        return workers.pids()

    def _silence_over(self, prepared: Prepared) -> Callable[[], bool] | None:
        """Whether workers must not write to the terminal now, where a person may be busy at it."""
        debugging = self._options.debugging
        if not debugging.lends_terminal:
            return None
        if not debugging.asks:
            return prepared.is_looked_into
        return lambda: prepared.is_looked_into() or self._loop.phase is Phase.DECIDING

    def _start_or_fail(self, request: StartRequest, *, alone: bool) -> Workers:
        self._loop.phase = Phase.STARTING
        try:
            self._loop.call("warm-up", self._starter.ready, _WARM_UP_SECONDS)
            return self._starter.start(request, self._inbox)
        except LaunchError as error:
            if alone:
                raise
            self._options.say(error.message)
            return NeverStarted(request, error, self._inbox)

    def _answer(self, request: OperatorRequest, settlement: Settlement) -> None:
        """Say what follows. Something else may have been decided a moment before."""
        if request.is_abort and settlement.decision.action is not Action.ABORT:
            raise AbortRequested(request)
        round_, has_manager = self._last_round(), self._options.leash is not None
        rank, nodes = round_.rank, round_.world_size
        request.reply(reply_after(request, settlement, rank, nodes, has_manager=has_manager))

    # ---- performing ----------------------------------------------------------------------------

    def _perform(self, attempt: RunningAttempt, settlement: Settlement) -> RunResult | None:
        """Carry out a decision: the result if the run is over here, None if it goes on."""
        failure, action = settlement.failure, settlement.decision.action
        self._options.say(narrate(settlement))
        mine = settlement.node_rank == self._node_rank()
        if failure is not None and failure.kind is FailureKind.HANG and not mine:
            self._observer.keep_own_stacks(attempt)
        if action in (Action.FAIL, Action.ABORT) or (action is Action.REPLACE_NODE and mine):
            return self._end_run(attempt, settlement)
        self._loop.phase = Phase.STOPPING
        self._put_state_metrics(WorkerState.HEALTHY if failure is None else WorkerState.FAILED)
        self._stop_workers(self._worker_group)
        self._worker_group.state = WorkerState.STOPPED
        self._counters = settlement.counters
        self._loop.phase = Phase.BACKING_OFF
        if action is Action.RESTART_JOB and self._options.place_again is not None:
            self._options.record("placement_asked")
            ask = partial(self._options.place_again, self._counters)
            self._loop.call("placement", ask, _PLACEMENT_SECONDS)
        self._loop.wait(settlement.backoff)
        return None

    def _end_run(self, attempt: RunningAttempt | None, settlement: Settlement) -> RunResult:
        self._loop.phase = Phase.ENDING
        failure = settlement.failure
        alone = self._options.leash is None and (self._round is None or self._round.world_size == 1)
        world_size = 1 if self._round is None else self._round.placement.world_size
        self.ending = Ending(settlement, failure, alone, world_size)
        # Taken down before our own signals blur who failed by itself.
        failures = {}
        if failure is not None and attempt is not None:
            failures = {
                worker.global_rank: process_failure(worker, attempt.error_file(worker.global_rank))
                for worker in (*failure.workers, *attempt.failures())
            }
        self._put_state_metrics(WorkerState.FAILED)
        if settlement.decision.action is Action.ABORT:
            with contextlib.suppress(ControlStoreLost):
                mark = partial(mark_aborted, self._handler())
                self._loop.call("mark-aborted", mark, _MARK_SECONDS)
        self._stop_workers(self._worker_group)
        if failures and attempt is not None:
            alike, succeeded = attempt.failed_alone(), attempt.succeeded()
            self.ending = replace(self.ending, alike=alike, succeeded=succeeded)
        self._worker_group.state = WorkerState.FAILED
        if settlement.decision.action is not Action.REPLACE_NODE:  # else the others go on
            if attempt is not None:
                leave(self._loop, self._agreement)
        elif alone:
            self._loop.wait(settlement.backoff)
        return RunResult(WorkerState.FAILED, failures=failures)

    def _hand_on(self, signum: signal.Signals) -> bool:
        """Ctrl-C at the prompt of a debugger comes to us, who have the terminal."""
        attempt = self._attempt
        return signum is signal.SIGINT and attempt is not None and attempt.interrupt_prompt()

    def _exit_together(self) -> Reported | None:
        self._in_exit_barrier = True
        try:
            return self._observer.exit_together(self._scene(), self._exit_barrier_timeout)
        finally:
            self._in_exit_barrier = False

    # ---- stopping ------------------------------------------------------------------------------

    def _depart(self, signum: signal.Signals) -> None:
        seconds = self._seconds_to_end()
        with telling_of_patience(signum, seconds, self._options.say):
            announce_departure(
                signum,
                self._inbox,
                self._attempt,
                self._agreement,
                self._decider,
                self._counters,
            )
            self._shutdown(signum, seconds)

    def _seconds_to_end(self) -> float:
        """What the workers get: as much as whoever stops the run gives them, if that is said."""
        directory = self._options.run_directory
        asked = None if directory is None else read_stop_request(directory.path)["grace"]
        return self._shutdown_timeout if asked is None else asked

    @prof
    def _stop_workers(self, worker_group: WorkerGroup, *args: Any, **kwargs: Any) -> None:
        self._end_attempt(signal.SIGTERM, self._shutdown_timeout, forward_to_all=False)

    def _shutdown(
        self,
        death_sig: signal.Signals = signal.SIGTERM,
        timeout: float = 30,
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
            self._terminal.restore()
            self._sampler.finish()

    def _stop_membership_watch(self) -> None:
        watch, self._membership = self._membership, None
        if watch is not None:
            watch.stop()

    # ---- helpers -------------------------------------------------------------------------------

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Part of torch's interface; this agent is woken by events and never polls."""
        return RunResult(worker_group.state)

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

    def _scene(self) -> Scene:
        return Scene(
            self._current(), self._last_round(), self._agreement, self._membership, self._watch
        )

    def _view(self) -> View:
        """For any thread."""
        return View(self._loop.phase, self._round, self._attempt)

    def _put_state_metrics(self, state: WorkerState) -> None:
        role = self._worker_group.spec.role
        put_metric(f"workers.{role}.remaining_restarts", self._remaining_restarts)
        put_metric(f"workers.{role}.{state.name.lower()}", 1)


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
