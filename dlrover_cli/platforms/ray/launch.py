"""`dlrover-run --platform=ray`: the manager in this process, which is a driver of the cluster."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dlrover_cli.config.derive import parse_nnodes
from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.config.sources import SourceKind
from dlrover_cli.launch.command import launcher_command
from dlrover_cli.launch.given_run import take_given_run
from dlrover_cli.launch.script import check_script
from dlrover_cli.launch.session import Session
from dlrover_cli.launch.voice import say
from dlrover_cli.manager.launching import Place, run_managed
from dlrover_cli.platforms.ray.cluster import RayCluster, RayJob
from dlrover_cli.platforms.ray.connecting import LOCAL, address_of, connect
from dlrover_cli.platforms.ray.deployment import deployment_of
from dlrover_cli.platforms.ray.resources import resources_of


def launch(settings: LaunchSettings, argv: Sequence[str]) -> None:
    """Run the job to its end. Raises ManagedJobFailed, or what keeps it from starting."""
    given = take_given_run(os.environ)
    settings = with_kept_output(settings)
    address = address_of(settings.ray_address, os.environ)
    resources = resources_of(settings)
    least, _ = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    check_script(settings, os.environ)

    def make_place(session: Session) -> Place:
        ray = connect(address)
        directory = session.run_directory
        job = RayJob(
            directory.run_id, directory.path, least, resources, needed(settings, os.environ)
        )
        cluster = RayCluster(ray, job, say)
        cluster.prepare()
        return Place(
            cluster,
            ray.util.get_node_ip_address(),
            deployment_of(os.environ, address, len(ray.nodes())),
            resources,
            resource_names={"CPU": "cpu", "GPU": "nvidia.com/gpu"},
        )

    run_managed(settings, argv, make_place, given=given)


def plan(settings: LaunchSettings, argv: Sequence[str]) -> str:
    """What would be run, for a person or as JSON. Looks at no cluster."""
    least, most = parse_nnodes(settings.nnodes, settings.origin("nnodes"))
    address = address_of(settings.ray_address, os.environ)
    wanted = needed(settings, os.environ)
    document: dict[str, Any] = {
        "platform": "ray",
        "address": address,
        "nodes": {"min": least, "max": most},
        "resources": resources_of(settings),
        "command": [*launcher_command(), *argv],
        "cwd": wanted["cwd"],
        "checked_on_every_node": [wanted["interpreter"], *wanted["files"], *wanted["modules"]],
    }
    if settings.json_output:
        return json.dumps(document, indent=2) + "\n"
    number = str(least) if least == most else f"{least} to {most}"
    each = ", ".join(f"{key}={amount:g}" for key, amount in document["resources"].items())
    where = "a cluster started here, for this job" if address == LOCAL else address
    return (
        f"Ray cluster   {where}\n"
        f"nodes         {number}, one agent on each\n"
        f"each agent    {each}\n"
        f"started in    {wanted['cwd']}\n"
        f"command       {shlex.join(document['command'])}\n"
        f"checked       on every node: {', '.join(document['checked_on_every_node'])}\n"
    )


def with_kept_output(settings: LaunchSettings) -> LaunchSettings:
    """Every rank's output is kept in the run directory, and shown, unless somebody chose."""
    chosen = (settings.origin(name).kind is not SourceKind.DEFAULT for name in ("redirects", "tee"))
    if any(chosen):
        return settings
    return replace(settings, tee="3")


def needed(settings: LaunchSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    """What has to be on a node for an agent to run there; `host.look_around` looks for it."""
    script = settings.training_script
    is_module, is_program = settings.module, settings.no_python and not settings.run_path
    interpreter, *files = launcher_command()
    return {
        "cwd": os.getcwd(),
        "interpreter": interpreter,
        "files": files if is_module or is_program else [*files, script],
        "modules": ["torch", script] if is_module else ["torch"],
        "program": script if is_program else "",
        "path": environ.get("PATH", ""),
    }
