"""Disk faults take nothing that no other disk has."""

from __future__ import annotations

from tests.sim.faults.disks import DiskFaults
from tests.sim.faults.hand import Hand
from tests.sim.scenario import Scenario


def test_the_only_copy_of_a_queue_is_spared_though_no_name_server_that_runs_knows_of_it() -> None:
    """Seed 100001806: all name servers were started again, and had not yet applied what made the
    queue; its only replica got an empty disk."""
    scenario = Scenario(0)
    scenario.come_up()
    world = scenario.world
    disks = DiskFaults(Hand(world, scenario.rng), rot=False)
    world.isrs = {at: isr for at, isr in world.isrs.items() if set(isr) != {world.bad_disk}}
    before = dict(world.isrs)
    world.isrs[99, 0] = [world.bad_disk]
    assert not disks.replace_disk()
    world.isrs = before
    assert disks.replace_disk()
