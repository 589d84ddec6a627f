"""The elastic agent: joins a round, starts the workers, watches, and acts on what it observes.

The loop is observe, decide, perform. Everything that can happen arrives in one inbox; the agent's
thread never blocks on anything else, so that a signal is acted on at once even in the middle of a
rendezvous. torch's WorkerSpec, rendezvous handlers, events and metrics are used under their own
names.
"""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from torch.distributed.elastic.rendezvous import RendezvousGracefulExitError

from dlrover_cli.agent.agreement import (
    BETTER_REPORT_SECONDS,
    WEIGHT_CAUSE,
    WEIGHT_COLLATERAL,
    WEIGHT_MEMBERSHIP,
    Agreement,
    ControlStoreLost,
    LocalAgreement,
    PeersDone,
    PeersFrozen,
    Report,
    StoreAgreement,
)
from dlrover_cli.agent.attempt import RunningAttempt
from dlrover_cli.agent.calls import Call, CallFinished
from dlrover_cli.agent.facts import describe_status, failure_info
from dlrover_cli.agent.launches import LaunchBuilder
from dlrover_cli.agent.membership import MembershipWatch, NodesWaiting
from dlrover_cli.agent.ranks import Hello
from dlrover_cli.agent.rounds import Round, StoreForWorkers, join
from dlrover_cli.agent.torch_glue import fill_group, process_failure, profiled_as, workers_of
from dlrover_cli.agent.watchdog import Watchdog
from dlrover_cli.contracts import AgentFailureInfo, FailoverStrategy, WorkerFailure
from dlrover_cli.errors import DlroverError
from dlrover_cli.failover.decide import Action, Counters, Decision, Limits, decide
from dlrover_cli.rendezvous.faults import explain
from dlrover_cli.telemetry.events import Recorder, record_nothing
from dlrover_cli.telemetry.run_dir import RunDirectory
from dlrover_cli.workers.api import StartRequest, WorkerExit, WorkerStarter
from dlrover_cli.workers.commands import CommandStarter
from dlrover_cli.workers.functions import FunctionStarter
from dlrover_cli.workers.inbox import Inbox, SignalReceived

_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_DECISION_SECONDS = 60.0
_FOLLOWS = {
    Action.RESTART_WORKERS: "restarting all workers",
    Action.RESTART_JOB: "restarting the job",
    Action.REPLACE_NODE: "replacing the node",
    Action.ABORT: "aborting the job",
    Action.FAIL: "the job fails",
    Action.ADMIT: "restarting to admit them",
}


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What the agent needs beyond torch's WorkerSpec; the defaults serve library use."""

    record: Recorder = record_nothing
    say: Callable[[str], None] = lambda line: None
    run_directory: RunDirectory | None = None
    signals: tuple[signal.Signals, ...] = _DEFAULT_SIGNALS
    join_timeout: float = 900.0
    on_round: Callable[[int, int], None] = lambda node_rank, attempt: None


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run ended without success: the failure that decided it, and the decision."""

    decision: Decision
    failure: AgentFailureInfo


@dataclass(frozen=True, slots=True)
class _Succeeded:
    return_values: dict[int, Any]


@dataclass(frozen=True, slots=True)
class _Reported:
    """Something that the whole job has to decide on; no report if a peer noticed it."""

    report: Report | None


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
        self._limits = Limits(max_restarts=spec.max_restarts)
        self._counters = Counters()
        self._inbox = Inbox()
        self._starter = starter or _default_starter(
            spec, start_method, shutdown_timeout, self._options.say
        )
        self._store_for_workers = StoreForWorkers(
            spec.rdzv_handler, spec.master_addr, spec.master_port
        )
        self._watchdog = Watchdog(health_check_server, self._options.record)
        self._launches = LaunchBuilder(
            spec,
            logs_specs or DefaultLogsSpecs(),
            log_line_prefix_template,
            self._watchdog,
            self._options.run_directory,
            self._options.say,
        )
        self._round: Round | None = None
        self._agreement: Agreement = LocalAgreement(self._inbox)
        self._membership: MembershipWatch | None = None
        self._attempt: RunningAttempt | None = None
        self._failures = 0
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
        with self._inbox.receiving_signals(self._options.signals):
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
                self._shutdown(caught.sigval, self._shutdown_timeout)
                raise
            finally:
                self._shutdown(signal.SIGTERM, self._shutdown_timeout)
                self._starter.close(leave_survivors=clean)
                self._watchdog.stop()
                self._total_execution_time = int(time.monotonic() - started)

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        group = self._worker_group
        while True:
            self._initialize_workers(group)
            self._put_state_metrics(WorkerState.HEALTHY)
            happening = self._observe(self._current())
            if isinstance(happening, _Succeeded):
                group.state = WorkerState.SUCCEEDED
                self._put_state_metrics(WorkerState.SUCCEEDED)
                peers = self._exit_together()
                if peers is None:
                    self._stop_workers(group)
                    return RunResult(WorkerState.SUCCEEDED, happening.return_values)
                happening = peers
            settled = self._agree(self._current(), happening)
            result = self._perform(self._current(), settled)
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
            else StoreAgreement(self._inbox, round_.control, round_.rank, round_.world_size)
        )
        self._options.on_round(round_.rank, self._counters.attempt)
        self._options.record(
            "rendezvous_completed",
            nodes=round_.world_size,
            world_size=round_.placement.world_size,
            seconds=time.monotonic() - started,
        )

    def _join(self, spec: WorkerSpec, backend: str) -> Round:
        hello = Hello(spec.role, spec.local_world_size, self._counters)
        try:
            round_: Round = self._call(
                "rendezvous",
                lambda: join(
                    spec.rdzv_handler,
                    hello,
                    self._store_for_workers,
                    spec.local_addr,
                    self._options.join_timeout,
                ),
            )
        except (DlroverError, SignalException, RendezvousGracefulExitError):
            raise
        except Exception as error:  # whatever a rendezvous handler, ours or a user's, may raise
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
        launches = self._launches.build(worker_group, self._round)
        workers = self._starter.start(
            StartRequest(
                self._counters.attempt,
                spec.entrypoint,
                launches,
                getattr(spec, "numa_options", None),
            ),
            self._inbox,
        )
        self._attempt = RunningAttempt(
            self._counters.attempt,
            workers,
            {worker.local_rank: worker.global_rank for worker in worker_group.workers},
            {launch.local_rank: launch.error_file for launch in launches},
            self._options.record,
            self._options.say,
        )
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
            ],
        )
        return workers.pids()

    # ---- observing -----------------------------------------------------------------------------

    def _observe(self, attempt: RunningAttempt) -> _Succeeded | _Reported:
        """Watch the running attempt until it has succeeded here or the job has to decide."""
        while True:
            match self._next(self._watchdog.next_check()):
                case WorkerExit() as exit_ if attempt.note(exit_):
                    if exit_.status != 0:
                        return _Reported(self._failure_report(attempt))
                    if not attempt.running:
                        return _Succeeded(attempt.return_values())
                case PeersFrozen(agreement=agreement) if agreement is self._agreement:
                    return _Reported(None)
                case NodesWaiting(watch=watch, count=count) if watch is self._membership:
                    self._options.record("nodes_waiting", count=count)
                    return _Reported({"weight": WEIGHT_MEMBERSHIP, "waiting": count})
                case None:
                    stuck = self._watchdog.stuck_worker(attempt.workers.pids())
                    if stuck is not None:
                        return _Reported(self._stuck_report(attempt, stuck))
                case _:
                    pass  # of an earlier attempt

    def _exit_together(self) -> _Reported | None:
        """Wait until every node has succeeded. A report comes back if a peer failed meanwhile."""
        deadline = time.monotonic() + self._exit_barrier_timeout
        self._in_exit_barrier = True
        try:
            self._call("exit-barrier", self._agreement.finish)
            while True:
                match self._next(deadline):
                    case PeersDone(agreement=agreement) if agreement is self._agreement:
                        self._call("leave", self._agreement.leave)
                        return None
                    case PeersFrozen(agreement=agreement) if agreement is self._agreement:
                        return _Reported(None)
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
            match self._next(deadline):
                case WorkerExit() as exit_ if attempt.note(exit_):
                    failures = attempt.failures()
                case None:
                    break
                case PeersFrozen(agreement=agreement) if agreement is self._agreement:
                    break
                case _:
                    pass
        weight = WEIGHT_COLLATERAL if attempt.has_only_consequences(failures) else WEIGHT_CAUSE
        return self._report(attempt, failures, weight)

    def _stuck_report(self, attempt: RunningAttempt, stuck: WorkerFailure) -> Report:
        return {**self._report(attempt, [stuck], WEIGHT_CAUSE), "final": True}

    def _report(
        self, attempt: RunningAttempt, failures: list[WorkerFailure], weight: int
    ) -> Report:
        directory = self._options.run_directory
        info = failure_info(
            failures,
            attempt.tail,
            0 if self._round is None else self._round.rank,
            "" if directory is None else directory.run_id,
            self._counters,
            self._limits,
        )
        self._failures += 1
        document = info.to_json()
        if directory is not None:
            directory.write_failure(self._failures, document)
        root = info.root_cause
        self._options.record(
            "failure",
            number=self._failures,
            failure_kind=info.kind.value,
            root_rank=None if root is None else root.global_rank,
            ranks=[worker.global_rank for worker in info.workers],
        )
        return {"weight": weight, "failure": document}

    # ---- deciding ------------------------------------------------------------------------------

    def _agree(self, attempt: RunningAttempt, happening: _Reported) -> Report:
        """One decision for the whole job."""
        self._stop_membership_watch()
        agreement = self._agreement
        report = happening.report
        try:
            if report is not None:
                self._call("report", lambda: agreement.add_report(report))
            call = Call(
                self._inbox, "settle", lambda: agreement.settle(self._decide, _DECISION_SECONDS)
            )
            while not call.done:
                match self._next(None):
                    case WorkerExit() as exit_:
                        attempt.note(exit_)
                    case _:
                        pass
            settled: Report = call.result()
        except ControlStoreLost as lost:
            self._options.record("control_store_lost", reason=lost.message)
            settled = (
                _settled(Decision(Action.ADMIT, lost.message), None)
                if report is None
                else self._decide(report)
            )
        self._options.record("decision", **{k: v for k, v in settled.items() if k != "failure"})
        return settled

    def _decide(self, report: Report) -> Report:
        """What this node makes of a report that was chosen for the whole job."""
        if "failure" not in report:
            waiting = report["waiting"]
            nodes = "1 node waits" if waiting == 1 else f"{waiting} nodes wait"
            return _settled(Decision(Action.ADMIT, f"{nodes} to join"), None)
        if report.get("final"):
            reason = "a worker is stuck in the kernel; a restart cannot help"
            return _settled(Decision(Action.FAIL, reason), report["failure"])
        verdict = FailoverStrategy.NORMAL_FAILOVER
        return _settled(decide(verdict, self._counters, self._limits), report["failure"])

    # ---- performing ----------------------------------------------------------------------------

    def _perform(self, attempt: RunningAttempt, settled: Report) -> RunResult | None:
        """Carry out a decision: the result if the run is over, None if another attempt follows."""
        action = Action(settled["action"])
        info = (
            None if settled["failure"] is None else AgentFailureInfo.from_json(settled["failure"])
        )
        self._narrate(action, settled["reason"], info)
        if info is not None and action in (Action.FAIL, Action.ABORT):
            self.ending = Ending(Decision(action, settled["reason"], settled["exit_code"]), info)
            # Taken down before our own signals blur who failed by itself.
            failures = {
                worker.global_rank: process_failure(worker, attempt.error_files)
                for worker in (*info.workers, *attempt.failures())
            }
            self._put_state_metrics(WorkerState.FAILED)
            self._stop_workers(self._worker_group)
            self._worker_group.state = WorkerState.FAILED
            self._call("leave", self._agreement.leave)
            return RunResult(WorkerState.FAILED, failures=failures)
        self._put_state_metrics(WorkerState.HEALTHY if info is None else WorkerState.FAILED)
        self._stop_workers(self._worker_group)
        self._worker_group.state = WorkerState.STOPPED
        self._counters = self._counters.after(action)
        return None

    def _narrate(self, action: Action, reason: str, info: AgentFailureInfo | None) -> None:
        if info is None:
            self._options.say(f"{reason}: {_FOLLOWS[action]}")
            return
        root = info.root_cause
        what = "a worker failed"
        if root is not None:
            what = f"rank {root.global_rank} on {info.host} {describe_status(root)}"
        self._options.say(f"{what}: {_FOLLOWS[action]} ({reason})")

    # ---- stopping ------------------------------------------------------------------------------

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

    def _next(self, deadline: float | None) -> object | None:
        observation = self._inbox.next(deadline)
        if isinstance(observation, SignalReceived):
            name = observation.signum.name
            raise SignalException(f"the launcher received {name}", sigval=observation.signum)
        return observation

    def _call(self, name: str, function: Callable[[], Any]) -> Any:
        """Run something that blocks off the loop; a signal is acted on meanwhile."""
        call = Call(self._inbox, name, function)
        held_back: list[object] = []
        while not call.done:
            observation = self._next(None)
            if not isinstance(observation, CallFinished):
                held_back.append(observation)
        for observation in held_back:
            self._inbox.post(observation)
        return call.result()

    def _current(self) -> RunningAttempt:
        if self._attempt is None:
            raise DlroverError("no attempt is under way")
        return self._attempt

    def _put_state_metrics(self, state: WorkerState) -> None:
        role = self._worker_group.spec.role
        put_metric(f"workers.{role}.remaining_restarts", self._remaining_restarts)
        put_metric(f"workers.{role}.{state.name.lower()}", 1)


def _default_starter(
    spec: WorkerSpec, start_method: str, shutdown_timeout: float, say: Callable[[str], None]
) -> WorkerStarter:
    if isinstance(spec.entrypoint, str):
        return CommandStarter(say)
    return FunctionStarter(spec.role, start_method, shutdown_timeout)


def _settled(decision: Decision, failure: Mapping[str, Any] | None) -> Report:
    return {
        "action": decision.action.value,
        "reason": decision.reason,
        "exit_code": decision.exit_code,
        "failure": failure,
    }
