"""A job that is a process of this host: waited for by whoever started it, or by anybody else.

The kernel tells a process's exit status to its parent alone, so the parent, which is the run's own
runner, writes it down before it lets go of the process. A supervisor in between would be a second
runner and could be killed like the first. If the runner is killed, its job goes on: nothing of it
is ended behind the user's back. `dlrover-job list` shows the run as LOST, and `dlrover-job stop`
ends what is left; how the job ended by itself cannot be known then.
"""

import json
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dlrover_cli.contracts.jobs import AbstractJobHandler, JobResult
from dlrover_cli.exit_codes import ExitCode, from_signal
from dlrover_cli.telemetry.process_identity import ProcessIdentity
from dlrover_cli.telemetry.run_dir import write_json_atomically
from dlrover_cli.words import signal_name

_EXIT_STATUS = 49
"""Which of the fields of /proc/<pid>/stat after the command; that of a zombie can be read."""


class LocalProcessHandler(AbstractJobHandler):
    """The main process of a job, or why there is none."""

    _result: JobResult | None = None

    def __init__(
        self,
        run_id: str,
        run_directory: str,
        main: ProcessIdentity | None,
        *,
        not_started: JobResult | None = None,
    ) -> None:
        super().__init__()
        self.run_id = run_id
        self.run_directory = run_directory
        self.process: dict[str, Any] | None = None if main is None else main.to_json()
        self.starter: dict[str, Any] = ProcessIdentity.own().to_json()
        self.not_started: dict[str, Any] | None = None
        if not_started is not None:
            self.not_started = {
                "exit_code": not_started.exit_code,
                "reason": not_started.reason,
            }

    @property
    def main(self) -> ProcessIdentity | None:
        """None if the job could not be started."""
        return None if self.process is None else ProcessIdentity.from_json(self.process)

    @property
    def can_tell_status(self) -> bool:
        """Whether the exit status is, or will be, known: somebody wrote it down, or still can."""
        starter = ProcessIdentity.from_json(self.starter)
        return self._written() is not None or starter.is_alive()

    def wait(self, timeout: float | None = None) -> JobResult | None:
        """How the job ended; None if it still runs after ``timeout`` seconds."""
        written = self._written()
        main = self.main
        if written is not None or main is None:
            return written or _unknown()
        with _opened(main) as descriptor:
            if descriptor is not None and not _ends_within(descriptor, timeout):
                return None
            if descriptor is not None and self.starter == ProcessIdentity.own().to_json():
                self._take_leave(descriptor)
            # In this order: its parent writes the status while the zombie is still there.
            return self._written() or _status_of_zombie(main) or self._written() or _unknown()

    def _take_leave(self, descriptor: int) -> None:
        """As its parent: write the status down, and only then let the process go."""
        with suppress(ChildProcessError):  # another thread was here first
            end = os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT)
            if end is None:
                return
            is_exit = end.si_code == os.CLD_EXITED
            result = _result(end.si_status if is_exit else -end.si_status)
            self._result = result
            with suppress(OSError):  # a full disk: this process knows it all the same
                self._write(result)
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED)

    def _write(self, result: JobResult) -> None:
        path = self._exit_file
        path.parent.mkdir(mode=0o700, exist_ok=True)
        document = {"exit_code": result.exit_code, "reason": result.reason}
        write_json_atomically(path, document | {"process": self.process})

    def _written(self) -> JobResult | None:
        if self.not_started is not None:
            return JobResult(self.not_started["exit_code"], self.not_started["reason"])
        if self._result is not None or self.process is None:
            return self._result
        try:
            document = json.loads(self._exit_file.read_text())
        except (OSError, ValueError):
            return None
        return JobResult(document["exit_code"], document["reason"])

    @property
    def _exit_file(self) -> Path:
        assert self.process is not None
        name = f"{self.process['pid']}.{self.process['start_time']}.json"
        return Path(self.run_directory) / "exits" / name


@contextmanager
def _opened(main: ProcessIdentity) -> Iterator[int | None]:
    """Its pidfd, also of its zombie; None if there is not even that."""
    try:
        descriptor = os.pidfd_open(main.pid)
    except OSError:
        yield None
        return
    try:
        yield descriptor if _is_there(main) else None
    finally:
        os.close(descriptor)


def _is_there(main: ProcessIdentity) -> bool:
    try:
        return ProcessIdentity.of(main.pid) == main
    except ProcessLookupError:
        return False


def _ends_within(descriptor: int, timeout: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))


def _status_of_zombie(main: ProcessIdentity) -> JobResult | None:
    """What its parent has not asked for yet."""
    try:
        stat = Path(f"/proc/{main.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if stat[0] != "Z" or int(stat[19]) != main.start_time:
        return None
    return _result(os.waitstatus_to_exitcode(int(stat[_EXIT_STATUS])))


def _result(status: int) -> JobResult:
    """``status`` is negative for a signal."""
    if status >= 0:
        return JobResult(status, f"exited with code {status}" if status else "")
    return JobResult(from_signal(-status), f"killed by {signal_name(-status)}")


def _unknown() -> JobResult:
    return JobResult(
        ExitCode.FAILURE, "it has ended; how is not known, since the process that started it died"
    )
