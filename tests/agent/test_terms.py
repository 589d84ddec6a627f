"""Settings that are not the same on every node are told once, with who has what."""

from dlrover_cli.agent.terms import differing, sentence

RESTARTS, HANG = "--max-restarts", "--hang_timeout"


def test_nothing_is_said_where_all_are_alike():
    assert differing([{RESTARTS: "3"}] * 4) == {}
    assert differing([{RESTARTS: "3"}]) == {}
    assert differing([]) == {}


def test_each_value_has_the_nodes_that_have_it():
    terms = [{RESTARTS: "3", HANG: "0"}, {RESTARTS: "0", HANG: "0"}, {RESTARTS: "3", HANG: "0"}]
    assert differing(terms) == {RESTARTS: {"3": (0, 2), "0": (1,)}}


def test_a_node_of_another_version_that_says_nothing_does_not_differ():
    assert differing([{RESTARTS: "3"}, {}]) == {}


def test_the_line_names_options_values_and_nodes():
    extension = "--dynamic_failover_extension"
    told = sentence(
        differing([{RESTARTS: "3", extension: "a::B"}] * 5 + [{RESTARTS: "0", extension: ""}])
    )
    assert told == (
        "the nodes do not have the same settings (--max-restarts: 3 on nodes 0, 1, 2 and 2 more, "
        "0 on node 5; --dynamic_failover_extension: a::B on nodes 0, 1, 2 and 2 more, none on "
        "node 5); a failure is judged by those of the node that it happens on"
    )
