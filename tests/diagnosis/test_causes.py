"""Which well-known cause a failure has, and that unknown ones have none."""

import pytest

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.diagnosis.causes import Confidence, known_cause
from dlrover_cli.testing import (
    exception_failure,
    exit_failure,
    hang_failure,
    signal_failure,
    start_up_failure,
)

GLOO = "[/x/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation"
NCCL = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"
SHM = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's"


@pytest.mark.parametrize(
    "failure,cause",
    [
        (signal_failure("SIGKILL", oom=True), "out of memory"),
        (exception_failure("OutOfMemoryError", "CUDA out of memory."), "out of device memory"),
        (exception_failure("RuntimeError", SHM), "shared memory too small"),
        (exception_failure("MemoryError", ""), "out of memory"),
        (exception_failure("OSError", "[Errno 98] Address already in use"), "port in use"),
        (exception_failure("RuntimeError", "no kernel image is available"), "CUDA mismatch"),
        (exception_failure("bdb.BdbQuit", ""), "left the debugger"),
        (exception_failure("RuntimeError", NCCL), "NCCL time-out"),
        (exception_failure("RuntimeError", GLOO), "gloo time-out"),
        (exception_failure("OSError", "[Errno 24] Too many open files"), "too many open files"),
        (exception_failure("OSError", "[Errno 28] No space left on device"), "disk full"),
        (start_up_failure(), "missing module"),
        (signal_failure("SIGTERM"), "ended from outside"),
        (signal_failure("SIGKILL"), "killed from outside"),
        (signal_failure("SIGSEGV"), "a crash in native code"),
        (hang_failure({0: 'File "torch/utils/data/dataloader.py", line 1'}), "data loading"),
        (
            hang_failure({0: "File x in wait", 1: "File y in all_reduce"}),
            "ranks that wait for each other",
        ),
        (hang_failure({0: "File x in compute"}), "no progress"),
    ],
)
def test_a_well_known_failure_has_its_cause(failure: AgentFailureInfo, cause: str) -> None:
    found = known_cause(failure)
    assert found is not None
    assert found.name == cause


@pytest.mark.parametrize(
    "failure", [exception_failure("ValueError", "boom"), exit_failure(3), AgentFailureInfo()]
)
def test_others_have_none(failure: AgentFailureInfo) -> None:
    assert known_cause(failure) is None


def test_the_module_is_named() -> None:
    found = known_cause(start_up_failure("ModuleNotFoundError", "No module named 'a.b'"))
    assert found is not None
    assert "install 'a'" in found.hint
    assert found.confidence is Confidence.CERTAIN


def test_what_other_ranks_say_is_no_evidence() -> None:
    failure = exception_failure("ValueError", "boom", rank=1)
    failure.log_content = f"""rank 1 exited with code 1
the end of its stderr:
hello
rank 0 exited with code 1: RuntimeError: {GLOO}"""
    assert known_cause(failure) is None
    failure.log_content = f"rank 1 exited with code 1\nthe end of its stderr:\n{GLOO}"
    found = known_cause(failure)
    assert found is not None
    assert found.name == "gloo time-out"
