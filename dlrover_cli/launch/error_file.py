"""The error file of a launcher above us: a job inside a job hands its root cause on.

torchrun names a file in ``TORCHELASTIC_ERROR_FILE`` for each of its workers. A worker that is a
launcher leaves there what made its own job fail, in torch's format, as torch's launcher does.
"""

import json
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dlrover_cli.contracts import AgentFailureInfo, WorkerFailure
from dlrover_cli.launch.outcome import RunReport

VARIABLE = "TORCHELASTIC_ERROR_FILE"


@contextmanager
def handing_on_errors(report: RunReport, environ: Mapping[str, str]) -> Iterator[None]:
    """Leave the error file for whatever is raised inside; does nothing where none is asked for."""
    path = environ.get(VARIABLE)
    try:
        yield
    except Exception as error:
        if path:
            failure = None if report.ending is None else report.ending.failure
            _write(Path(path), error_document(error, failure))
        raise


def error_document(error: Exception, failure: AgentFailureInfo | None) -> dict[str, Any]:
    """torch's document: of the worker that was the root cause, or else of our own exception."""
    root = None if failure is None else failure.root_cause
    if root is not None:
        return _document(
            _what_happened(root),
            root.traceback,
            root.time_ns // 1_000_000_000,
            errorCode=root.exit_code if root.exit_code is not None else -(root.signal or 0),
        )
    trace = "".join(traceback.format_exception(error))
    return _document(f"{type(error).__name__}: {error}", trace, int(time.time()))


def _what_happened(root: WorkerFailure) -> str:
    from dlrover_cli.agent.facts import describe_status

    status = f"rank {root.global_rank} {describe_status(root)}"
    if root.signal is None:
        return root.message or status
    return f"{status}: {root.message}" if root.message else status


def _document(message: str, callstack: str, timestamp: int, **more: object) -> dict[str, Any]:
    extra = {"py_callstack": callstack, "timestamp": str(timestamp)}
    return {"message": {"message": message, **more, "extraInfo": extra}}


def _write(path: Path, document: Mapping[str, Any]) -> None:
    with suppress(OSError):  # the launcher above still learns the exit code
        path.write_text(json.dumps(document))
