"""Which node a task gets: those that nobody refuses, then the best of them.

The tasks of a job that ask for the same are alike: a node is asked about once for all of them, and
again only after something was put there. A gang of a thousand over a thousand nodes is a thousand
questions and not a million.
"""

from collections.abc import Mapping, Sequence

from dlrover_cli.scheduling.model import NodeView, TaskView
from dlrover_cli.scheduling.panel import Panel
from dlrover_cli.scheduling.plugin import Refusal

_Kind = tuple[str, tuple[tuple[str, float], ...]]


class Chooser:
    """Remembers, for one session, what was said about which node."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self._verdicts: dict[_Kind, dict[str, tuple[NodeView, Refusal | None]]] = {}
        self._scores: dict[_Kind, dict[str, tuple[NodeView, float]]] = {}

    def choose(self, task: TaskView, nodes: Sequence[NodeView]) -> NodeView | Refusal:
        """The best of the nodes, of several alike the first; or why there is none."""
        refusals = self.refusals(task, nodes)
        left = [node for node in nodes if node.name not in refusals]
        if not left:
            return summary(refusals)
        if len(left) == 1:
            return left[0]
        scores = self._scored(task, left)
        if isinstance(scores, Refusal):
            return scores
        return max(left, key=lambda node: scores[node.name][1])

    def refusals(self, task: TaskView, nodes: Sequence[NodeView]) -> dict[str, Refusal]:
        known = self._verdicts.setdefault(_kind(task), {})
        unknown = [node for node in nodes if not _is_known(node, known)]
        found = self._panel.refusals(task, unknown)
        for node in unknown:
            known[node.name] = (node, found.get(node.name))
        return {
            node.name: refusal for node in nodes if (refusal := known[node.name][1]) is not None
        }

    def is_closed(self, task: TaskView, node: NodeView) -> bool:
        """Whether the task was refused there for good, as far as was asked."""
        verdict = self._verdicts.get(_kind(task), {}).get(node.name)
        return verdict is not None and verdict[1] is not None and verdict[1].is_final

    def _scored(
        self, task: TaskView, nodes: Sequence[NodeView]
    ) -> Mapping[str, tuple[NodeView, float]] | Refusal:
        known = self._scores.setdefault(_kind(task), {})
        if all(_is_known(node, known) for node in nodes):
            return known
        scores = self._panel.scores(task, nodes)
        if isinstance(scores, Refusal):
            return scores
        known.update({node.name: (node, scores[node.name]) for node in nodes})
        return known


def summary(refusals: Mapping[str, Refusal]) -> Refusal:
    """One sentence for all nodes: a reason that may pass says more than one that will not."""
    if not refusals:
        return Refusal("there is no node")
    full = [refusal for refusal in refusals.values() if refusal.lacks_room]
    passing = full or [refusal for refusal in refusals.values() if not refusal.is_final]
    first = next(iter(passing or refusals.values()))
    others = len(refusals) - 1
    more = f"; nor can it run on the {others} other nodes" if others > 1 else ""
    more = "; nor can it run on the other node" if others == 1 else more
    return Refusal(f"{first.reason}{more}", first.by, is_final=not passing, lacks_room=bool(full))


def _kind(task: TaskView) -> _Kind:
    return task.job, tuple(sorted(task.resources.items()))


def _is_known(node: NodeView, known: Mapping[str, tuple[NodeView, object]]) -> bool:
    entry = known.get(node.name)
    return entry is not None and entry[0] is node
