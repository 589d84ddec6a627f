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
        verdicts = self._judged(task, nodes)
        left = [node for node in nodes if verdicts[node.name][1] is None]
        if not left:
            return summary(self.refusals(task, nodes))
        if len(left) == 1:
            return left[0]
        scores = self._scored(task, left)
        if isinstance(scores, Refusal):
            return scores
        return max(left, key=lambda node: scores[node.name][1])

    def refusals(self, task: TaskView, nodes: Sequence[NodeView]) -> dict[str, Refusal]:
        """By the names of nodes, why the task may not run there."""
        verdicts = self._judged(task, nodes)
        return {
            node.name: refusal for node in nodes if (refusal := verdicts[node.name][1]) is not None
        }

    def is_closed(self, task: TaskView, node: NodeView) -> bool:
        """Whether the task was refused there for good, as far as was asked."""
        verdict = self._verdicts.get(_kind(task), {}).get(node.name)
        return verdict is not None and verdict[1] is not None and verdict[1].is_final

    def _judged(
        self, task: TaskView, nodes: Sequence[NodeView]
    ) -> Mapping[str, tuple[NodeView, Refusal | None]]:
        known = self._verdicts.setdefault(_kind(task), {})
        unknown = _unknown(nodes, known)
        if unknown:
            found = self._panel.refusals(task, unknown)
            known.update({node.name: (node, found.get(node.name)) for node in unknown})
        return known

    def _scored(
        self, task: TaskView, nodes: Sequence[NodeView]
    ) -> Mapping[str, tuple[NodeView, float]] | Refusal:
        known = self._scores.setdefault(_kind(task), {})
        if not _unknown(nodes, known):
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


def _unknown(
    nodes: Sequence[NodeView], known: Mapping[str, tuple[NodeView, object]]
) -> list[NodeView]:
    """Those of which nothing was said yet, or not since something was put there."""
    return [node for node in nodes if known.get(node.name, _NOTHING)[0] is not node]


_NOTHING = (None,)
