"""Who is looked into: one rank from its first line on, or the first one that fails."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlrover_cli.workers.bootstrap import DEBUG, POST_MORTEM, TERMINAL
from dlrover_cli.workers.bootstrap.in_worker import debugger
from dlrover_cli.workers.streams import StreamPlan, WorkerStreams


@dataclass(frozen=True, slots=True)
class Debugging:
    """What a person wants to look into; nothing, unless told."""

    rank: int | None = None
    """The global rank whose breakpoints are served."""
    tool: str = debugger.AT_BREAKPOINTS
    post_mortem: str | None = None
    """`debugger.POST_MORTEM`, or `POST_MORTEM_ASKED` to be asked first."""
    terminal: str = ""
    """The launcher's own, for a post-mortem."""

    @property
    def lends_terminal(self) -> bool:
        """Whether a worker may talk to a person, in modes of its own, while others are silent."""
        return self.post_mortem is not None or self._has_breakpoints

    @property
    def asks(self) -> bool:
        """Whether a person is asked at the terminal about every failure."""
        return self.post_mortem == debugger.POST_MORTEM_ASKED

    def has_terminal(self, global_rank: int) -> bool:
        """Whether stdin, stdout and stderr of this rank are the terminal itself."""
        return self._has_breakpoints and self.rank == global_rank

    def has_stdin(self, global_rank: int) -> bool:
        """Nobody else reads what is typed for the one rank."""
        return not self._has_breakpoints or self.rank == global_rank

    def environment(self, global_rank: int) -> Mapping[str, str]:
        """What the worker is told."""
        told = {}
        if self.rank is not None:
            told[DEBUG] = self.tool if self.rank == global_rank else debugger.NOT_HERE
        if self.post_mortem is not None:
            told |= {POST_MORTEM: self.post_mortem, TERMINAL: self.terminal}
        return told

    def streams(self, global_rank: int, planned: WorkerStreams) -> WorkerStreams:
        """The streams of a worker, so that what it prints does not disturb a prompt."""
        if self.has_terminal(global_rank):
            return WorkerStreams(StreamPlan(console=1), StreamPlan(console=2))
        if not self.lends_terminal:
            return planned
        return WorkerStreams(_watched(planned.stdout), _watched(planned.stderr))

    @property
    def _has_breakpoints(self) -> bool:
        return self.rank is not None and self.tool == debugger.AT_BREAKPOINTS


def _watched(plan: StreamPlan) -> StreamPlan:
    return plan if plan.console is None else replace(plan, watched=True)
