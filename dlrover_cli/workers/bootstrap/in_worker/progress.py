"""Progress without a change to the script: torch's own hooks beat the page.

A beat is a sign of life and no exact measure. ``beats`` counts the outermost optimizer steps (a
``step`` inside a ``step`` is part of it); ``steps`` counts rounds in which an optimizer came up
again, so that two optimizers taken in turn, or one per parameter in the backward pass, make one
step per round.
"""

import sys
from time import monotonic_ns

from . import page as layout
from . import rest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

_MOST_OPTIMIZERS = 100_000


class Progress:
    """What this worker has done so far, kept in its page."""

    def __init__(
        self, page: layout.Page | None, on_first_step: "Callable[[], None]" = lambda: None
    ) -> None:
        self._page = page
        self._on_first_step = on_first_step
        self._detach_cells: Callable[[], None] | None = None

    def phase_name(self) -> str:
        return layout.PHASE_NAMES[0 if self._page is None else self._page.read(layout.PHASE)]

    def watch_process_group(self, distributed: "ModuleType") -> None:
        """Training begins when the default process group stands (torch.distributed_c10d)."""
        # Not init_process_group itself: a wrapper around that would show in users' tracebacks.
        original = distributed._update_default_pg

        def update(group: "Any") -> None:
            original(group)
            if group is None:
                rest.await_rest()
            elif self._page is not None:
                self._page.write(layout.PHASE, layout.TRAINING)

        distributed._update_default_pg = update  # type: ignore[attr-defined]

    def watch_optimizers(self, optimizer: "ModuleType") -> None:
        """Beat with every outermost optimizer step (torch.optim.optimizer)."""
        if self._page is None:
            return
        before, after, self._detach_cells = _step_hooks(
            self._page.cells(), optimizer.torch, self._on_first_step
        )
        optimizer.register_optimizer_step_pre_hook(before)
        optimizer.register_optimizer_step_post_hook(after)

    def detach(self) -> None:
        """In a forked child: its steps are not the worker's."""
        self._page = None
        if self._detach_cells is not None:
            self._detach_cells()


def _step_hooks(
    cells: "layout.Cells", torch: "Any", on_first_step: "Callable[[], None]"
) -> "tuple[Callable[..., None], Callable[..., None], Callable[[], None]]":
    depth = beats = steps = 0
    seen: set[int] = set()

    def before_step(optimizer: "Any", args: "Any", kwargs: "Any") -> None:
        nonlocal depth
        if torch.compiler.is_dynamo_compiling():
            return
        depth += 1

    def after_step(optimizer: "Any", args: "Any", kwargs: "Any") -> None:
        # In a compiled region a beat would tear the user's graph apart, or be an error where he
        # asked for a whole one. torch's own optimizers break the graph themselves: nothing is lost.
        if torch.compiler.is_dynamo_compiling() and not _breaks_graphs(optimizer):
            return
        beat(id(optimizer))

    def beat(identity: int) -> None:
        nonlocal depth, beats, steps
        depth -= 1
        # A step that raised leaves the depth too high, so the stack has the last word.
        if depth > 0 and _is_inside_a_step():
            return
        depth = 0
        now = monotonic_ns()
        beats += 1
        if identity in seen or not seen or len(seen) > _MOST_OPTIMIZERS:
            steps += 1
            seen.clear()
        seen.add(identity)
        if beats == 1:
            cells[layout.FIRST_STEP_NS] = now
            cells[layout.PHASE] = layout.TRAINING
            on_first_step()
        cells[layout.STEP_NS] = now
        cells[layout.STEPS] = steps
        cells[layout.BEATS] = beats

    def detach() -> None:
        nonlocal cells, on_first_step
        on_first_step = _nothing
        cells = memoryview(bytearray(layout.SIZE)).cast("Q")

    beat._torchdynamo_disable = True  # type: ignore[attr-defined]
    return before_step, after_step, detach


def _nothing() -> None:
    return None


def _breaks_graphs(optimizer: "Any") -> bool:
    return type(optimizer).__module__.startswith("torch.optim.")


def _is_inside_a_step() -> bool:
    """Whether the step that just ended was called by another one."""
    # From here: beat, after_step, and torch's wrapper around every step, one code for all of them.
    frame = sys._getframe(3)
    wrapper = frame.f_code
    caller = frame.f_back
    while caller is not None:
        if caller.f_code is wrapper:
            return True
        caller = caller.f_back
    return False
