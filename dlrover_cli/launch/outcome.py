"""How a run ended: the exception it ends with, the exit code, and the result document."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlrover_cli.errors import ConfigError, DlroverError
from dlrover_cli.exit_codes import ExitCode, from_signal, from_worker
from dlrover_cli.telemetry.run_dir import RunDirectory, write_json_atomically

if TYPE_CHECKING:
    from dlrover_cli.agent.ending import Ending
    from dlrover_cli.diagnosis.verdict import Verdict
    from dlrover_cli.failover.decide import Counters

SCHEMA_VERSION = 1


def exit_code_of(error: BaseException) -> int | None:
    """The exit code that an outcome leads to; None for an exception that is a bug instead."""
    if isinstance(error, DlroverError):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    signum = getattr(error, "sigval", None)
    if signum is not None:
        return from_signal(signum)
    if isinstance(error, KeyboardInterrupt):
        return from_signal(signal.SIGINT)
    failures = getattr(error, "failures", None)
    if failures:
        return from_worker(error.get_first_failure()[1].exitcode)  # type: ignore[attr-defined]
    return None


@dataclass(slots=True)
class RunReport:
    """What is known of a run while it goes on; written down however it ends."""

    result_file: str | None
    argv: list[str]
    say: Callable[[str], None]
    started: float = field(default_factory=time.time)
    run_directory: RunDirectory | None = None
    result_name: str = "result.json"
    """Where the result is, below the run directory."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What is known from elsewhere, such as the nodes of a job; ours goes before."""
    counters: "Counters | None" = None
    ending: "Ending | None" = None

    def document(self, error: BaseException | None) -> dict[str, Any]:
        """The result, for people and programs."""
        code = ExitCode.SUCCESS if error is None else exit_code_of(error)
        document: dict[str, Any] = dict(self.details) | {
            "schema_version": SCHEMA_VERSION,
            "run_id": None if self.run_directory is None else self.run_directory.run_id,
            "outcome": _outcome(error),
            "exit_code": int(ExitCode.FAILURE if code is None else code),
            "reason": self._reason(error),
            "hint": getattr(error, "hint", None),
            "argv": self.argv,
            "started": self.started,
            "ended": time.time(),
            "run_directory": None if self.run_directory is None else str(self.run_directory.path),
        }
        if self.counters is not None:
            document |= {
                "attempts": self.counters.attempt + 1,
                "restart_count": self.counters.restart_count,
                "generation": self.counters.generation,
            }
        if self.ending is not None:
            document["decision"] = self.ending.decision.action.value
            verdict = self.ending.settlement.verdict
            if verdict is not None:
                document["strategy"] = verdict.strategy.value
                document["decided_by"] = verdict.decided_by
            if self.ending.failure is not None:
                document["failure"] = self.ending.failure.to_json()
        if (told := self.verdict) is not None:
            document["verdict"] = told.to_json()
        return document

    @property
    def verdict(self) -> "Verdict | None":
        """What a person has to know of the failure that ended the run."""
        if self.ending is None or self.ending.failure is None or self.run_directory is None:
            return None
        from dlrover_cli.launch.verdicts import verdict_of

        return verdict_of(self.ending, self.ending.failure, self.run_directory, self.started)

    def _reason(self, error: BaseException | None) -> str:
        if error is None:
            return "every worker succeeded"
        if self.ending is not None and self.ending.failure is not None:
            from dlrover_cli.agent.facts import describe_end
            from dlrover_cli.agent.narration import reason_of

            root = self.ending.failure.root_cause
            if root is not None:
                what = f"rank {root.global_rank} {describe_end(root)}"
                return f"{what}; {reason_of(self.ending.settlement)}"
        return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def reporting(report: RunReport) -> Iterator[RunReport]:
    """Write the result, to the run directory and to ``--result_file``, on every way out."""
    with reporting_failure(report):
        yield report
    _write(report, report.document(None))


@contextmanager
def reporting_failure(report: RunReport) -> Iterator[None]:
    """Write the result if it is a failure; of a part that others follow."""
    if report.result_file is not None:
        _check_result_file(report.result_file)
    try:
        yield
    except BaseException as error:
        _write(report, report.document(error))
        raise


def _write(report: RunReport, document: Mapping[str, Any]) -> None:
    if report.run_directory is not None:
        report.run_directory.write_document(report.result_name, document)
    if report.result_file is not None:
        try:
            write_json_atomically(Path(report.result_file), document)
        except OSError as error:
            report.say(f"cannot write the result to {report.result_file}: {error.strerror}")


def _check_result_file(path: str) -> None:
    directory = Path(path).absolute().parent
    if Path(path).is_dir():
        raise ConfigError(
            f"--result-file {path!r} is a directory",
            setting="result_file",
            hint="name a file in it",
        )
    if not directory.is_dir() or not os.access(directory, os.W_OK):
        raise ConfigError(
            f"--result-file {path!r}: {str(directory)!r} is not a directory that can be written",
            setting="result_file",
            hint="make the directory first",
        )


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "succeeded"
    match exit_code_of(error):
        case ExitCode.USAGE:
            return "refused"
        case ExitCode.RENDEZVOUS:
            return "rendezvous_failed"
        case ExitCode.ABORTED:
            return "aborted"
        case _ if getattr(error, "sigval", None) is not None or isinstance(
            error, KeyboardInterrupt
        ):
            return "signalled"
        case _:
            return "failed"
