"""Nodes for a whole job or for none of it: each task is told to everybody, or all is taken back."""

import secrets
from collections.abc import Sequence
from dataclasses import replace

from dlrover_cli.scheduling.board import Board
from dlrover_cli.scheduling.choosing import Chooser
from dlrover_cli.scheduling.model import JobView, NodeView, TaskStatus, TaskView
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.plugin import Refusal
from dlrover_cli.scheduling.queueing import delays, has_room, lacking, minimum, slots
from dlrover_cli.words import counted


class Gangs:
    """Puts jobs on the board of a session."""

    def __init__(self, board: Board, panel: Panel) -> None:
        self._board = board
        self._panel = panel
        self._chooser = Chooser(panel)

    def place(self, job: JobView, ahead: Sequence[JobView] = ()) -> Refusal | None:
        """Give nodes to its tasks, none that a job ``ahead`` could miss; or why it has none."""
        placed: list[TaskView] = []
        try:
            refusal = self._place_all(job, placed, ahead)
        except BaseException:
            self._take_back(placed)
            raise
        if refusal is not None:
            self._take_back(placed)
        return refusal

    def could_ever_fit(self, job: JobView) -> bool:
        """Whether its minimum had room if all others were gone."""
        return has_room(minimum(job), self._emptied(job))

    def why_never(self, job: JobView) -> str:
        """For one that could not: what it needs, and what there is."""
        needed = minimum(job)
        most = sum(slots(needed[0], node.idle) or 0 for node in self._emptied(job))
        wanted = f"it needs room for {counted(len(needed), 'agent')} at once"
        return f"{wanted}, and the nodes that it may use have room for {most} in all"

    def _emptied(self, job: JobView) -> list[NodeView]:
        """The nodes that are open to it, as if nothing ran there."""
        nodes = list(self._board.nodes.values())
        refusals = self._chooser.refusals(minimum(job)[0], nodes)
        return [
            replace(node, used={})
            for node in nodes
            if (refusal := refusals.get(node.name)) is None or refusal.lacks_room
        ]

    def _place_all(
        self, job: JobView, placed: list[TaskView], ahead: Sequence[JobView]
    ) -> Refusal | None:
        """Beyond its minimum, as many as there is room for."""
        needed = len(minimum(job))
        for task in job.waiting:
            refusal = self._place(task, job, placed, ahead)
            if refusal is not None and len(placed) < needed:
                return refusal
            if refusal is not None:
                break
        return self._panel.ready(self._board.jobs[job.uid]) if placed else None

    def _place(
        self, task: TaskView, job: JobView, placed: list[TaskView], ahead: Sequence[JobView]
    ) -> Refusal | None:
        why = lacking(self._board.queues[job.queue], task.charge)
        if why is not None:
            return Refusal(why)
        nodes = list(self._board.nodes.values())
        if ahead:
            nodes = [node for node in nodes if self._is_free(task, node, ahead)]
        node = self._chooser.choose(task, nodes)
        if isinstance(node, Refusal):
            return node
        task = replace(
            task, node=node.name, status=TaskStatus.ALLOCATED, place=secrets.token_hex(8)
        )
        placed.append(task)
        self._board.place(task)
        refusal = self._panel.allocate(task)
        if refusal is not None:
            self._board.take_back(placed.pop())
        return refusal

    def _is_free(self, task: TaskView, node: NodeView, ahead: Sequence[JobView]) -> bool:
        """Whether none of those ahead could miss what the task takes of this node."""
        running = self._board.tasks_on(node.name)
        return not any(
            delays(task, node, gang, running)
            for gang in ahead
            if not self._chooser.is_closed(minimum(gang)[0], node)
        )

    def _take_back(self, placed: list[TaskView]) -> None:
        while placed:
            task = placed.pop()
            self._board.take_back(task)
            self._panel.deallocate(task)
