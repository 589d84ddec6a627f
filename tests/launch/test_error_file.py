"""The document for a launcher above us is torch's own."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from dlrover_cli.contracts import AgentFailureInfo, WorkerFailure
from dlrover_cli.launch.error_file import error_document, handing_on_errors
from dlrover_cli.launch.outcome import RunReport


def failure(**worker: object) -> AgentFailureInfo:
    root = {"global_rank": 3, "local_rank": 1, "pid": 7, "time_ns": 5_000_000_000, **worker}
    return AgentFailureInfo(
        workers=(WorkerFailure(**root, root_cause=True),)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "worker,message,code",
    [
        ({"exit_code": 1, "message": "ValueError: x"}, "ValueError: x", 1),
        ({"exit_code": 9}, "rank 3 exited with code 9", 9),
        ({"signal": 9}, "rank 3 was killed by SIGKILL", -9),
        ({"signal": 11, "message": "fault"}, "rank 3 was killed by SIGSEGV: fault", -11),
    ],
)
def test_torch_reads_the_root_cause(
    tmp_path: Path, worker: dict[str, object], message: str, code: int
) -> None:
    path = tmp_path / "error.json"
    report = RunReport(None, [], print)
    ending = SimpleNamespace(failure=failure(**worker, traceback="in train.py"))
    report.ending = ending  # type: ignore[assignment]
    with (
        pytest.raises(RuntimeError),
        handing_on_errors(report, {"TORCHELASTIC_ERROR_FILE": str(path)}),
    ):
        raise RuntimeError("the job failed")
    read = ProcessFailure(0, 1, 1, str(path))
    assert read.timestamp == 5
    recorded = read.error_file_data["message"]
    assert recorded["message"] == message
    assert recorded["errorCode"] == code
    assert recorded["extraInfo"]["py_callstack"] == "in train.py"


def test_without_a_worker_to_blame_it_is_our_own_exception() -> None:
    document = error_document(ValueError("no such port"), None)["message"]
    assert document["message"] == "ValueError: no such port"
    assert "ValueError: no such port" in document["extraInfo"]["py_callstack"]


@pytest.mark.parametrize("environ", [{}, {"TORCHELASTIC_ERROR_FILE": ""}])
def test_nothing_is_left_where_nobody_asked(environ: dict[str, str]) -> None:
    with (
        pytest.raises(ValueError, match="x"),
        handing_on_errors(RunReport(None, [], print), environ),
    ):
        raise ValueError("x")


def test_a_file_that_cannot_be_written_hides_nothing() -> None:
    environ = {"TORCHELASTIC_ERROR_FILE": "/proc/nowhere/error.json"}
    with (
        pytest.raises(ValueError, match="x"),
        handing_on_errors(RunReport(None, [], print), environ),
    ):
        raise ValueError("x")
