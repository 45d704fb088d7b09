"""Group commit: what is synced covers what was written, and a failed sync is never repeated."""

import threading
import time

from logboom.nodes.disk.committer import Committer
from logboom.wire.actor import Synced, SyncFailed
from tests.sim.world.storage import SimulatedStorage


class SlowDisk(SimulatedStorage):
    """A disk whose syncs wait until the test lets them go, and may then fail."""

    def __init__(self) -> None:
        super().__init__("store")
        self.calls = 0
        self.go = threading.Semaphore(0)
        self.failure: OSError | None = None

    def sync(self) -> None:
        self.calls += 1
        assert self.go.acquire(timeout=10)
        if self.failure is not None:
            raise self.failure
        super().sync()


def taken(committer: Committer, woken: threading.Event) -> list[Synced | SyncFailed]:
    assert woken.wait(10)
    woken.clear()
    return committer.take()


def until_called(disk: SlowDisk, calls: int) -> None:
    end = time.monotonic() + 10
    while disk.calls < calls and time.monotonic() < end:
        # The other thread's counter: it calls `sync`, and only then waits for `go`.
        time.sleep(0.001)
    assert disk.calls == calls


def test_tokens_that_gather_during_a_sync_share_the_next_one() -> None:
    disk, woken = SlowDisk(), threading.Event()
    committer = Committer(disk, woken.set)
    committer.begin(1, 100)
    until_called(disk, 1)
    committer.begin(2, 50)
    committer.begin(3, 25)
    assert committer.unsynced == 175
    assert committer.take() == [], "nothing is told before it is on disk"
    disk.go.release()
    assert taken(committer, woken) == [Synced(1)]
    assert committer.unsynced == 75
    until_called(disk, 2)
    assert committer.take() == []
    disk.go.release()
    assert taken(committer, woken) == [Synced(3)]
    assert (committer.unsynced, committer.syncs, disk.calls) == (0, 2, 2)
    committer.close()


def test_q14_a_failed_sync_is_told_and_never_repeated() -> None:
    disk, woken = SlowDisk(), threading.Event()
    disk.failure = OSError(5, "Input/output error")
    committer = Committer(disk, woken.set)
    committer.begin(1, 10)
    disk.go.release()
    (event,) = taken(committer, woken)
    assert isinstance(event, SyncFailed)
    assert "Input/output error" in event.reason
    committer.begin(2, 10)
    disk.go.release()
    committer.close()
    assert disk.calls == 1
    assert committer.take() == []


def test_closing_syncs_what_was_begun() -> None:
    disk, woken = SlowDisk(), threading.Event()
    committer = Committer(disk, woken.set)
    disk.go.release()
    committer.begin(1, 10)
    committer.close()
    assert committer.take() == [Synced(1)]
