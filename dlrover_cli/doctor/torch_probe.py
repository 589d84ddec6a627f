"""torch and the devices that it sees, asked in a process of its own.

Counting devices may leave a process that cannot fork any more, and importing torch takes a second.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from dlrover_cli.doctor.answers import MARK, answer_in
from dlrover_cli.doctor.commands import Ran
from dlrover_cli.doctor.finding import Finding, ok, problem, warning
from dlrover_cli.doctor.machine import Machine
from dlrover_cli.words import counted

TESTED = "2.13"
_CODE = f"""
import json, time
started = time.perf_counter()
import torch
seconds = time.perf_counter() - started
import torch.distributed as distributed
has = distributed.is_available()
seen = {{
    "version": torch.__version__,
    "seconds": seconds,
    "cuda_build": torch.version.cuda or getattr(torch.version, "hip", None),
    "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
    "xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
    "backends": [name for name in ("gloo", "nccl", "xccl", "mpi")
                 if has and distributed.is_backend_available(name)],
}}
print({MARK!r} + json.dumps(seen), flush=True)
"""


@dataclass(frozen=True, slots=True)
class _Seen:
    version: str
    seconds: float
    cuda_build: str | None
    cuda: int
    xpu: int
    backends: tuple[str, ...]


def check_torch(machine: Machine) -> Iterator[Finding]:
    """Its version and its devices."""
    environ = {"OMP_NUM_THREADS": "1", **machine.environ}
    ran = machine.run([sys.executable, "-c", _CODE], environ, machine.patience)
    seen = _parsed(ran.out)
    if seen is None:
        yield _not_imported(ran, machine)
        return
    yield _version(seen)
    yield _devices(seen, _gpu_files(machine), machine)


def _parsed(out: str) -> _Seen | None:
    read = answer_in(out)
    return None if read is None else _Seen(**{**read, "backends": tuple(read["backends"])})


def _not_imported(ran: Ran, machine: Machine) -> Finding:
    if ran.status is None:
        return problem(
            "torch",
            f"was not imported within {machine.patience:g} s",
            why="every fresh worker waits so long before its first line",
            fix="install it on a local disk, or look again with more time: "
            f"dlrover-job doctor torch --timeout {machine.seconds * 3:g}",
        )
    return problem(
        "torch",
        f"cannot be imported: {ran.last_words or f'exit code {ran.status}'}",
        why="nothing can be trained without it",
        fix=f"see all of it with: {sys.executable} -c 'import torch'",
    )


def _version(seen: _Seen) -> Finding:
    built = f"built for CUDA/ROCm {seen.cuda_build}" if seen.cuda_build else "built for CPUs"
    text = f"{seen.version}, {built}, imported in {seen.seconds:.1f} s"
    if "gloo" not in seen.backends and "nccl" not in seen.backends:
        return problem(
            "torch",
            f"{text}, without torch.distributed",
            why="workers cannot speak with each other",
            fix="install a build of torch with distributed support",
        )
    if not seen.version.startswith(f"{TESTED}."):
        return warning(
            "torch",
            text,
            why=f"this release of dlrover-run was tested with torch {TESTED}",
            fix=f"pip install 'torch=={TESTED}.*', or try it out with --standalone first",
        )
    return ok("torch", f"{text}, backends {', '.join(seen.backends)}")


def _devices(seen: _Seen, files: int, machine: Machine) -> Finding:
    wanted = machine.settings.nproc_per_node
    hidden = "CUDA_VISIBLE_DEVICES" in machine.environ
    if files and not seen.cuda_build and not seen.xpu:
        return problem(
            "devices",
            f"{counted(files, 'GPU')} in /dev, and a torch that is built for CPUs",
            why="training would run on the CPUs without a word",
            fix="install a build of torch for your driver: https://pytorch.org/get-started",
        )
    if files and not seen.cuda and not hidden:
        return problem(
            "devices",
            f"{counted(files, 'GPU')} in /dev, of which torch sees none",
            why="the driver is older than what torch was built for, or not loaded",
            fix="compare `nvidia-smi` with the CUDA of torch above",
        )
    if (wanted in ("gpu", "cuda") and not seen.cuda) or (wanted == "xpu" and not seen.xpu):
        return problem(
            "devices",
            f"none of the kind that {machine.settings.origin('nproc_per_node')} asks for",
            why="a run ends before it starts",
            fix="write --nproc-per-node=auto, or a number",
        )
    if seen.cuda or seen.xpu:
        what = f"{counted(seen.cuda, 'GPU')}" if seen.cuda else f"{counted(seen.xpu, 'XPU')}"
        more = ", within CUDA_VISIBLE_DEVICES" if hidden else ""
        return ok("devices", f"torch sees {what}{more}")
    return ok("devices", "no accelerator: workers compute on the CPUs and speak over gloo")


def _gpu_files(machine: Machine) -> int:
    folder = machine.root / "dev"
    return len([path for path in folder.glob("nvidia[0-9]*") if path.name[6:].isdigit()])
