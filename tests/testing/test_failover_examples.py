"""examples/failover: each extension decides as its page says, and its test passes."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dlrover_cli.contracts import AgentFailureInfo
from dlrover_cli.errors import PluginError
from dlrover_cli.failover.advice import Verdict
from dlrover_cli.testing import ask_extension, exception_failure, exit_failure

FOLDER = Path(__file__).parents[2] / "examples" / "failover"
ECC = exception_failure("RuntimeError", "CUDA error: uncorrectable ECC error", host="gpu-17")


def asked(reference: str, *failures: AgentFailureInfo) -> list[str | None]:
    """The names of the strategies; None for no opinion. There must be no problems."""
    verdicts = ask_extension(reference, *failures, roots=[FOLDER])
    assert [each for each in verdicts if isinstance(each, Verdict) and each.problems] == []
    return [None if each is None else each.strategy.name for each in verdicts]


def test_known_codes_abort() -> None:
    answers = asked("abort_on_code::AbortOnKnownCode", exit_failure(3), exit_failure(4))
    assert answers == ["ABORTION_FAILOVER", "NORMAL_FAILOVER"]


def test_the_test_of_an_extension_passes() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "6 passed" in finished.stdout


class TestAskService:
    """`ask_service`, with its own service and with services that misbehave."""

    @pytest.fixture(autouse=True)
    def without_a_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("no_proxy", "127.0.0.1")

    def test_the_service_decides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        service = subprocess.Popen(
            [sys.executable, str(FOLDER / "policy_service.py"), "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert service.stdout is not None
            port = service.stdout.readline().split()[-1]
            monkeypatch.setenv("FAILOVER_SERVICE_URL", f"http://127.0.0.1:{port}/decide")
            answers = asked("ask_service::AskService", ECC, exit_failure(1, host="gpu-1"))
        finally:
            service.kill()
            service.communicate()
        assert answers == ["NODE_FAILOVER", None]

    def test_without_the_service_there_is_no_opinion(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAILOVER_SERVICE_URL", "http://127.0.0.1:1/decide")
        assert asked("ask_service::AskService", ECC) == [None]

    def test_without_an_address_the_job_is_not_started(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("FAILOVER_SERVICE_URL", raising=False)
        with pytest.raises(PluginError, match="raised KeyError: 'FAILOVER_SERVICE_URL'"):
            asked("ask_service::AskService", ECC)

    def test_a_service_that_drips_bytes_is_not_waited_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with dripping_service() as port:
            monkeypatch.setenv("FAILOVER_SERVICE_URL", f"http://127.0.0.1:{port}/decide")
            monkeypatch.setenv("FAILOVER_SERVICE_SECONDS", "0.3")
            started = time.monotonic()
            assert asked("ask_service::AskService", ECC, ECC) == [None, None]
            assert time.monotonic() - started < 20


class TestInferStrategy:
    """`infer`: the model is waited for, but not for ever."""

    def test_the_model_decides(self) -> None:
        failures = [ECC, exception_failure("KeyError", "'lr'"), exit_failure(1)]
        answers = asked("infer::InferStrategy", *failures)
        assert answers == ["NODE_FAILOVER", "ABORTION_FAILOVER", None]

    def test_the_first_failure_waits_for_the_model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MODEL_LOAD_SECONDS", "0.5")
        assert asked("infer::InferStrategy", ECC) == ["NODE_FAILOVER"]

    def test_a_model_that_does_not_come_is_done_without(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MODEL_LOAD_SECONDS", "1000")
        monkeypatch.setenv("MODEL_PATIENCE_SECONDS", "0.1")
        assert asked("infer::InferStrategy", ECC) == [None]


@contextmanager
def dripping_service() -> Iterator[int]:
    """Sends a byte of its answer every now and then, so that no read ever times out."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            try:
                while not over.wait(0.02):
                    self.wfile.write(b" ")
            except OSError:
                pass

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="dripping-service")
    thread.start()
    try:
        yield server.server_port
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
