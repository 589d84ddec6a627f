"""Settings that the nodes of a job should have alike, and what to say when they do not. Pure.

A failure is judged on the node that it happened on, so a job with `--max-restarts=3` on one node
and none on the other ends or goes on by chance.
"""

from collections.abc import Mapping, Sequence

Terms = Mapping[str, str]
"""The settings of one node, as texts by option."""
Differing = Mapping[str, Mapping[str, tuple[int, ...]]]
"""By option: each value, with the ranks of the nodes that have it."""


def differing(terms: Sequence[Terms]) -> Differing:
    """What is not the same for all, in node order. One that a node says nothing of is left out."""
    found: dict[str, Mapping[str, tuple[int, ...]]] = {}
    for option in dict.fromkeys(option for each in terms for option in each):
        ranks: dict[str, tuple[int, ...]] = {}
        for rank, each in enumerate(terms):
            if option in each:
                ranks[each[option]] = (*ranks.get(each[option], ()), rank)
        if len(ranks) > 1:
            found[option] = ranks
    return found


def sentence(differs: Differing) -> str:
    """One line for a person, who has to decide which value was meant."""
    told = "; ".join(f"{option}: {_who(ranks)}" for option, ranks in differs.items())
    return (
        f"the nodes do not have the same settings ({told}); a failure is judged by those of "
        "the node that it happens on"
    )


def _who(ranks: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(
        f"{value or 'none'} on node{'s' if len(nodes) > 1 else ''} {_numbers(nodes)}"
        for value, nodes in ranks.items()
    )


def _numbers(nodes: Sequence[int]) -> str:
    shown = ", ".join(map(str, nodes[:_SHOWN]))
    return shown if len(nodes) <= _SHOWN else f"{shown} and {len(nodes) - _SHOWN} more"


_SHOWN = 3
