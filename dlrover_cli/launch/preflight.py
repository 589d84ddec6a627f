"""What a configuration says about the check of the nodes, in DLRover's words.

`--precheck` checks nodes that are new to the job, and all of them when the whole job starts again.
`--network-check` checks before every start of workers. `--comm-perf-test`, like level 2, also tells
the bandwidth. Each of them alone turns the check on.
"""

from collections.abc import Callable

from dlrover_cli.launch.config import LaunchConfig
from dlrover_cli.launch.session import Session
from dlrover_cli.preflight.check import Place
from dlrover_cli.preflight.plan import Wanted
from dlrover_cli.preflight.run import Preflight
from dlrover_cli.rendezvous.store_host import StoreHost


def wanted_of(config: LaunchConfig) -> Wanted:
    """How the nodes are to be checked."""
    is_on = config.network_check or config.comm_perf_test
    return Wanted(
        level=max(config.precheck, int(is_on)),
        repeats=config.network_check,
        measures=config.comm_perf_test or config.precheck > 1,
        excludes=config.exclude_straggler,
        seconds=config.precheck_timeout,
    )


def preflight_of(
    config: LaunchConfig,
    session: Session,
    hosts_store: Callable[[], bool],
    store_host: StoreHost | None,
) -> Preflight:
    """The check of this run. Without a wish of its own it still takes part in that of others."""
    return Preflight(
        wanted_of(config),
        Place(
            session.events.record,
            session.say,
            session.run_directory,
            config.min_nodes,
            hosts_store,
            store_host,
        ),
    )
