"""From the exception that ends a run to its exit code and its result."""

import signal
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from dlrover_cli.agent.ending import Ending
from dlrover_cli.agent.judge import Settlement
from dlrover_cli.contracts import FailoverStrategy
from dlrover_cli.errors import ConfigError, LaunchError, RendezvousFailed
from dlrover_cli.failover.advice import Verdict
from dlrover_cli.failover.decide import Counters, Limits, decide
from dlrover_cli.launch.interrupted import Interrupted
from dlrover_cli.launch.outcome import RunReport, exit_code_of, reporting
from dlrover_cli.testing import exception_failure
from tests.integration.jobs import document


def child_failed(*statuses: int) -> ChildFailedError:
    failures = {}
    for rank, status in enumerate(statuses):
        failures[rank] = ProcessFailure(rank, 100 + rank, status, "")
        failures[rank].timestamp = rank
    return ChildFailedError("train.py", failures)


@pytest.mark.parametrize(
    "error,code,outcome",
    [
        (ConfigError("m", setting="s"), 2, "refused"),
        (RendezvousFailed("m"), 80, "rendezvous_failed"),
        (LaunchError("m"), 1, "failed"),
        (Interrupted(signal.SIGTERM), 143, "signalled"),
        (SignalException("m", sigval=signal.SIGHUP), 129, "signalled"),
        (KeyboardInterrupt(), 130, "signalled"),
        (child_failed(3), 3, "failed"),
        (child_failed(-11, 1), 139, "failed"),
        (child_failed(2), 1, "failed"),
        (child_failed(85), 1, "failed"),
        (SystemExit(7), 7, "failed"),
        (SystemExit("words"), 1, "failed"),
        (SystemExit(), 0, "failed"),
        (ZeroDivisionError("a bug"), None, "failed"),
    ],
)
def test_every_end_has_a_code_and_a_name(
    error: BaseException, code: int | None, outcome: str
) -> None:
    assert exit_code_of(error) == code
    result = RunReport(None, ["train.py"], print).document(error)
    assert result["exit_code"] == (1 if code is None else code)
    assert result["outcome"] == outcome
    assert result["reason"]
    assert "\n" not in result["reason"]


def test_the_result_of_an_abort_says_who_decided_it_and_why() -> None:
    failure = exception_failure("ValueError", "bad batch", rank=2)
    verdict = Verdict(FailoverStrategy.ABORTION_FAILOVER, "rule 'bad-data'", "the data is broken")
    decision = decide(verdict.strategy, Counters(), Limits(max_restarts=3))
    report = RunReport(None, ["train.py"], print)
    report.ending = Ending(Settlement(decision, Counters(), failure, verdict), failure, alone=True)
    result = report.document(child_failed(1))
    assert result["reason"] == (
        "rank 2 exited with code 1 (ValueError: bad batch); "
        "rule 'bad-data': the data is broken; aborted by policy; do not retry"
    )
    assert (result["decision"], result["strategy"]) == ("abort", "ABORTION_FAILOVER")
    assert result["decided_by"] == "rule 'bad-data'"


class TestResultFile:
    def test_it_is_written_on_the_way_out_and_the_exception_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "result.json"
        error = RendezvousFailed("nobody came", hint="wait longer")
        with (
            pytest.raises(RendezvousFailed) as caught,
            reporting(RunReport(str(path), ["a"], print)),
        ):
            raise error
        assert caught.value is error
        result = document(path)
        assert (result["reason"], result["hint"]) == ("nobody came", "wait longer")

    def test_a_place_that_vanishes_is_said_and_hides_nothing(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        said: list[str] = []
        report = RunReport(str(folder / "result.json"), [], said.append)

        def run() -> None:
            folder.rmdir()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), reporting(report):
            run()
        assert len(said) == 1
        assert "cannot write the result" in said[0]

    @pytest.mark.parametrize("name", ["folder", "nowhere/result.json"])
    def test_a_place_that_cannot_be_is_refused_at_once(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "folder").mkdir()
        ran: list[Any] = []
        with (
            pytest.raises(ConfigError, match="--result-file"),
            reporting(RunReport(str(tmp_path / name), [], print)),
        ):
            ran.append(1)
        assert not ran
