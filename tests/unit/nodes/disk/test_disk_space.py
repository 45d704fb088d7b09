"""DISK_FULL before the disk is full, and back by itself."""

import pytest
from msgspec.structs import replace

from logboom.nodes.config import BrokerConfig
from logboom.nodes.disk.disk_space import INTERVAL, SpaceGauge
from logboom.nodes.log.storage import DiskSpace
from logboom.wire.settings import LiveSettings
from tests.sim.world.storage import SimulatedStorage

MIB = 1024 * 1024
CONFIG = BrokerConfig(id="broker-1", name_servers=["127.0.0.1:7701"])


class Disk(SimulatedStorage):
    """A store on a file system of which the test says what is free."""

    def __init__(self, free: int, total: int = 10_000) -> None:
        super().__init__("store")
        self.free = free
        self.total = total
        self.asked = 0

    def space(self) -> DiskSpace:
        self.asked += 1
        return DiskSpace(self.free, self.total)


def gauge_of(disk: Disk, size: int, share: float = 0.0) -> SpaceGauge:
    """A gauge with this reserve in bytes and percent."""
    config = replace(CONFIG, disk_reserve_bytes=size, disk_reserve_percent=share)
    return SpaceGauge(disk, LiveSettings(config.id, config))


def test_below_the_reserve_it_is_full_and_recovers_by_itself() -> None:
    disk = Disk(1_001)
    gauge = gauge_of(disk, 1_000)
    assert not gauge.check(0.0)
    disk.free = 999
    assert gauge.check(1.0)
    disk.free = 1_050
    assert gauge.check(2.0), "a little more than the reserve would flap"
    disk.free = 1_100
    assert not gauge.check(3.0)


@pytest.mark.parametrize(
    ("size", "share", "reserve"),
    [
        (1_000, 20.0, 1_000),
        (1_000, 1.0, 100),
        (1_000, 0.0, 1_000),
        (0, 20.0, 2_000),
        (0, 0.0, 0),
    ],
)
def test_the_smaller_of_bytes_and_share_is_reserved_and_0_sets_none(
    size: int, share: float, reserve: int
) -> None:
    assert not gauge_of(Disk(reserve), size, share).check(0.0)
    gauge = gauge_of(Disk(reserve - 1), size, share)
    assert gauge.check(0.0)
    assert (gauge.reserve, gauge.total) == (reserve, 10_000)


@pytest.mark.parametrize(
    ("disk", "reserve"),
    [(100 * MIB, 5 * MIB), (500 * MIB, 25 * MIB), (10 << 30, 512 * MIB), (1 << 40, 1 << 30)],
)
def test_every_disk_has_room_beside_its_reserve_by_default(disk: int, reserve: int) -> None:
    half = Disk(disk // 2, disk)
    gauge = SpaceGauge(half, LiveSettings("broker-1", CONFIG))
    assert not gauge.check(0.0)
    assert gauge.reserve == reserve
    half.free = reserve - 1
    assert gauge.check(1.0)


def test_the_file_system_is_asked_at_most_every_interval() -> None:
    disk = Disk(5_000)
    gauge = gauge_of(disk, 1_000)
    for step in range(100):
        gauge.check(10.0 + step * INTERVAL / 50)
    assert disk.asked == 2


def test_what_was_written_since_counts_at_once() -> None:
    disk = Disk(2_000)
    gauge = gauge_of(disk, 1_000)
    assert not gauge.check(0.0)
    gauge.wrote(501)
    assert gauge.check(0.01)
    # The file system knows better: the log was compressed, or something was removed.
    assert not gauge.check(INTERVAL)


def test_the_refusal_says_how_to_mend_it_and_may_be_tried_again() -> None:
    gauge = gauge_of(Disk(100), 1_000)
    gauge.check(0.0)
    error = gauge.refusal()
    assert (error.code, error.retryable) == ("DISK_FULL", True)
    assert error.fields == {"free_bytes": 100, "reserve_bytes": 1_000}
    assert "retention" in str(error)


def test_another_reserve_counts_at_the_next_question() -> None:
    disk = Disk(900)
    config = replace(CONFIG, disk_reserve_bytes=1_000, disk_reserve_percent=0.0)
    settings = LiveSettings("broker-1", config)
    gauge = SpaceGauge(disk, settings)
    assert gauge.check(0.0)
    settings.follow([("", "disk_reserve_bytes", "500")])
    assert not gauge.check(1.0)
    assert gauge.reserve == 500
