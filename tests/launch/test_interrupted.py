"""A signal before the agent runs ends the launcher in good order."""

import contextlib
import os
import signal

import pytest

from dlrover_cli.launch.interrupted import Interrupted, interruptible


def test_a_signal_becomes_an_exception_and_the_old_ways_return() -> None:
    def like_a_library_that_tries_an_import() -> None:
        with contextlib.suppress(Exception):
            os.kill(os.getpid(), signal.SIGUSR1)

    with pytest.raises(Interrupted) as caught, interruptible([signal.SIGUSR1]):
        like_a_library_that_tries_an_import()
    assert caught.value.sigval == signal.SIGUSR1
    assert caught.value.exit_code == 128 + signal.SIGUSR1
    assert "SIGUSR1" in caught.value.message
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


@pytest.mark.parametrize("before", [signal.SIG_IGN, lambda number, frame: None])
def test_what_is_ignored_or_handled_already_stays_so(before: object) -> None:
    old = signal.signal(signal.SIGUSR1, before)  # type: ignore[arg-type]
    try:
        with interruptible([signal.SIGUSR1]):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) == before
    finally:
        signal.signal(signal.SIGUSR1, old)
