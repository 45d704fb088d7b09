"""A broken rule is noticed: else the silence of the simulation would prove nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from logboom.metadata.raft.raft_config import RaftError
from logboom.nodes.log.index import QueueIndex
from tests.sim import (
    test_access,
    test_cluster,
    test_delays,
    test_groups,
    test_losses,
    test_mending,
    test_moves,
    test_raft_sim,
    test_recovery,
    test_subscriptions,
    test_transactions,
)
from tests.sim.breaks.harnesses import (
    Cluster,
    Deciding,
    Directed,
    Harness,
    Losing,
    Members,
    Moving,
    Raft,
    Rights,
    Subscribers,
    Surviving,
    SurvivingDecisions,
    SurvivingGroups,
    Waiting,
    verdict,
)
from tests.sim.broken import BREAKS, Break, search
from tests.sim.raft_world import BrokenPromiseError, RaftWorld
from tests.thorough import few_of

RULES = {
    *(f"Q{number}" for number in range(1, 16)),
    *(f"R{number}" for number in range(1, 16)),
    *(f"G{number}" for number in range(1, 8)),
    *(f"T{number}" for number in range(1, 4)),
    *(f"W{number}" for number in range(1, 4)),
    *(f"S{number}" for number in range(1, 5)),
    *(f"A{number}" for number in range(1, 9)),
    *(f"K{number}" for number in range(1, 7)),
    *(f"M{number}" for number in range(1, 8)),
    "P10",
}
"""Of queues, raft, groups, transactions, wire, identities, access, backups and moves; and the promise to
subscriptions."""


ELSEWHERE: Final[Mapping[Harness, Collection[int]]] = {
    Cluster(): test_cluster.ALL,
    Cluster(rot=True): test_mending.SEEDS,
    Deciding(): test_transactions.SEEDS,
    Members(): test_groups.SEEDS,
    Members(calm=True): test_groups.CALM,
    Losing(): test_losses.SEEDS,
    Moving(): test_moves.SEEDS,
    Raft(): test_raft_sim.SEEDS,
    Rights(): test_access.SEEDS,
    Subscribers(): test_subscriptions.SEEDS,
    Surviving(): test_recovery.SEEDS,
    Surviving(calm=True): test_recovery.CALM,
    SurvivingDecisions(): test_recovery.DECIDING,
    SurvivingGroups(): test_recovery.CONSUMING,
    Waiting(): test_delays.SEEDS,
}
"""Seeds that other tests run, with the rules as they are."""


def runs_of(breaks: Iterable[Break]) -> dict[tuple[Harness, int], None]:
    """What breaks run that no other test does."""
    return dict.fromkeys(
        (each.harness, seed)
        for each in breaks
        if not isinstance(each.harness, Directed)
        for seed in each.seeds
        if seed not in ELSEWHERE.get(each.harness, ())
    )


def sound() -> list[Any]:
    """What the breaks run; all but one of a kind are for `make verify`."""
    few = runs_of(each for each in BREAKS if not each.thorough)
    kinds = {type(harness): (harness, seed) for harness, seed in few}
    return few_of(runs_of(BREAKS), kinds.values())


def test_every_rule_is_broken_in_some_way() -> None:
    assert {broken.rule for broken in BREAKS if not broken.thorough} == RULES


def test_every_break_has_a_row_in_reliability() -> None:
    page = (Path(__file__).parents[2] / "docs" / "RELIABILITY.md").read_text("utf-8")
    rows = [f"| {each.rule} | {each.how} | {each.harness} |" for each in BREAKS]
    assert [row for row in rows if row not in page] == []


def test_a_patch_of_what_has_changed_since_notices_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QueueIndex, "advance", lambda: True)
    with pytest.raises(TypeError):
        verdict(Directed("nodes.log.test_index:test_nothing_above_the_hw_is_found"), 0)


def test_a_name_server_that_ends_is_no_finding_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RaftError("the state failed on entry 7")

    def end(_world: RaftWorld, _seconds: float) -> None:
        raise error

    monkeypatch.setattr(RaftWorld, "run", end)
    with pytest.raises(RaftError):
        verdict(Raft(), 0)
    error.__cause__ = BrokenPromiseError("n2 applied b'x' at 9")
    assert verdict(Raft(), 0) == "one history"


@pytest.mark.parametrize(
    "broken", few_of(BREAKS, [each for each in BREAKS if not each.thorough]), ids=str
)
def test_a_broken_rule_is_noticed(broken: Break) -> None:
    seeds = dict.fromkeys([*broken.seeds, *range(broken.within)])
    assert search(broken, seeds) is not None, f"not noticed in {len(seeds)} seeds"


@pytest.mark.parametrize(("harness", "seed"), sound(), ids=str)
def test_what_breaks_them_harms_nothing_while_the_rules_hold(harness: Harness, seed: int) -> None:
    assert verdict(harness, seed) == ""
