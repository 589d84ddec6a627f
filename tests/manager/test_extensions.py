"""Manager extensions: found by entry point, made one object, asked with a deadline."""

import asyncio
import queue
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from dlrover_cli.contracts.manager import Deployment, ManagerExtension, NodeInfo
from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.extensions import (
    Composition,
    InstalledExtension,
    compose,
    conflicts,
    in_order,
)
from dlrover_cli.manager.relaunching import ExtensionReplacer
from dlrover_cli.manager.replacing import Relaunched

NODES = [Node("n1", "host1", "10.0.0.1", {"GPU": 8.0}), Node("n2", "host2", "10.0.0.2")]


@dataclass
class View:
    run_id: str = "r"
    deployment: Deployment = field(default_factory=Deployment)
    nodes: list[NodeInfo] = field(default_factory=list)


@pytest.fixture(autouse=True)
def nobody_else_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagerExtension, "_registered", [])


def composed(*classes: type) -> Composition:
    installed = [
        InstalledExtension(str(number), cls.__name__, "dist", "1", 0.0, cls, None)
        for number, cls in enumerate(classes)
    ]
    return compose(installed, View())


class Replaces(ManagerExtension):
    async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:
        await asyncio.sleep(0)
        return nodes


class AddsAMethod(ManagerExtension):
    def xxx(self) -> str:
        return "xxx"


class RefusesHalf(ManagerExtension):
    def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:  # type: ignore[override]
        return nodes[:1]


class TestComposition:
    def test_nothing_installed_is_no_extension(self) -> None:
        assert composed() == Composition(None, (), ())
        assert not composed().replaces_nodes

    def test_the_guides_example_replaces_nothing_and_keeps_its_method(self) -> None:
        made = composed(AddsAMethod)
        assert made.extension is not None
        assert made.extension.xxx() == "xxx"  # type: ignore[attr-defined]
        assert not made.replaces_nodes

    def test_all_extensions_are_one_object_that_knows_its_manager(self) -> None:
        made = composed(AddsAMethod, Replaces)
        assert made.replaces_nodes
        assert isinstance(made.extension, AddsAMethod)
        assert isinstance(made.extension, Replaces)
        assert made.extension.manager.run_id == "r"

    def test_the_first_by_name_is_asked_and_a_conflict_is_explained(self) -> None:
        made = composed(RefusesHalf, Replaces)
        [problem] = made.problems
        assert "relaunch_nodes_impl" in problem
        assert problem.index("RefusesHalf is asked") < problem.index("Replaces")
        assert ask(made.extension).relaunched == ("n1",)

    def test_a_class_stands_for_its_bases(self) -> None:
        class Better(Replaces):
            pass

        assert in_order([Replaces, Better]) == (Better,)
        assert conflicts(in_order([Replaces, Better])) == []

    def test_registered_ones_come_after_those_of_packages(self) -> None:
        ManagerExtension.register_extension(Replaces)
        assert composed(AddsAMethod).members == (AddsAMethod, Replaces)

    def test_one_that_cannot_be_constructed_is_a_sentence(self) -> None:
        class Raises(ManagerExtension):
            def __init__(self) -> None:
                raise RuntimeError("no credentials")

        made = composed(Raises)
        assert made.extension is None
        assert "no credentials" in made.problems[0]


class TestAsking:
    def test_an_async_one(self) -> None:
        assert ask(Replaces()) == Relaunched(("n1", "n2"), ("n1", "n2"))

    def test_a_plain_one_that_replaces_some(self) -> None:
        answer = ask(RefusesHalf())
        assert answer.relaunched == ("n1",)
        assert "not replace all" in answer.problem

    def test_the_default_replaces_none(self) -> None:
        assert ask(ManagerExtension()).relaunched == ()

    def test_it_is_told_all_about_the_nodes(self) -> None:
        seen: list[NodeInfo] = []

        class Looks(ManagerExtension):
            async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:
                seen.extend(nodes)
                return []

        ask(Looks())
        assert seen[0] == NodeInfo("n1", "host1", "10.0.0.1", {}, resources={"GPU": 8.0})

    @pytest.mark.parametrize(
        "result, words",
        [
            (None, "a NoneType and not a list"),
            ("n1", "a str and not a list"),
            ([NodeInfo("other")], "1 that it was not asked about"),
            ([42], "1 that it was not asked about"),
        ],
    )
    def test_garbage_is_explained(self, result: Any, words: str) -> None:
        class Garbage(ManagerExtension):
            async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> Any:
                return result

        answer = ask(Garbage())
        assert answer.relaunched == ()
        assert words in answer.problem

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)], ids=["error", "exit"])
    def test_what_it_raises_is_explained(self, error: BaseException) -> None:
        class Raises(ManagerExtension):
            def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> Any:
                raise error

        assert "relaunch_nodes_impl raised" in ask(Raises()).problem

        class RaisesLater(ManagerExtension):
            async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> Any:
                raise error

        assert "relaunch_nodes_impl raised" in ask(RaisesLater()).problem

    def test_one_that_never_answers_is_given_up_and_the_next_request_is_answered(self) -> None:
        blocked = threading.Event()
        asked = []

        class Blocks(ManagerExtension):
            async def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:
                asked.append(nodes)
                if len(asked) == 1:
                    blocked.wait(30)  # on purpose: it holds up its event loop
                return nodes

        replacer = ExtensionReplacer(Blocks(), deadline=0.2)
        try:
            assert "no answer within 0.2 s" in ask_with(replacer).problem
            assert ExtensionReplacer(Replaces(), deadline=5).close() is None
            patient = ExtensionReplacer(replacer._extension, deadline=5)
            patient._loop = replacer._loop
            assert ask_with(patient).relaunched == ("n1", "n2")
            patient.close()
        finally:
            blocked.set()
            replacer.close()

    def test_a_late_answer_is_not_told_twice(self) -> None:
        go_on = threading.Event()

        class Late(ManagerExtension):
            def relaunch_nodes_impl(self, nodes: list[NodeInfo]) -> list[NodeInfo]:  # type: ignore[override]
                go_on.wait(30)
                return nodes

        answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        replacer = ExtensionReplacer(Late(), deadline=0.1)
        replacer.ask(NODES, answers.put)
        assert "no answer" in answers.get(timeout=10).problem  # type: ignore[attr-defined]
        go_on.set()
        thread = next((t for t in threading.enumerate() if t.name == "relaunch"), None)
        if thread is not None:
            thread.join(10)
        assert answers.empty()


def ask(extension: ManagerExtension | None) -> Relaunched:
    assert extension is not None
    replacer = ExtensionReplacer(extension, deadline=20)
    try:
        return ask_with(replacer)
    finally:
        replacer.close()


def ask_with(replacer: ExtensionReplacer) -> Relaunched:
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()
    replacer.ask(NODES, answers.put)
    answer = answers.get(timeout=30)
    assert isinstance(answer, Relaunched)
    return answer
