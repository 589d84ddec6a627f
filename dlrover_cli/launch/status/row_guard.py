"""Giving the last row back should the launcher be killed: a shell that waits for its end."""

import contextlib
import subprocess

# A line tells it that all is well. If none comes, we are gone, and it does what we no longer can.
_SCRIPT = "read -r line || printf '{}'"
_END_SECONDS = 1.0


class RowGuard:
    """Watches over this process from `begin` to `end`."""

    def __init__(self, terminal: int, release: str) -> None:
        """``release`` is what the terminal has to be sent."""
        self._terminal = terminal
        self._script = _SCRIPT.format(release.replace("\033", r"\033"))
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Where no process can be started, there is no guard."""
        if self._process is not None:
            return
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self._script],
                stdin=subprocess.PIPE,
                stdout=self._terminal,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # Ctrl-C and hangups are not for it
            )

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.communicate(b"\n", _END_SECONDS)
