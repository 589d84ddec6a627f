"""What an agent is told beyond torch's WorkerSpec."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from dlrover_cli.agent.agreement import BETTER_REPORT_SECONDS
from dlrover_cli.agent.checking import NoCheck, NodeCheck
from dlrover_cli.agent.debugging import Debugging
from dlrover_cli.agent.logs import Shown
from dlrover_cli.agent.progress import HangSettings
from dlrover_cli.agent.terms import Terms
from dlrover_cli.failover.budget import BudgetReset
from dlrover_cli.failover.chain import Chain
from dlrover_cli.failover.decide import Counters, Limits
from dlrover_cli.leash.client import Leash
from dlrover_cli.rendezvous.store_host import StoreHost
from dlrover_cli.telemetry.events import Recorder, record_nothing
from dlrover_cli.telemetry.live import SampleListener
from dlrover_cli.telemetry.run_dir import RunDirectory

_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What the agent needs beyond torch's WorkerSpec; the defaults serve library use."""

    record: Recorder = record_nothing
    say: Callable[[str], None] = lambda line: None
    run_directory: RunDirectory | None = None
    signals: tuple[signal.Signals, ...] = _DEFAULT_SIGNALS
    join_timeout: float = 900.0
    limits: Limits | None = None
    chain: Chain = field(default_factory=Chain)
    decision_timeout: float = 60.0
    hosts_control_store: Callable[[], bool] = lambda: False
    budget_reset: BudgetReset | None = None
    hang: HangSettings = field(default_factory=HangSettings)
    python_workers: bool = False
    frame_locals: bool = False
    shown: Shown = field(default_factory=Shown)
    debugging: Debugging = field(default_factory=Debugging)
    counters: Counters = field(default_factory=Counters)
    terms: Terms = field(default_factory=dict)
    """Settings that should be the same on every node; a difference is said once."""
    on_round: Callable[[int, int], None] = lambda node_rank, attempt: None
    on_sample: tuple[SampleListener, ...] = ()
    """Get a sample of the workers about once a second, in the sampler's thread."""
    store_host: StoreHost | None = None
    """The process for the workers' stores; without one they are hosted by the agent's own."""
    leash: Leash | None = None
    """The connection to the manager of the job, if it has one. Opened and closed by the agent."""
    place_again: Callable[[Counters], None] | None = None
    """Called when the whole job starts afresh and no worker runs; returns when it may go on here.

    Runs off the agent's loop. Raises LaunchError if it may not.
    """
    check: NodeCheck = field(default_factory=NoCheck)
    """What the nodes of a round have to pass before workers start on them."""

    @property
    def patience(self) -> float:
        """How long a failure that looks like a consequence waits for its cause.

        A manager knows of a machine that is gone within a lease.
        """
        return BETTER_REPORT_SECONDS if self.leash is None else self.leash.lease + 2.0
