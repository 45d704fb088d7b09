"""Alerts at a simulated cluster: each fires while its fault lasts, and ends once it is over.

The nodes are sampled as Prometheus would scrape them, and promtool evaluates the rules on what they
told. Alerts about groups, dead letters and keys are tested at real clusters, in
`tests/integration/console/test_alerts_of_consumers.py`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.promtool import needs_promtool
from tests.sim.alert_world import AlertWorld
from tests.sim.world import process

PACE: Final = 15.0
"""A minute of a rule is four seconds here, and a scrape comes every second."""
MINUTE: Final = 60 / PACE
GIB: Final = 1 << 30


class Fault(NamedTuple):
    """When a fault begins and ends, and by when its alert fires and is over."""

    alert: str
    begins: float
    fires: float
    over: float

    def expected(self) -> list[tuple[str, float, bool]]:
        """(alert, when, whether it fires)."""
        return [
            (self.alert, self.begins, False),
            (self.alert, self.fires, True),
            (self.alert, self.over, False),
        ]


@pytest.mark.thorough
def test_every_alert_of_nodes_fires_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_promtool()
    cluster = AlertWorld(1, PACE)
    world, at = cluster.world, cluster.at
    faults = []

    # A name server is down for more than five minutes of the rules.
    down: list[str] = []
    at(22, lambda: down.append(cluster.follower()))
    at(22, lambda: world.kill(down[0]))
    at(54, lambda: world.boot(down[0]))
    faults.append(Fault("LogboomRaftMembersDown", 21, 53, 64))

    # Others fill the disk of a broker at an even pace, and remove their files.
    def fill(broker: str, bytes_now: int) -> None:
        storage = world.machines[broker].storage
        assert storage is not None
        storage.total, storage.others_bytes = 100 * GIB, bytes_now

    for second in range(1, 125):
        used = 50 * GIB + (0 if second < 22 else (second - 22) * GIB // 5)
        at(second, lambda used=used: fill("broker-1", used if used < 75 * GIB else 20 * GIB))  # type: ignore[misc]  # the default is bound
    at(125, lambda: fill("broker-1", 20 * GIB))
    faults.append(Fault("LogboomDiskFillsSoon", 21, 120, 140))

    # Another disk is full.
    def set_full(*, full: bool) -> None:
        storage = world.machines["broker-2"].storage
        assert storage is not None
        storage.full = full

    at(24, lambda: set_full(full=True))
    at(40, lambda: set_full(full=False))
    faults.append(Fault("LogboomDiskFull", 23, 39, 52))

    # A bit flips.
    at(58, partial(cluster.flip, "all"))
    faults.append(Fault("LogboomDamageFound", 57, 68, 150))

    # Two of three name servers are down.
    lost: list[str] = []
    at(72, lambda: lost.extend([cluster.raft_leader(), cluster.follower()]))
    for part in (0, 1):
        at(72, lambda part=part: world.kill(lost[part]))  # type: ignore[misc]  # the default is bound
        at(86, lambda part=part: world.boot(lost[part]))  # type: ignore[misc]  # the default is bound
    faults.append(Fault("LogboomRaftLeaderless", 71, 85, 98))

    # The Raft leader is killed again and again.
    def depose() -> None:
        leader = cluster.raft_leader()
        world.kill(leader)
        world.boot_later(leader, 1.5)

    for number in range(6):
        at(150 + 6 * number, depose)
    faults.append(Fault("LogboomRaftLeaderChanges", 149, 186, 262))

    # The broker with the only copy of a queue is down.
    gone: list[str] = []
    at(192, lambda: gone.append(cluster.keeper("alone")))
    at(192, lambda: world.kill(gone[0]))
    at(228, lambda: world.boot(gone[0]))
    faults += [
        Fault("LogboomQueuesLeaderless", 191, 227, 240),
        Fault("LogboomQueuesUnderReplicated", 191, 227, 240),
    ]
    # Of a queue with two copies that needs both, one is down.
    faults.append(Fault("LogboomQueuesBelowMinInSync", 191, 227, 240))

    # Disks are slow.
    fast = process.SYNC_COST
    at(244, lambda: monkeypatch.setattr(process, "SYNC_COST", (0.8, 1.2)))
    at(294, lambda: monkeypatch.setattr(process, "SYNC_COST", fast))
    faults.append(Fault("LogboomSyncSlow", 243, 293, 330))

    # A broker restarts in a loop.
    for number in range(9):
        at(334 + 10 * number, lambda: world.kill("broker-3"))
        at(338 + 10 * number, lambda: world.boot("broker-3"))
    faults.append(Fault("LogboomIsrChurn", 333, 422, 470))

    with world.complaints:
        cluster.run(471)
    world.complaints.judge()
    expected = [each for fault in faults for each in fault.expected()]
    cluster.recording.check(tmp_path, expected)
    alerts = {fault.alert for fault in faults}
    assert len(alerts) == 11


def test_the_alert_about_moves_fires_and_ends(tmp_path: Path) -> None:
    needs_promtool()
    cluster = AlertWorld(2, PACE)
    # A broker is to give up its replicas, and for those of "all" there is no other.
    cluster.at(15, partial(cluster.set_mode, "broker-1", "draining"))
    cluster.at(96, partial(cluster.set_mode, "broker-1", "active"))
    with cluster.world.complaints:
        cluster.run(108)
    cluster.world.complaints.judge()
    fault = Fault("LogboomMovesStalled", 14, 95, 107)
    cluster.recording.check(tmp_path, fault.expected())
