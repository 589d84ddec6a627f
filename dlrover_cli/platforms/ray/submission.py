"""Ray's job submission: a command that the cluster runs on its head, and that can be asked about.

It is served by the cluster's dashboard; without that there is none, and a sentence says so.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.jobs import AbstractJobHandler, JobResult
from dlrover_cli.errors import LaunchError
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.platforms.ray.connecting import import_ray

_ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0
"""How long a dashboard may be away, as while it is started again."""
LOG_NAME = "ray-job.log"


def default_address(environ: Mapping[str, str]) -> str:
    """Where jobs are submitted if nobody says it."""
    given = (environ.get(name, "") for name in _ADDRESS_VARIABLES)
    return next(filter(None, given), "auto")


def submission_client(address: str) -> Any:
    """A client of the cluster's dashboard. Raises LaunchError."""
    import_ray()
    try:
        from ray.job_submission import JobSubmissionClient

        with _as_given():
            return JobSubmissionClient(address)
    except (ImportError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        why = " ".join(str(error).split())[:300]
        raise LaunchError(
            f"jobs cannot be submitted to the Ray cluster at {address}: {why}",
            hint="its dashboard takes them: start the head with `ray start --head "
            "--include-dashboard=true` and ray[default], and name it as ray_address: "
            "http://HEAD:8265",
        ) from error


class RayJobHandler(AbstractJobHandler):
    """A submitted job; whoever has it can wait for its end."""

    _client: Any = None

    def __init__(self, address: str, submission_id: str, run_directory: str) -> None:
        super().__init__()
        self.address = address
        self.submission_id = submission_id
        self.run_directory = run_directory

    def wait(self, timeout: float | None = None) -> JobResult | None:
        """Asks every half second. Raises LaunchError once the dashboard is gone for good."""
        deadline = None if timeout is None else time.monotonic() + timeout
        heard = time.monotonic()
        while True:
            try:
                info = self.client().get_job_info(self.submission_id)
                heard = time.monotonic()
                if info.status.is_terminal():
                    self.keep_log()
                    return result_of(info)
            except (LaunchError, RuntimeError, ConnectionError, OSError) as error:
                self._client = None
                if time.monotonic() - heard > _PATIENCE_SECONDS:
                    raise LaunchError(
                        f"the Ray job {self.submission_id} cannot be asked about any more: {error}",
                        hint=f"look at the cluster at {self.address}",
                    ) from error
            left = _LOOK_SECONDS
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
                if left <= 0:
                    return None
            time.sleep(left)

    def client(self) -> Any:
        if self._client is None:
            self._client = submission_client(self.address)
        return self._client

    def keep_log(self) -> None:
        """What the launcher printed, beside what each rank did; of a job that has ended."""
        with suppress(RuntimeError, OSError):
            text = self.client().get_job_logs(self.submission_id)
            path = Path(self.run_directory, LOG_NAME)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with open(os.open(path, flags, 0o600), "w", errors="replace") as file:
                file.write(text)


def result_of(info: Any) -> JobResult:
    """How a job that has ended ended, in our terms."""
    match info.status.value:
        case "SUCCEEDED":
            return JobResult(ExitCode.SUCCESS)
        case "STOPPED":
            return JobResult(from_signal(15), "stopped on the cluster")
        case _:
            code = info.driver_exit_code
            if code is None:
                why = (info.message or "it is not known why").partition("\n")[0]
                return JobResult(ExitCode.FAILURE, f"Ray could not run it: {why}")
            code = from_signal(-code) if code < 0 else code
            return JobResult(code, f"exited with code {code}")


@contextmanager
def _as_given() -> Iterator[None]:
    """Ray lets these variables win over the address that it is given."""
    kept = {name: os.environ.pop(name) for name in _ADDRESS_VARIABLES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)
