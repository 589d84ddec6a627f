"""Meeting the other nodes: one rendezvous after the other, each off the loop, its end in words."""

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import RendezvousGracefulExitError

from dlrover_cli.agent.agreement import ControlStoreLost
from dlrover_cli.agent.loop import STORE_SECONDS, Loop
from dlrover_cli.agent.options import AgentOptions
from dlrover_cli.agent.ranks import Hello
from dlrover_cli.agent.requests import Phase
from dlrover_cli.agent.rounds import Round, StoreForWorkers, join
from dlrover_cli.agent.terms import Differing, sentence
from dlrover_cli.errors import DlroverError, RendezvousFailed
from dlrover_cli.failover.decide import Counters
from dlrover_cli.rendezvous.faults import explain


class Meeting:
    """Belongs to the thread that runs the agent; waits only in its loop."""

    def __init__(self, spec: WorkerSpec, loop: Loop, options: AgentOptions) -> None:
        self._spec = spec
        self._loop = loop
        self._options = options
        self._store_for_workers = StoreForWorkers(
            spec.rdzv_handler, spec.master_addr, spec.master_port, options.store_host
        )
        self._differing: Differing = {}

    def join(self, counters: Counters, backend: str) -> Round:
        """The next round. Raises RendezvousFailed, or what ends a wait of the loop."""
        spec, options = self._spec, self._options
        hello = Hello(
            spec.role,
            spec.local_world_size,
            counters,
            options.terms,
            options.check.wish(counters),
        )
        self._loop.phase = Phase.MEETING
        try:
            round_: Round = self._loop.call(
                "rendezvous",
                lambda: join(
                    spec.rdzv_handler,
                    hello,
                    self._store_for_workers,
                    spec.local_addr,
                    options.join_timeout,
                ),
                options.join_timeout + STORE_SECONDS,
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

    def warn_of_differences(self, differing: Differing) -> None:
        """Say which settings the nodes do not have alike, whenever that has changed."""
        if differing == self._differing:
            return
        self._differing = differing
        if differing:
            self._options.record("settings_differ", settings=differing)
            self._options.say(sentence(differing))
