"""Engines for jobs on many nodes: whether the client is here, and whether a cluster answers.

That there is none is well, unless the settings ask for it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from dlrover_cli.doctor.answers import answer_in
from dlrover_cli.doctor.endpoint import split_endpoint
from dlrover_cli.doctor.finding import Finding, Level, ok
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.doctor.software import installed_version
from dlrover_cli.words import one_line, span

_RAY_PORT = 6379
_ASK_KUBERNETES = """
import os, sys
from dlrover_cli.doctor.answers import tell
from dlrover_cli.errors import DlroverError
from dlrover_cli.platforms.kubernetes.connecting import connect
try:
    client = connect(os.environ, deadline=float(sys.argv[1]))
    import kubernetes.client
    api = kubernetes.client.VersionApi(client.api)
    answer = {"version": api.get_code(_request_timeout=float(sys.argv[1])).git_version}
except DlroverError as error:
    answer = {"none": error.message, "hint": error.hint}
except Exception as error:
    answer = {"error": f"{type(error).__name__}: {error}"}
print(tell(answer))
"""


def check_slurm(machine: Machine) -> Iterator[Finding]:
    """Its commands, and its controller."""
    if machine.which("sbatch") is None:
        yield _absent(machine, "Slurm", "slurm", "sbatch is not on the PATH", "install its client")
        return
    ran = machine.run(["scontrol", "ping"], machine.environ, machine.patience)
    said = one_line((ran.out or ran.err).strip().rpartition("\n")[2])
    if ran.status == 0 and "UP" in said:
        yield ok("Slurm", said)
        return
    why_not = f"scontrol ping: {said}" if ran.status is not None else "scontrol ping hangs"
    yield _silent(machine, "Slurm", "slurm", why_not, "check slurm.conf, munge and the controller")


def check_kubernetes(machine: Machine) -> Iterator[Finding]:
    """Its client library, and the API server of the cluster at hand."""
    name = "Kubernetes"
    release = installed_version("kubernetes")
    if release is None:
        what, fix = "the client library is not installed", "pip install 'dlrover-cli[k8s]'"
        yield _absent(machine, name, "kubernetes", what, fix)
        return
    seconds = machine.patience
    command = [sys.executable, "-c", _ASK_KUBERNETES, f"{seconds / 2}"]
    ran = machine.run(command, machine.environ, seconds)
    answer = answer_in(ran.out) or {"error": "no answer"}
    if "version" in answer:
        yield ok(name, f"client {release}, API server {answer['version']}")
    elif "none" in answer:
        yield _absent(machine, name, "kubernetes", one_line(answer["none"]), str(answer["hint"]))
    else:
        yield _silent(
            machine, name, "kubernetes", one_line(answer["error"])[:200], "try: kubectl get nodes"
        )


def check_ray(machine: Machine) -> Iterator[Finding]:
    """Its package, and the cluster that a job would connect to."""
    release = installed_version("ray")
    if release is None:
        fix = "pip install -c constraints.txt 'dlrover-cli[ray]'"
        yield _absent(machine, "Ray", "ray", "it is not installed", fix)
        return
    address = _ray_address(machine)
    if address is None:
        what = f"{release} is installed, and no cluster runs on this machine"
        yield _absent(machine, "Ray", "ray", what, "ray start --head, or --ray_address HOST:PORT")
        return
    host, port = split_endpoint(address, _RAY_PORT)
    try:
        seconds = machine.reach(host, port, min(machine.patience, 5.0))
    except OSError as error:
        what = f"{release} is installed, and {address} does not answer: {error.strerror or error}"
        yield _silent(machine, "Ray", "ray", what, "ray status, or ray start --head")
        return
    yield ok("Ray", f"{release}, cluster at {address}, answers in {span(seconds)}")


def _ray_address(machine: Machine) -> str | None:
    """That of the settings, the variable, or the cluster that was started on this machine."""
    asked = machine.settings.ray_address or machine.environ.get("RAY_ADDRESS", "")
    if asked and asked not in ("auto", "local"):
        return asked.rpartition("://")[2]
    folder = machine.environ.get("RAY_TMPDIR", "/tmp")
    return machine.text(str(Path(folder, "ray/ray_current_cluster"))) or None


def _absent(machine: Machine, name: str, platform: str, seen: str, fix: str) -> Finding:
    """No trouble, unless somebody wants it."""
    if machine.settings.platform != platform:
        return ok(name, f"not at hand: {seen}")
    return Finding(Level.PROBLEM, name, seen, _wanted(machine), fix)


def _silent(machine: Machine, name: str, platform: str, seen: str, fix: str) -> Finding:
    """The client is here, and nobody answers it."""
    if machine.settings.platform == platform:
        return Finding(Level.PROBLEM, name, seen, _wanted(machine), fix)
    return Finding(Level.WARNING, name, seen, f"jobs with --platform={platform} fail here", fix)


def _wanted(machine: Machine) -> str:
    source = machine.settings.origin("platform")
    return f"{source} asks for {machine.settings.platform}"
