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


def like_torch_that_tries_numpy_in_cpp(signum: signal.Signals) -> None:
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), signum)


def import_and_ask(signum: signal.Signals) -> None:
    with interruptible([signum]) as raise_swallowed:
        like_torch_that_tries_numpy_in_cpp(signum)
        raise_swallowed()


def test_a_signal_that_an_import_swallows_is_raised_when_the_imports_are_over() -> None:
    with pytest.raises(Interrupted) as caught:
        import_and_ask(signal.SIGUSR1)
    assert caught.value.sigval == signal.SIGUSR1


def test_ctrl_c_that_an_import_swallows_is_a_keyboard_interrupt_when_the_imports_are_over() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            import_and_ask(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def import_that_fails_of_it(signum: signal.Signals) -> None:
    with interruptible([signum]):
        try:
            os.kill(os.getpid(), signum)
        except BaseException as error:
            raise ImportError("cannot load module more than once per process") from error


def test_a_signal_of_which_an_import_makes_something_else_is_still_the_signal() -> None:
    with pytest.raises(Interrupted) as caught:
        import_that_fails_of_it(signal.SIGUSR1)
    assert caught.value.sigval == signal.SIGUSR1


def test_without_a_signal_nothing_is_raised_when_the_imports_are_over() -> None:
    with interruptible([signal.SIGUSR1]) as raise_swallowed:
        raise_swallowed()
