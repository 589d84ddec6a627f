"""In an allocation: be the manager of the job, with one step per agent on the nodes at hand."""

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlrover_cli.config.derive import parse_nnodes
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.contracts.manager import Deployment
from dlrover_cli.errors import DlroverError
from dlrover_cli.exit_codes import ExitCode
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.launch.given_run import take_given_run
from dlrover_cli.launch.session import Session
from dlrover_cli.launch.voice import say
from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.launching import Place, run_managed
from dlrover_cli.platforms.slurm.allocation import Allocation
from dlrover_cli.platforms.slurm.batch import lead_seconds, node_request
from dlrover_cli.platforms.slurm.checks import check_nodes, needs_of
from dlrover_cli.platforms.slurm.cluster import SlurmCluster
from dlrover_cli.platforms.slurm.commands import Slurm, SlurmError
from dlrover_cli.platforms.slurm.history import (
    History,
    find_run,
    read_history,
    remember_run,
    result_of,
)
from dlrover_cli.platforms.slurm.meaning import WARNING, Explainer
from dlrover_cli.platforms.slurm.requests import NodeRequests

_USUAL_PORT = 6818


class AbortedBefore(DlroverError):
    """Slurm has started a job again that policy had ended for good."""

    exit_code = ExitCode.ABORTED


def manage(settings: LaunchSettings, argv: Sequence[str], allocation: Allocation) -> None:
    """Run the job in this allocation. Raises ManagedJobFailed, or what keeps it from starting."""
    slurm = Slurm()
    given = take_given_run(os.environ)
    is_own = given is None
    given = given or find_run(os.environ, allocation, argv)
    history = History(None)
    if given is not None and allocation.restarts:
        history = read_history(given)
    try:
        if history.was_aborted:
            raise AbortedBefore(
                "the run was aborted by policy and is not run again",
                hint="submit it again once the cause is mended",
            )
        if given is not None:
            result_of(given).unlink(missing_ok=True)
            given = replace(given, counters=history.counters)

        def make_place(session: Session) -> Place:
            if is_own:
                directory = session.run_directory
                remember_run(os.environ, allocation, argv, directory.run_id, directory.path)
            place = _place(settings, allocation, slurm, history, session.run_directory.path)
            if is_own:
                return place  # in the user's own allocation, nothing is asked for behind its back
            return replace(place, replacer=_requests(settings, allocation, slurm, place, session))

        run_managed(settings, argv, make_place, given=given)
    except AbortedBefore:
        _cancel(slurm, allocation)
        raise
    except DlroverError as error:
        if error.exit_code == ExitCode.ABORTED and not is_own and _would_requeue(slurm):
            # Its result says 82. The batch script is ours, and nobody else looks at its code.
            error.exit_code = ExitCode.FAILURE
        raise


def _place(
    settings: LaunchSettings,
    allocation: Allocation,
    slurm: Slurm,
    history: History,
    run_directory: Path,
) -> Place:
    config = slurm.config()
    port = config.get("SlurmdPort", "")
    cluster = SlurmCluster(
        slurm,
        allocation.job_id,
        say,
        run_directory=run_directory,
        lead=lead_seconds(settings),
        slurmd_port=int(port) if port.isdecimal() else _USUAL_PORT,
        binds=config.get("TaskPlugin", "task/none") != "task/none",
    )
    nodes = cluster.find_nodes()
    launcher = launcher_command()
    needs = needs_of(settings, os.getcwd(), launcher)
    check_nodes(slurm, allocation.job_id, [node.id for node in nodes], needs)
    return Place(
        cluster,
        own_address(allocation, nodes),
        deployment=Deployment("slurm", facts={"SLURM_JOB_ID": allocation.job_id}),
        resources=_asked_for(settings),
        relaunches=history.relaunches,
        explain=Explainer(slurm, allocation),
        more_signals=(WARNING,),
    )


def _asked_for(settings: LaunchSettings) -> dict[str, float]:
    """What services are told that an agent needs; Slurm itself has looked after it already."""
    if not settings.extender and not settings.extender_url:
        return {}
    from dlrover_cli.scheduling.of_settings import resources_of

    return resources_of(settings)


def _requests(
    settings: LaunchSettings,
    allocation: Allocation,
    slurm: Slurm,
    place: Place,
    session: Session,
) -> NodeRequests:
    cluster = place.cluster
    assert isinstance(cluster, SlurmCluster)
    return NodeRequests(
        slurm,
        allocation.job_id,
        cluster,
        parse_nnodes(settings.nnodes)[1],
        node_request(settings),
        session.run_directory.node,
        session.events.record,
        say,
    )


def own_address(allocation: Allocation, nodes: Sequence[Node]) -> str:
    """Where the nodes reach this process: as Slurm knows this node, else by the way to them."""
    for node in nodes:
        if node.id == allocation.node:
            return node.address
    for node in nodes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            try:
                way.connect((node.address, 9))  # sends nothing; the kernel picks our address
                return str(way.getsockname()[0])
            except OSError:
                continue
    return socket.gethostname()


def _would_requeue(slurm: Slurm) -> bool:
    """Whether this cluster starts jobs again that end with 82; such a job has no say in it."""
    try:
        config = slurm.config()
    except SlurmError:
        return True  # the other code does no harm
    texts = (config.get("RequeueExit", ""), config.get("RequeueExitHold", ""))
    return any(lists_code(text, ExitCode.ABORTED) for text in texts)


def lists_code(text: str, code: int) -> bool:
    """Whether `1,80-85` has the code in it."""
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and int(first) <= code <= int(last if last.isdecimal() else first):
            return True
    return False


def _cancel(slurm: Slurm, allocation: Allocation) -> None:
    """Somebody, or the cluster by itself, starts it again and again: this ends it for good."""
    try:
        slurm.run("scancel", allocation.job_id, deadline=5.0)
    except SlurmError as error:
        say(error.message)
