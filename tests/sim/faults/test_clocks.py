"""Clocks are set by more than anything is kept for."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from msgspec.structs import fields

from logboom.metadata.tables.transaction_table import MADE_UP_KEPT_MS
from logboom.nodes.config import BrokerConfig
from tests.sim.faults.clocks import ClockFaults
from tests.sim.faults.hand import Hand
from tests.sim.world.world import World

TIMES = 40


def jumps(world: World) -> Iterator[int]:
    """By how many ms each of many clocks was set."""
    faults = ClockFaults(Hand(world, Random(1)))
    clocks = [machine.clock for machine in world.machines.values()]
    for _ in range(TIMES):
        before = sum(clock.wall_ahead_ms for clock in clocks)
        assert faults.jump()
        yield sum(clock.wall_ahead_ms for clock in clocks) - before


def test_wall_clocks_are_set_by_minutes_and_beyond_all_that_is_kept_for_a_time() -> None:
    moved = list(jumps(World(1)))
    producers = next(f.default for f in fields(BrokerConfig) if f.name == "producer_expiry_ms")
    kept = max(MADE_UP_KEPT_MS, producers)
    assert max(moved) > kept
    assert min(moved) < -kept
    assert any(abs(by) <= 3_600_000 for by in moved)
