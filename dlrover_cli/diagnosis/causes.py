"""Well-known causes of failures, by what the failure says; the first that fits is the one.

Each has a sentence about what to do, and how sure we are of it.
"""

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dlrover_cli.contracts import AgentFailureInfo, FailureKind, WorkerFailure
from dlrover_cli.diagnosis.last_words import last_words


class Confidence(StrEnum):
    """How sure a hint is."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True)
class Cause:
    """What it probably is, and what to do about it."""

    name: str
    hint: str
    confidence: Confidence

    def to_json(self) -> dict[str, str]:
        return {"cause": self.name, "hint": self.hint, "confidence": self.confidence.value}


def cause_from(document: Mapping[str, Any]) -> Cause:
    """What `to_json` wrote."""
    return Cause(str(document["cause"]), str(document["hint"]), Confidence(document["confidence"]))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the worker that failed first."""

    failure: AgentFailureInfo
    root: WorkerFailure

    @property
    def text(self) -> str:
        """All that it said itself; its peers' complaints about it are not among it."""
        root = self.root
        said = (root.exception_type or "", root.message, root.traceback)
        return "\n".join([*said, *last_words(self.failure)])

    @property
    def stack(self) -> str:
        """Where the worker that moved last was, if the job hung."""
        return self.failure.stacks.get(str(self.root.global_rank), "")


_COLLECTIVES = re.compile(
    r"all_reduce|barrier|broadcast|all_gather|reduce_scatter|distributed_c10d"
)
_NCCL_TIME_OUTS = (r"collective operation timeout", r"NCCL.{0,200}(?:timeout|timed out)")
_GLOO_TIME_OUTS = (
    r"Timed out waiting \d+ms for (?:recv|send|all)",
    r"Application timeout caused pair closure",
    r"gloo.{0,200}(?:timed? ?out)",
)
_TIME_OUT = re.compile("|".join((*_NCCL_TIME_OUTS, *_GLOO_TIME_OUTS)), re.IGNORECASE)
_Test = Callable[[Evidence], bool]


def known_cause(failure: AgentFailureInfo) -> Cause | None:
    """The cause of a failure, if it is one of those that everybody meets sooner or later."""
    root = failure.root_cause
    if root is None:
        return None
    evidence = Evidence(failure, root)
    if failure.kind is FailureKind.HANG:
        return _hang(evidence)
    missing = _missing_module(root)
    if missing is not None:
        return missing
    if root.exception_type in ("bdb.BdbQuit", "BdbQuit"):
        return _LEFT_DEBUGGER
    return next((cause for fits, cause in _KNOWN if fits(evidence)), None)


_LEFT_DEBUGGER = Cause(
    "left the debugger",
    "q, or Ctrl-D, at a breakpoint ends the rank; c lets it go on",
    Confidence.CERTAIN,
)


def is_time_out(worker: WorkerFailure) -> bool:
    """Whether it has waited for others in vain; where those are is of more interest."""
    return _TIME_OUT.search(worker.message) is not None


def is_in_collective(stack: str) -> bool:
    return _COLLECTIVES.search(stack) is not None


def _says(*patterns: str) -> _Test:
    compiled = re.compile("|".join(patterns), re.IGNORECASE)
    return lambda evidence: compiled.search(evidence.text) is not None


def _died_of(*signals: signal.Signals) -> _Test:
    return lambda evidence: evidence.root.signal in signals


def _missing_module(root: WorkerFailure) -> Cause | None:
    found = re.search(r"No module named '([^']+)'", root.message)
    if root.exception_type not in ("ModuleNotFoundError", "ImportError") or found is None:
        return None
    package = found[1].partition(".")[0]
    return Cause(
        "missing module",
        f"{found[1]!r} cannot be imported by the workers' Python: install {package!r} there, or "
        "start from the directory that it is in (PYTHONPATH)",
        Confidence.CERTAIN,
    )


def _hang(evidence: Evidence) -> Cause:
    if re.search(r"dataloader|multiprocessing.queues|_try_get_data", evidence.stack, re.IGNORECASE):
        return Cause(
            "data loading",
            "it waits for its DataLoader: look at num_workers, at the storage behind the data set, "
            "and at locks in its workers",
            Confidence.LIKELY,
        )
    if any(is_in_collective(stack) for stack in evidence.failure.stacks.values()):
        return Cause(
            "ranks that wait for each other",
            "some ranks are in a collective that others have not come to: compare the stacks, and "
            "look for branches that depend on the rank",
            Confidence.LIKELY,
        )
    return Cause(
        "no progress",
        "the stacks show where each rank is; --hang-timeout is how long nothing may move",
        Confidence.POSSIBLE,
    )


_KNOWN: tuple[tuple[_Test, Cause], ...] = (
    (
        lambda evidence: evidence.root.oom,
        Cause(
            "out of memory",
            "the kernel ended it because memory ran out: use a smaller batch, fewer workers "
            "(--nproc-per-node, DataLoader), or a larger memory limit",
            Confidence.CERTAIN,
        ),
    ),
    (
        _says(r"CUDA out of memory", r"\bOutOfMemoryError\b", r"CUBLAS_STATUS_ALLOC_FAILED"),
        Cause(
            "out of device memory",
            "use a smaller batch, checkpoint activations, or shard the model; "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps against fragmentation",
            Confidence.CERTAIN,
        ),
    ),
    (
        _says(
            r"insufficient shared memory",
            r"unable to (?:open|write|allocate|mmap).{0,60}shared memory",
            r"/dev/shm.{0,80}No space left",
            r"killed by signal: Bus error",
        ),
        Cause(
            "shared memory too small",
            "/dev/shm is too small for the DataLoader's workers: enlarge it (containers: "
            "--shm-size, or an emptyDir of medium Memory), or use fewer of them",
            Confidence.CERTAIN,
        ),
    ),
    (
        _says(
            r"DefaultCPUAllocator",
            r"std::bad_alloc",
            r"\bMemoryError\b",
            r"Cannot allocate memory",
        ),
        Cause(
            "out of memory",
            "an allocation failed: use a smaller batch or fewer workers, or raise the memory limit",
            Confidence.LIKELY,
        ),
    ),
    (
        _says(r"Address already in use", r"EADDRINUSE"),
        Cause(
            "port in use",
            "another process has the port, perhaps one that an earlier job left: end it, or let a "
            "free port be chosen (--standalone, or no --master-port)",
            Confidence.CERTAIN,
        ),
    ),
    (
        _says(
            r"no kernel image is available",
            r"CUDA driver version is insufficient",
            r"Torch not compiled with CUDA enabled",
            r"forward compatibility was attempted",
            r"libcud(?:art|nn|a)\S*: cannot open shared object",
        ),
        Cause(
            "CUDA mismatch",
            "this build of torch does not fit the driver or the device: compare `nvidia-smi` with "
            "`python -c 'import torch; print(torch.version.cuda)'`",
            Confidence.CERTAIN,
        ),
    ),
    (
        _says(r"device-side assert triggered"),
        Cause(
            "an assertion on the device",
            "often an index out of range, as of labels; CUDA_LAUNCH_BLOCKING=1 names the line",
            Confidence.LIKELY,
        ),
    ),
    (
        _says(*_NCCL_TIME_OUTS),
        Cause(
            "NCCL time-out",
            "a collective did not come to its end: one rank was slow, gone or elsewhere; look at "
            "the rank that is missing in it, then at the network (NCCL_DEBUG=INFO)",
            Confidence.LIKELY,
        ),
    ),
    (
        _says(r"ncclSystemError", r"ncclInternalError", r"ncclUnhandledCudaError", r"NCCL error"),
        Cause(
            "NCCL",
            "NCCL_DEBUG=INFO tells what it could not do; often the interface "
            "(NCCL_SOCKET_IFNAME), /dev/shm, or a device that is in use",
            Confidence.POSSIBLE,
        ),
    ),
    (
        _says(*_GLOO_TIME_OUTS),
        Cause(
            "gloo time-out",
            "a peer did not come to the same collective in time: look for the rank that was slow "
            "or elsewhere; init_process_group(timeout=…) allows more",
            Confidence.LIKELY,
        ),
    ),
    (
        _says(r"Timed out after \d+ seconds waiting for clients", r"wait timeout after \d+ms"),
        Cause(
            "store time-out",
            "not every rank came to the store in time: look for the ranks that are missing, then "
            "at firewalls between the nodes",
            Confidence.LIKELY,
        ),
    ),
    (
        _says(r"Too many open files"),
        Cause(
            "too many open files",
            "raise the limit (ulimit -n), or set "
            "torch.multiprocessing.set_sharing_strategy('file_system')",
            Confidence.CERTAIN,
        ),
    ),
    (
        _says(r"No space left on device", r"Disk quota exceeded"),
        Cause(
            "disk full", "make room where the job writes, or write elsewhere", Confidence.CERTAIN
        ),
    ),
    (
        _died_of(signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
        Cause(
            "ended from outside",
            "somebody sent it the signal: a person, a time limit, or a scheduler that wants the "
            "machine back; the script did not fail by itself",
            Confidence.LIKELY,
        ),
    ),
    (
        _died_of(signal.SIGKILL),
        Cause(
            "killed from outside",
            "SIGKILL is never a script's own: often a memory limit of a container or a batch "
            "system (`dmesg`, the scheduler's log), else a person",
            Confidence.POSSIBLE,
        ),
    ),
    (
        _died_of(signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT),
        Cause(
            "a crash in native code",
            "the frames are where Python was; an extension that does not fit this torch or this "
            "processor is the usual reason, too little stack (ulimit -s) a rare one",
            Confidence.POSSIBLE,
        ),
    ),
)
