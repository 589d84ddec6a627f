"""The place of a run in the foreground: one session before it starts on this node, one at its end.

There is nothing to wait for here: a run that may not start now fails, and says why. One that is
killed leaves its place to the next session that asks the same services.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dlrover_cli.errors import DlroverError, LaunchError
from dlrover_cli.scheduling.builtins import built_ins
from dlrover_cli.scheduling.extenders import opened_extenders
from dlrover_cli.scheduling.kept_places import KeptPlaces, PlaceKeeper
from dlrover_cli.scheduling.local_node import this_node
from dlrover_cli.scheduling.model import JobView, QueueView, Resources, SessionView, TaskView
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.session import Decisions, hold_session
from dlrover_cli.scheduling.settings import QueueSettings, SchedulingConfig

NAMESPACE = "default"
QUEUE = "default"


class LocalPlace:
    """This node, for one run."""

    def __init__(
        self,
        config: SchedulingConfig,
        resources: Resources,
        say: Callable[[str], None],
        state: Path,
    ) -> None:
        """In the ``state`` directory others find the place, if we are killed."""
        self._config = config
        self._kept = KeptPlaces(state, config.extenders, say)
        self._resources = resources
        self._say = say
        self._task: TaskView | None = None
        self._job: JobView | None = None

    def take(self, run_id: str, name: str) -> None:
        task = TaskView(NAMESPACE, f"{name}-0", f"{run_id}-0", run_id, self._resources)
        self._job = JobView(run_id, name, NAMESPACE, QUEUE, tasks=(task,))
        self._take(self._job, "start")

    def take_again(self) -> None:
        assert self._job is not None
        task, self._task = self._task, None
        self._take(self._job, "start again", [task] if task is not None else [])

    def give_back(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            with suppress(DlroverError):  # a file that went away; the end of the run stands
                self._hold([], [task])

    def _take(self, job: JobView, what: str, released: Sequence[TaskView] = ()) -> None:
        decisions = self._hold([job], released)
        if not decisions.started:
            raise LaunchError(
                f"the run may not {what} here: {decisions.why(job.uid)}",
                hint="`dlrover-job submit --extender FILE` lets a job wait for its turn",
            )
        [self._task] = decisions.started[0].tasks

    def _hold(self, jobs: Sequence[JobView], released: Sequence[TaskView] = ()) -> Decisions:
        queue = self._config.queues.get(QUEUE, QueueSettings())
        view = SessionView(
            secrets.token_hex(4),
            tuple(jobs),
            (this_node({}),),
            (QueueView(QUEUE, queue.weight, queue.capacity, queue.reclaimable),),
        )
        released = [*self._kept.lost(), *released]
        keeper = PlaceKeeper(self._kept)
        try:
            with opened_extenders(self._config.extenders, self._say) as extenders:
                panel = Panel([keeper, *built_ins()], extenders, self._say)
                decisions = hold_session(view, panel, self._config.actions, released=released)
        except BaseException:  # such as Ctrl-C while a service is told of the end of the session
            self._task = next(iter(keeper.taken.values()), None)
            raise
        self._kept.note_session(released, decisions.unheard)
        return decisions
