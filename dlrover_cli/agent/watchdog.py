"""torch's optional guards around the workers: the file timer, the health check, stuck processes."""

import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.health_check_server import create_healthcheck_server
from torch.distributed.elastic.timer import FileTimerServer

from dlrover_cli.contracts import WorkerFailure
from dlrover_cli.telemetry.events import Recorder

_CHECK_SECONDS = 1.0
_HEALTH_CHECK_TIMEOUT = 60


class Watchdog:
    """Set up from torch's environment variables, torn down with the agent."""

    def __init__(self, health_check_server: Any, record: Recorder) -> None:
        self._record = record
        self._timer: FileTimerServer | None = None
        self._health = health_check_server
        self._stuck_after = _seconds(os.environ.get("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"))
        self._stuck_since: dict[int, float] = {}

    def start(self, envs: dict[int, dict[str, str]]) -> None:
        """Start what the environment asks for, and tell the workers where the timer's pipe is."""
        path = os.environ.get("TORCHELASTIC_TIMER_FILE")
        if os.environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1":
            path = path or os.path.join(tempfile.gettempdir(), f"watchdog_timer_{uuid.uuid4()}")
            self._stop_timer()
            self._timer = FileTimerServer(
                file_path=path,
                run_id=envs[0]["TORCHELASTIC_RUN_ID"],
                max_interval=0.1,
                daemon=True,
                log_event=self._record_timer,
            )
            self._timer.start()
        if path is not None:
            for env in envs.values():
                env["TORCHELASTIC_TIMER_FILE"] = path
        self._start_health_check()

    def next_check(self) -> float | None:
        """When the agent should look at the workers again; None if it need not."""
        return time.monotonic() + _CHECK_SECONDS if self._stuck_after > 0 else None

    def stuck_worker(self, pids: Mapping[int, int]) -> WorkerFailure | None:
        """A worker that has been in uninterruptible sleep for longer than allowed."""
        now = time.monotonic()
        for local_rank, pid in pids.items():
            if _process_state(pid) != "D":
                self._stuck_since.pop(pid, None)
                continue
            if now - self._stuck_since.setdefault(pid, now) >= self._stuck_after:
                return WorkerFailure(
                    global_rank=local_rank,
                    local_rank=local_rank,
                    pid=pid,
                    exit_code=1,
                    message=f"stuck in uninterruptible sleep for {self._stuck_after:g} s",
                    time_ns=time.time_ns(),
                )
        return None

    def stop(self) -> None:
        """Stop everything that was started."""
        self._stop_timer()
        if self._health is not None:
            self._health.stop()
            self._health = None

    def _record_timer(self, name: str, request: Any) -> None:
        self._record("file_timer", event=name, pid=getattr(request, "worker_pid", None))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _start_health_check(self) -> None:
        port = os.environ.get("TORCHELASTIC_HEALTH_CHECK_PORT")
        if self._health is not None or port is None or not port.isdigit():
            return
        alive = self._timer.get_last_progress_time if self._timer else lambda: int(time.time())
        self._health = create_healthcheck_server(
            alive_callback=alive, port=int(port), timeout=_HEALTH_CHECK_TIMEOUT
        )
        self._health.start()


def _process_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0
