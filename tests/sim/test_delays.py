"""Messages that wait are released once, whatever fails; breaking a rule of theirs is noticed."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from logboom.nodes import parked_release
from logboom.nodes.keys import Position
from logboom.nodes.leading import Leadership
from logboom.nodes.producers import ProducerWindows
from logboom.nodes.replica import Replica
from logboom.wire.head import BatchHead
from tests.sim.delay_scenario import DelayScenario
from tests.sim.run import summary
from tests.sim.verdict import Failed, Outcome

SEEDS = range(20)
COUNTED = ("parked", "released", "released on time", "recalled", "recalled too late", "carried")
"""What must have happened at least once over all seeds: else they prove nothing."""


@cache
def outcome(seed: int) -> Outcome:
    """The outcome of a seed, run once."""
    return DelayScenario(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_waits_is_released_once_and_what_was_recalled_never(seed: int) -> None:
    assert outcome(seed).totals["parked"] >= 20


def test_the_seeds_together_met_everything(capsys: pytest.CaptureFixture[str]) -> None:
    totals: Counter[str] = Counter()
    for seed in SEEDS:
        totals.update(outcome(seed).totals)
    with capsys.disabled():
        print(f"\n{len(SEEDS)} seeds of delays: {summary(totals)}")  # noqa: T201 - the figures are what the run is for
    assert [what for what in COUNTED if not totals[what]] == []


def test_one_seed_is_one_run() -> None:
    assert DelayScenario(3).run().digest == outcome(3).digest


def test_a_new_leader_that_does_not_wait_for_its_hw_releases_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def certain(replica: Replica, leading: Leadership) -> bool:
        return replica.damage is None and leading.enough_in_sync

    monkeypatch.setattr(parked_release, "is_certain", certain)
    with pytest.raises(Failed) as caught:
        DelayScenario(0).run()
    assert caught.value.promise == "nothing is doubled"


def test_parked_batches_outside_the_windows_of_producers_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add = ProducerWindows.add

    def unparked(
        self: ProducerWindows,
        head: BatchHead,
        at: Position,
        append_time_ms: int,
        hw: Position,
        *,
        parked: bool = False,
    ) -> None:
        if not parked:
            add(self, head, at, append_time_ms, hw)

    monkeypatch.setattr(ProducerWindows, "add", unparked)
    with pytest.raises(Failed) as caught:
        DelayScenario(0).run()
    assert caught.value.promise == "retries succeed"
