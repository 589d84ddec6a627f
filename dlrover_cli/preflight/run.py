"""The check of the nodes as the agent sees it: when it is wanted, and what this node makes of it.

It takes place between the rendezvous and the start of the workers, so that a node that comes
later is checked together with those that were there before, and whoever is left meets again.
"""

import socket
import tempfile
from pathlib import Path

from dlrover_cli.agent.agreement import ControlStoreLost
from dlrover_cli.agent.checking import Surroundings
from dlrover_cli.agent.rounds import Round
from dlrover_cli.errors import NodeUnfit, RendezvousFailed
from dlrover_cli.failover.decide import Counters
from dlrover_cli.preflight.check import Check, Place
from dlrover_cli.preflight.leaving import Verdict
from dlrover_cli.preflight.plan import Wanted
from dlrover_cli.preflight.probing import PeerIsLost, Probes
from dlrover_cli.telemetry.run_dir import RunDirectory


class Preflight:
    """Implements the agent's NodeCheck."""

    def __init__(self, wanted: Wanted, place: Place) -> None:
        self._wanted = wanted
        self._place = place
        self._checked: Counters | None = None

    def wish(self, counters: Counters) -> int:
        """For a new node, a new start of the whole job, or with `repeats` for any start."""
        checked = self._checked
        if checked is None or checked.generation != counters.generation:
            return self._wanted.level
        if self._wanted.repeats and checked.attempt != counters.attempt:
            return self._wanted.level
        return 0

    def passes(self, round_: Round, agent: Surroundings) -> bool:
        place = self._place
        place.record("preflight_started", level=round_.check, nodes=round_.world_size)
        try:
            with tempfile.TemporaryDirectory(prefix="dlrover-preflight-") as spare:
                directory = _directory(place.run_directory) or Path(spare)
                probes = Probes(agent, directory, self._wanted.seconds, place.say)
                try:
                    check = Check(round_, agent, probes, self._wanted, place)
                    verdict = check.run()
                finally:
                    probes.close()
        except PeerIsLost:
            place.record("preflight_broken_off", reason="a node was lost")
            return False
        except (ControlStoreLost, RuntimeError, OSError) as error:
            raise RendezvousFailed(
                f"the check of the nodes did not come to an end: {error}",
                hint="check the network between the nodes; --precheck=0 does without the check",
            ) from error
        self._checked = round_.counters
        self._act_on(verdict, round_)
        return not verdict.leaving

    def _act_on(self, verdict: Verdict, round_: Round) -> None:
        own = verdict.findings[round_.rank]
        if round_.rank in verdict.leaving:
            raise NodeUnfit(
                f"this node, node {own.node} on {socket.gethostname()}, is "
                f"{own.standing.value}: {own.why}",
                hint=_HINTS[own.is_fit],
            )
        if verdict.ends:
            raise RendezvousFailed(
                f"the nodes did not pass the check: {verdict.ends}",
                hint="replace the nodes that are named above, and start the job again",
            )
        left = round_.world_size - len(verdict.leaving)
        if verdict.leaving and left < self._place.min_nodes:
            self._place.say(
                f"{left} of {round_.world_size} nodes are left, the job needs "
                f"{self._place.min_nodes}: waiting for others in their place"
            )


_HINTS = {
    False: "have this node replaced; its probes' output is in the run directory, under preflight",
    True: "have this node looked at, or leave out --exclude-straggler to train with it",
}


def _directory(run_directory: RunDirectory | None) -> Path | None:
    """A new one for what the probes leave, if there is a place for it."""
    if run_directory is None:
        return None
    base = run_directory.node / "preflight"
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = base / str(len(list(base.iterdir())))
        directory.mkdir(mode=0o700)
    except OSError:
        return None
    return directory
