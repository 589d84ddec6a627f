"""Whether every node has what an agent needs, seen before the first one is started."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlrover_cli.config.settings import LaunchSettings
from dlrover_cli.errors import LaunchError
from dlrover_cli.platforms.slurm.commands import Slurm, SlurmError

_SECONDS = 60.0
_LOOK = """\
[ -d "$1" ] || echo "$SLURMD_NODENAME:there is no directory $1"
[ -x "$2" ] || echo "$SLURMD_NODENAME:the interpreter $2 is not there"
[ -r "$3" ] || echo "$SLURMD_NODENAME:the launcher $3 is not there"
cd "$1" 2>/dev/null
[ -z "$4" ] || [ -r "$4" ] || echo "$SLURMD_NODENAME:the script $4 is not there"
exit 0
"""
"""A shell is on every node, and needs nothing that is about to be looked for."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be found on each node."""

    directory: str
    interpreter: str
    launcher: str
    script: str
    """Empty if it is no file: a module, or a program."""


def needs_of(settings: LaunchSettings, directory: str, launcher: Sequence[str]) -> Needs:
    is_file = settings.run_path or not (settings.module or settings.no_python)
    return Needs(directory, launcher[0], launcher[1], settings.training_script if is_file else "")


def check_nodes(slurm: Slurm, job_id: str, nodes: Sequence[str], needs: Needs) -> None:
    """One short step on all nodes at once. Raises LaunchError that names the node."""
    if not nodes:
        return
    number = len(nodes)
    try:
        found = slurm.run(
            *("srun", f"--jobid={job_id}", "--job-name=check", "--overlap", "--quiet"),
            *(f"--nodes={number}", f"--ntasks={number}", "--ntasks-per-node=1"),
            *(f"--nodelist={','.join(nodes)}", "--mpi=none", "--chdir=/", "--export=ALL"),
            *("/bin/sh", "-c", _LOOK, "check"),
            *(needs.directory, needs.interpreter, needs.launcher, needs.script),
            deadline=_SECONDS,
        )
    except SlurmError as error:
        raise LaunchError(
            f"the nodes of the Slurm job could not be looked at: {error.message}", hint=error.hint
        ) from error
    problems = complaints(found)
    if problems:
        raise LaunchError(
            "; ".join(problems),
            hint="put the script and the environment on a file system that all nodes have",
        )


def complaints(output: str) -> list[str]:
    """`n2:there is no directory /x` → `on n2 there is …`; the same on many nodes is said once."""
    nodes_by_what: dict[str, list[str]] = {}
    for line in output.splitlines():
        node, sign, what = line.partition(":")
        if sign:
            nodes_by_what.setdefault(what, []).append(node)
    return [f"on {', '.join(sorted(nodes))} {what}" for what, nodes in nodes_by_what.items()]
