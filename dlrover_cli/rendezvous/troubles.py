"""The ways in which the rendezvous `dlrover` can fail, each with a sentence and a hint."""

from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousTimeoutError

from dlrover_cli.errors import RendezvousFailed
from dlrover_cli.rendezvous.forming import Rules


class NodesMissing(RendezvousFailed, RendezvousTimeoutError):
    """Too few nodes came in time."""

    def __init__(self, rules: Rules, count: int | None) -> None:
        came = "" if count is None else f": {count} came, and {rules.min_nodes} are needed"
        super().__init__(
            f"the nodes did not come together within {rules.join_timeout:g} s{came}",
            hint="check that every node was started with the same --nnodes, --rdzv-id and "
            "--rdzv-endpoint; --rdzv-conf join_timeout=SECONDS allows more time",
        )


class NodeRefused(RendezvousFailed):
    """This node does not fit the job."""

    def __init__(self, run_id: str, rules: Rules, bounds: tuple[int, int]) -> None:
        ours = _nnodes(rules.min_nodes, rules.max_nodes)
        super().__init__(
            f"this node was started with --nnodes={ours}, and the job {run_id!r} with "
            f"--nnodes={_nnodes(*bounds)}",
            hint="start every node of a job with the same --nnodes; a new job needs a new "
            "--rdzv-id",
        )


class StoreLost(RendezvousFailed, RendezvousConnectionError):
    """The store where the nodes meet is gone."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(
            f"the store of the rendezvous at {endpoint} is gone",
            hint="the node that hosts it has ended; `dlrover-job rendezvous serve` hosts one apart "
            "from the nodes",
        )


def _nnodes(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}:{most}"
