"""What an extender's answer means. Pure: bytes and what was asked in, a decision out.

An answer that cannot be used is a BadBody: an error of the service, as if it were not there. What
the service means, a refusal or an error message, is a decision or an `ObjectionRaised`.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import ValidationError

from dlrover_cli.contracts.extender import (
    Answer,
    EventAnswer,
    JobEnqueueableAnswer,
    PredicateAnswer,
    PrioritizeAnswer,
    Victim,
    VictimsAnswer,
)
from dlrover_cli.scheduling.model import NodeView, TaskView
from dlrover_cli.scheduling.plugin import Refusal, Victims, Vote
from dlrover_cli.services.bodies import BadBody, parse_json
from dlrover_cli.services.faults import shown

_Answer = TypeVar("_Answer", bound=Answer)

UNSCHEDULABLE = 2
"""The one code after which victims may help."""
CODES: Mapping[int, str] = {
    1: "error",
    UNSCHEDULABLE: "unschedulable",
    3: "unschedulable and unresolvable",
    4: "wait",
    5: "skip",
}


class ObjectionRaised(Exception):
    """The service says why it does not answer; it means that, and is not ignored."""


def read_answer(kind: type[_Answer], body: bytes) -> _Answer:
    """The answer in a body. Raises BadBody."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise BadBody(f"answered with {_JSON[type(value)]}, where an object belongs")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = shown(".".join(map(str, first["loc"])), 80)
        what = first["msg"].removeprefix("Input ")
        raise BadBody(f"answered with a {where!r} that cannot be used: it {what}") from None


def refusal(answer: PredicateAnswer, by: str) -> Refusal | None:
    """A message refuses whatever the code; a code other than 0 refuses even without one."""
    if not answer.message and answer.code == 0:
        return None
    meaning = CODES.get(answer.code, "which has no meaning")
    reason = shown(answer.message) or f"it answers code {answer.code}, {meaning}"
    return Refusal(reason, by, is_final=answer.code != UNSCHEDULABLE)


def scores(answer: PrioritizeAnswer, nodes: Sequence[NodeView]) -> Mapping[str, float]:
    """Raises ObjectionRaised for a message, and BadBody for nodes that nobody asked about."""
    if answer.error_message:
        raise ObjectionRaised(shown(answer.error_message))
    if answer.node_score is None:
        raise BadBody("answered with neither a 'nodeScore' nor an 'errorMessage'")
    unknown = answer.node_score.keys() - {node.name for node in nodes}
    if unknown:
        name = shown(min(unknown), 80)
        raise BadBody(f"answered with a score for node {name!r}, which it was not asked about")
    return answer.node_score


def vote(answer: JobEnqueueableAnswer) -> Vote:
    if answer.status == 0:
        return Vote.ABSTAIN
    return Vote.PERMIT if answer.status > 0 else Vote.REJECT


def victims(answer: VictimsAnswer, evictees: Sequence[TaskView]) -> Victims | None:
    """None abstains. Raises BadBody for victims that were not offered."""
    if answer.status == 0:
        return None
    by_uid = {task.uid: task for task in evictees}
    by_name = {(task.namespace, task.name): task for task in evictees}
    chosen = set()
    for each in answer.victims:
        task = by_uid.get(each.uid) if each.uid else by_name.get((each.namespace, each.name))
        if task is None or not _is(each, task):
            name = shown(each.uid or f"{each.namespace}/{each.name}", 80)
            raise BadBody(f"answered with the victim {name!r}, which it was not offered")
        chosen.add(task.uid)
    return Victims(frozenset(chosen))


def objection(answer: EventAnswer, by: str) -> Refusal | None:
    return Refusal(shown(answer.error_message), by) if answer.error_message else None


def _is(victim: Victim, task: TaskView) -> bool:
    """Whether a name that comes with a uid belongs to the same task."""
    return (victim.name or task.name, victim.namespace or task.namespace) == (
        task.name,
        task.namespace,
    )


_JSON: Mapping[type, str] = {
    type(None): "null",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
}
