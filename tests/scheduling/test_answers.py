"""Whatever a service says is a decision, an objection, or an error of the service."""

import json
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_cli.contracts.extender import (
    EXCHANGES,
    Answer,
    PrioritizeAnswer,
    Verb,
    VictimsAnswer,
)
from dlrover_cli.scheduling import answers
from dlrover_cli.services.bodies import BadBody
from tests.scheduling.samples import NODES, RUNNING

WORDS = ["code", "status", "errorMessage", "nodeScore", "victims", "UID", "NAME", "node-1", "x"]
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.sampled_from(["run-0/0", "node-1", ""]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)
BODIES = st.one_of(
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=30),
)
JUDGES: dict[Verb, Callable[..., object]] = {
    Verb.PREDICATE: lambda answer: answers.refusal(answer, "x"),
    Verb.PRIORITIZE: lambda answer: answers.scores(answer, NODES),
    Verb.PREEMPTABLE: lambda answer: answers.victims(answer, RUNNING),
    Verb.JOB_ENQUEUEABLE: answers.vote,
    Verb.ALLOCATE: lambda answer: answers.objection(answer, "x"),
    Verb.JOB_READY: lambda answer: answer.status,
    Verb.QUEUE_OVERUSED: lambda answer: answer.overused,
}


@pytest.mark.parametrize("verb", JUDGES)
def test_nothing_else_comes_of_an_answer(verb: Verb) -> None:
    kind: type[Answer] = EXCHANGES[verb].answer

    @settings(max_examples=200, deadline=None, database=None)
    @given(BODIES)
    def judge(body: bytes) -> None:
        with suppress(BadBody, answers.ObjectionRaised):
            JUDGES[verb](answers.read_answer(kind, body))

    judge()


@settings(max_examples=200, deadline=None, database=None)
@given(VALUES)
def test_victims_are_always_among_those_offered(value: object) -> None:
    body = json.dumps({"status": 1, "victims": value}).encode()
    with suppress(BadBody):
        chosen = answers.victims(answers.read_answer(VictimsAnswer, body), RUNNING)
        assert chosen is not None
        assert chosen.uids <= {task.uid for task in RUNNING}


@settings(max_examples=200, deadline=None, database=None)
@given(VALUES)
def test_scores_are_finite_and_of_nodes_that_were_asked_about(value: object) -> None:
    body = json.dumps({"nodeScore": value}).encode()
    with suppress(BadBody):
        scores = answers.scores(answers.read_answer(PrioritizeAnswer, body), NODES)
        assert scores.keys() <= {node.name for node in NODES}
        assert all(abs(score) < float("inf") for score in scores.values())
