"""What the disk was seen to do while it was busy."""

from logboom.nodes.disk.disk_speed import DiskSpeed

MIB = 1024 * 1024


def synced(speed: DiskSpeed, *syncs: tuple[int, float, float]) -> int:
    """Sync (bytes, begin, end) one after another."""
    for token, (size, begin, end) in enumerate(syncs, 1):
        speed.begin(token, size, begin)
        speed.end(token, end)
    return speed.bytes_per_s


def test_only_the_time_counts_for_which_the_disk_was_busy() -> None:
    assert synced(DiskSpeed(), (MIB, 0.0, 0.01)) == 100 * MIB
    assert synced(DiskSpeed(), (MIB // 2, 0.0, 0.5), (MIB // 2, 100.0, 100.5)) == MIB


def test_nothing_is_known_before_enough_was_synced() -> None:
    assert synced(DiskSpeed(), *[(1_000, at, at + 0.002) for at in range(100)]) == 0


def test_syncs_that_overlap_share_their_time() -> None:
    speed = DiskSpeed()
    speed.begin(1, MIB // 2, 0.0)
    speed.begin(2, MIB // 2, 0.1)
    speed.end(2, 0.5)
    assert speed.bytes_per_s == 2 * MIB
    speed.end(2, 9.0)  # the same again: nothing is under way
    speed.begin(3, MIB, 9.0)
    speed.end(3, 9.5)
    assert speed.bytes_per_s == 2 * MIB


def test_the_best_of_late_counts_and_fades() -> None:
    speed = DiskSpeed()
    assert synced(speed, (MIB, 0.0, 0.01)) == 100 * MIB
    slow = [(MIB, float(at), at + 0.5) for at in range(1, 100)]
    after_one = synced(speed, slow[0])
    assert 90 * MIB < after_one < 100 * MIB
    assert 2 * MIB < synced(speed, *slow) < 4 * MIB
    assert synced(speed, (MIB, 200.0, 200.01)) == 100 * MIB
