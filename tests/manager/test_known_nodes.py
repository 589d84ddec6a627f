"""What a manager knows of nodes: who is gone, who is not used, and when they are as good as new."""

from dlrover_cli.manager.cluster import Node
from dlrover_cli.manager.known_nodes import KnownNodes
from dlrover_cli.manager.placing import Demand
from dlrover_cli.manager.replacing import Relaunched

DEMAND = Demand(min_nodes=2, max_nodes=2, resources={})


def nodes(names: str) -> tuple[Node, ...]:
    return tuple(Node(name, f"host-{name}", "127.0.0.1") for name in names)


def known(names: str) -> KnownNodes:
    found = KnownNodes()
    found.see(nodes(names))
    return found


def placed(found: KnownNodes, occupied: str = "", now: float = 0.0) -> str:
    return "".join(node.id for node in found.to_place(DEMAND, set(occupied), now))


def test_who_is_not_shown_any_more_is_gone() -> None:
    found = known("abc")
    assert found.see(nodes("ac")) == {"b"}
    assert found.ids() == {"a", "c"}


def test_a_node_that_was_given_up_is_not_used_until_it_was_away() -> None:
    found = known("abc")
    found.give_up("a")
    assert placed(found) == "bc"
    found.see(nodes("bc"))
    found.see(nodes("abc"))
    assert placed(found) == "ab"


def test_a_node_that_lost_an_agent_comes_last_until_it_was_away() -> None:
    found = known("abc")
    found.doubtful.add("a")
    assert placed(found) == "bc"
    found.see(nodes("bc"))
    found.see(nodes("abc"))
    assert placed(found) == "ab"


def test_a_relaunched_node_that_is_shown_as_before_counts_as_new_after_a_while() -> None:
    found = known("abc")
    found.give_up("a")
    assert found.note_relaunch(Relaunched(("a",), ("a",)), 100.0) == []
    assert placed(found, now=159.0) == "bc"
    assert placed(found, now=160.0) == "ab"


def test_a_relaunched_node_that_is_away_already_is_used_when_it_comes() -> None:
    found = known("ab")
    found.give_up("a")
    found.see(nodes("b"))
    found.note_relaunch(Relaunched(("a",), ("a",)), 100.0)
    assert found.excluded == set()


def test_nodes_that_nobody_replaced_are_named() -> None:
    found = known("abc")
    found.give_up("a")
    found.give_up("b")
    assert found.note_relaunch(Relaunched(("a", "b"), ("b",)), 0.0) == ["a"]


def test_what_was_given_up_is_taken_back_only_when_nobody_is_about_to_replace_it() -> None:
    found = known("abc")
    found.give_up("a")
    assert found.take_back({"b"}, room=1) == []
    found.note_relaunch(Relaunched(("a",), ()), 0.0)
    assert found.take_back({"b"}, room=1) == list(nodes("a"))
    assert found.excluded == set()


def test_a_node_where_an_agent_runs_is_not_taken_back() -> None:
    found = known("ab")
    found.excluded.add("a")
    assert found.take_back({"a"}, room=1) == []


def test_what_a_placer_is_asked_does_not_change_behind_its_back() -> None:
    found = known("ab")
    asked = found.question(["task-1"])
    found.give_up("a")
    assert asked.excluded == frozenset()
    assert asked.again == {"task-1"}
    assert found.question() != asked
