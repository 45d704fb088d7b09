"""A broken rule is noticed: else the silence of the simulation would prove nothing."""

from __future__ import annotations

import pytest

from tests.sim.broken import BREAKS, Break, search
from tests.sim.harnesses import (
    Cluster,
    Deciding,
    Directed,
    Harness,
    Members,
    Raft,
    Subscribers,
    Waiting,
    verdict,
)

RULES = {
    *(f"Q{number}" for number in range(1, 15)),
    *(f"R{number}" for number in range(1, 15)),
    *(f"G{number}" for number in range(1, 4)),
    *(f"T{number}" for number in range(1, 4)),
    *(f"W{number}" for number in range(1, 4)),
    "P10",
}
"""Of queues, raft, groups, transactions and wire; and the promise to subscriptions."""


def sound() -> list[tuple[Harness, int]]:
    """What the breaks run that is no seed of another test."""
    found: dict[tuple[Harness, int], None] = {}
    for broken in BREAKS:
        match broken.harness:
            case (
                Cluster(attack="")
                | Members()
                | Waiting()
                | Deciding()
                | Subscribers()
                | Directed()
                | Raft(changing=False)
            ):
                pass
            case harness:
                found |= dict.fromkeys((harness, seed) for seed in broken.seeds)
    return list(found)


def test_every_rule_is_broken_in_some_way() -> None:
    assert {broken.rule for broken in BREAKS} == RULES


@pytest.mark.timeout(300)  # A changed simulation has other seeds that notice: it looks for one.
@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_rule_is_noticed(broken: Break) -> None:
    seeds = dict.fromkeys([*broken.seeds, *range(broken.within)])
    assert search(broken, seeds) is not None, f"not noticed in {len(seeds)} seeds"


@pytest.mark.parametrize(("harness", "seed"), sound(), ids=str)
def test_what_breaks_them_harms_nothing_while_the_rules_hold(harness: Harness, seed: int) -> None:
    assert verdict(harness, seed) == ""
