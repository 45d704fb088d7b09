"""Consumer groups keep their promises while members, brokers and name servers come, go and fail."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.sim.forgery_scenario import ForgeryScenario
from tests.sim.group_scenario import GroupScenario
from tests.sim.judges.verdict import Outcome
from tests.sim.run import summary
from tests.thorough import few_of

SEEDS = (*range(6), 15, 16, 24, 29)
"""In 15 and 16, members are replaced by others of their name; in 24, one expires; in 29, an operator allocates a queue to one that goes."""
CALM = range(100, 103)
"""In these members only leave in good order: all that comes twice is the machines' doing."""
FOUND: dict[int, str] = {
    507: "a farewell overtook commits that did not fit into it, and they were dropped",
    353: "a farewell that ended as the metadata changed took the client's thread with it",
    8000001: "a message was a dead letter for what the one that was tried beside it did",
}
"""Seed → what it once broke; all of them run too."""
FEW = (0, 3, 5, 24, 29, 507)
"""Of these, what `make test` runs."""
COUNTED = (
    "consumed by groups",
    "given twice",
    "members killed",
    "members left",
    "members paused",
    "members hung",
    "members went away",
    "members replaced",
    "members found their names taken",
    "members expired",
    "queues moved",
    "coordinators moved",
    "offsets reset",
    "strategies changed",
    "queues that nobody gets",
    "handlers failed",
    "retries finished",
    "members ended by a message",
    "messages given up",
)
"""What must have happened at least once over these: else they prove nothing."""


@cache
def outcome(seed: int, *, calm: bool) -> Outcome:
    """The outcome of a seed, run once."""
    return GroupScenario(seed, calm=calm).run()


@pytest.mark.parametrize("seed", few_of([*SEEDS, *FOUND], FEW))
def test_groups_consume_everything_and_nothing_finished_twice(seed: int) -> None:
    totals = outcome(seed, calm=False).totals
    assert totals["consumed by groups"] >= 50
    assert totals["given to members"] >= totals["consumed by groups"]


@pytest.mark.parametrize("seed", few_of(range(4), [1]))
def test_invented_owner_epochs_lock_nobody_out(seed: int) -> None:
    totals = ForgeryScenario(seed).run().totals
    assert totals["owner epochs invented"] >= 20
    assert totals["claims of former owners refused"] >= 1


@pytest.mark.parametrize("seed", few_of(CALM, CALM[:1]))
def test_members_that_leave_in_good_order_cause_no_doubles(seed: int) -> None:
    totals = outcome(seed, calm=True).totals
    assert totals["members left"] >= 2
    assert totals["members killed"] == 0


def test_the_seeds_together_met_everything(capsys: pytest.CaptureFixture[str]) -> None:
    totals: Counter[str] = Counter()
    for seed in FEW:
        totals.update(outcome(seed, calm=False).totals)
    with capsys.disabled():
        print(f"\n{len(FEW)} seeds of groups: {summary(totals)}")  # noqa: T201 - the figures are what the run is for
    assert [what for what in COUNTED if not totals[what]] == []


def test_one_seed_is_one_run() -> None:
    assert GroupScenario(3).run().digest == outcome(3, calm=False).digest
