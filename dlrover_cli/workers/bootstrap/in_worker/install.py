"""Everything that is put into a worker, in one call."""

import atexit
import os
import sys

from . import breakpoints, exits, faults, imports, modules, page, progress, rest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def install(directory: str, beat_file: str | None, *, learn: bool = False) -> None:
    """Record this process's end in ``directory`` and its progress in ``beat_file``.

    With ``learn`` it also leaves there what it has loaded by its first step.

    Only the worker itself: a process that it started and that got here by accident (because the
    worker's own interpreter did not look at its environment) is left alone. Each part stands for
    itself; one that cannot be installed is noted and missed, never an error.
    """
    beats = None
    if beat_file:
        with _noting(directory, "beats"):
            beats = page.open_page(beat_file)
    if beats is not None and not beats.claim():
        return
    known = frozenset(sys.modules) if learn else None

    def note_modules() -> None:
        with _noting(directory, "modules"):
            if known is not None:
                modules.write_down(directory, known)

    tracker = progress.Progress(beats, note_modules)
    recorder = exits.ExitRecorder(directory, tracker.phase_name)
    watch = imports.ImportWatch(lambda name, error: _note(directory, name, error))
    with _noting(directory, "exits"):
        recorder.install()
        # Registered before anybody's, so it runs after them.
        atexit.register(_end(directory, recorder))
        watch.when_imported("threading", recorder.watch_threads)
    with _noting(directory, "faults"):
        faults.enable(directory)
        if beats is not None:
            stack_signal = faults.StackSignal(
                directory, beats, lambda error: _note(directory, "signal", error)
            )
            watch.when_imported("signal", stack_signal.watch)
    if beats is not None:
        watch.when_imported("torch.optim.optimizer", tracker.watch_optimizers)
        watch.when_imported("torch.distributed.distributed_c10d", tracker.watch_process_group)
    if beats is not None:
        _let_somebody_look_into(beats, beat_file or "", directory, watch)
    with _noting(directory, "fork"):
        os.register_at_fork(after_in_child=_leave_to_parent(tracker))


def _let_somebody_look_into(
    beats: page.Page, beat_file: str, directory: str, watch: imports.ImportWatch
) -> None:
    # Gone from the environment: what the worker starts is not looked into.
    debug = os.environ.pop("DLROVER_DEBUG", None)
    post_mortem = os.environ.pop("DLROVER_POST_MORTEM", None)
    terminal = os.environ.pop("DLROVER_TERMINAL", "")
    if debug is None:
        with _noting(directory, "breakpoints"):
            breakpoints.note_breakpoints(beats)
    if debug is None and post_mortem is None:
        return
    with _noting(directory, "debugger"):
        from . import debugger

        def note(line: str) -> None:
            _note(directory, "debugger", RuntimeError(line))

        looked_into = debugger.Debugger(beats, os.environ.get("RANK", "?"), note)
        if debug == debugger.NOT_HERE:
            debugger.pass_by_breakpoints(watch)
        else:
            looked_into.serve_breakpoints(watch)
        if post_mortem is not None:
            claim = os.path.join(os.path.dirname(beat_file), "post-mortem")
            attempt = os.environ.get("DLROVER_ATTEMPT", "0")
            ask = post_mortem == debugger.POST_MORTEM_ASKED
            looked_into.watch_exceptions(terminal, f"{claim}.{attempt}", ask=ask)
        if debug == debugger.FOR_AN_IDE:
            looked_into.listen()


def _end(directory: str, recorder: exits.ExitRecorder) -> "Callable[[], None]":
    def end() -> None:
        recorder.finish()
        with _noting(directory, "rest"):
            rest.await_rest()

    return end


def _leave_to_parent(tracker: progress.Progress) -> "Callable[[], None]":
    def after_fork() -> None:
        tracker.detach()
        faults.detach()

    return after_fork


class _noting:  # noqa: N801 - reads as the with-statement that it is for
    """Swallow and note what goes wrong inside. (contextlib would be another import.)"""

    def __init__(self, directory: str, what: str) -> None:
        self._directory = directory
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        _note(self._directory, self._what, error)
        return True


def _note(directory: str, what: str, error: BaseException) -> None:
    try:
        with open(os.path.join(directory, "bootstrap.log"), "a") as log:
            log.write(f"{what}: {type(error).__name__}: {error} (Python {sys.version_info[:3]})\n")
    except OSError:
        pass  # nowhere to say it, and the worker matters more
