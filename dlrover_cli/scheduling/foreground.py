"""The place of a run in the foreground: one session before it starts on this node, one at its end.

There is nothing to wait for here: a run that may not start now fails, and says why.
"""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from dlrover_cli.errors import DlroverError, LaunchError
from dlrover_cli.scheduling.builtins import built_ins
from dlrover_cli.scheduling.extenders import opened_extenders
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
        self, config: SchedulingConfig, resources: Resources, say: Callable[[str], None]
    ) -> None:
        self._config = config
        self._resources = resources
        self._say = say
        self._task: TaskView | None = None

    def take(self, run_id: str, name: str) -> None:
        task = TaskView(NAMESPACE, f"{name}-0", f"{run_id}-0", run_id, self._resources)
        job = JobView(run_id, name, NAMESPACE, QUEUE, tasks=(task,))
        decisions = self._hold([job])
        if not decisions.started:
            raise LaunchError(
                f"the run may not start here: {decisions.why(run_id)}",
                hint="`dlrover-job submit --extender FILE` lets a job wait for its turn",
            )
        [self._task] = decisions.started[0].tasks

    def give_back(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            with suppress(DlroverError):  # a file that went away; the end of the run stands
                self._hold([], [task])

    def _hold(self, jobs: Sequence[JobView], released: Sequence[TaskView] = ()) -> Decisions:
        queue = self._config.queues.get(QUEUE, QueueSettings())
        view = SessionView(
            secrets.token_hex(4),
            tuple(jobs),
            (this_node({}),),
            (QueueView(QUEUE, queue.weight, queue.capacity, queue.reclaimable),),
        )
        with opened_extenders(self._config.extenders, self._say) as extenders:
            panel = Panel(built_ins(), extenders, self._say)
            return hold_session(view, panel, self._config.actions, released=released)
