"""Group commit: what is synced covers what was written, and a failed sync is never repeated."""

import threading
import time

from logboom.nodes.disk.committer import SHORT_BYTES, Committer
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
        assert self.go.acquire(timeout=200)
        if self.failure is not None:
            raise self.failure
        super().sync()


def taken(committer: Committer, woken: threading.Event) -> list[Synced | SyncFailed]:
    assert woken.wait(200)
    woken.clear()
    return committer.take()


def until_called(disk: SlowDisk, calls: int) -> None:
    end = time.monotonic() + 200
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


class TimedDisk(SimulatedStorage):
    """A disk whose syncs take the times that the test sets, by a clock of its own."""

    def __init__(self) -> None:
        super().__init__("store")
        self.now = 0.0
        self.takes_s = 0.0001
        self.threads: list[int] = []
        self.failure: OSError | None = None

    def sync(self) -> None:
        self.threads.append(threading.get_ident())
        self.now += self.takes_s
        if self.failure is not None:
            raise self.failure


def commit(committer: Committer, woken: threading.Event, token: int, size: int = 100) -> bool:
    """Sync a token as the node does; return True if that was in this thread."""
    here = committer.may_sync_here(size)
    if here:
        committer.sync_here(token, size)
        assert committer.ended
    else:
        committer.begin(token, size)
        assert woken.wait(200)
        woken.clear()
    assert committer.take() == [Synced(token)]
    assert (committer.ended, committer.unsynced) == (False, 0)
    return here


def test_short_syncs_are_done_in_the_calling_thread_once_they_are_known_to_be_fast() -> None:
    disk, woken = TimedDisk(), threading.Event()
    committer = Committer(disk, woken.set, lambda: disk.now)
    here = [commit(committer, woken, token) for token in range(1, 4)]
    assert here == [False, True, True]
    assert [thread == threading.get_ident() for thread in disk.threads] == here
    assert not commit(committer, woken, 4, SHORT_BYTES + 1)
    committer.close()


def test_the_calling_thread_syncs_nothing_while_another_sync_is_under_way() -> None:
    disk, woken = TimedDisk(), threading.Event()
    committer = Committer(disk, woken.set, lambda: disk.now)
    commit(committer, woken, 1)
    committer.begin(2, SHORT_BYTES + 1)
    assert not committer.may_sync_here(100)
    assert taken(committer, woken) == [Synced(2)]
    assert committer.may_sync_here(100)
    committer.close()


def test_slow_syncs_go_back_to_the_thread_until_they_are_fast_again() -> None:
    disk, woken = TimedDisk(), threading.Event()
    committer = Committer(disk, woken.set, lambda: disk.now)
    commit(committer, woken, 1)
    disk.takes_s = 0.5
    assert commit(committer, woken, 2)
    assert not commit(committer, woken, 3)
    disk.takes_s = 0.0001
    here = [commit(committer, woken, token) for token in range(4, 104)]
    first = here.index(True)
    assert first > 10
    assert all(here[first:])
    committer.close()


def test_q14_a_failed_sync_in_the_calling_thread_is_told() -> None:
    disk, woken = TimedDisk(), threading.Event()
    committer = Committer(disk, woken.set, lambda: disk.now)
    commit(committer, woken, 1)
    disk.failure = OSError(5, "Input/output error")
    committer.sync_here(2, 10)
    (event,) = committer.take()
    assert isinstance(event, SyncFailed)
    committer.close()
    assert len(disk.threads) == 2
