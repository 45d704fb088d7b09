"""The account of unfinished messages: who is charged for what, and who never is."""

from __future__ import annotations

from typing import Final

import pytest

from logboom.wire.accepted_connections import TINY_FRAMES
from logboom.wire.actor import PeerAddress
from logboom.wire.hello import PeerKind
from logboom.wire.unfinished_messages import (
    COMMAND_BYTES_PER_S,
    FRAME_HEAD_BYTES,
    MAX_COMMAND_BYTES,
    MEASURED_FRAMES,
    SHORT_HEAD_BYTES,
    Excess,
    UnfinishedLimits,
    UnfinishedMessages,
)

LIMITS: Final = UnfinishedLimits(100_000, 250_000, 500_000)


class Rig:
    """An account with one listener, and who has a session."""

    def __init__(self, limits: UnfinishedLimits = LIMITS) -> None:
        self.account = UnfinishedMessages(limits)
        self.now = 0.0
        self.kinds: dict[PeerAddress, PeerKind] = {}

    def open(self, *connections: int, kind: PeerKind | None = None) -> None:
        for connection in connections:
            self.account.opened(connection, "main", self.now)
            if kind is not None:
                self.kinds[self.peer(connection)] = kind
                self.deliver(connection, 0)

    @staticmethod
    def peer(connection: int) -> PeerAddress:
        return PeerAddress("main", bytes((connection,)))

    def deliver(self, connection: int, size: int, frames: int = 1) -> None:
        peer = self.peer(connection)
        assert self.account.heard(connection, peer)
        assert self.account.delivered(connection, peer, frames, size)

    def look(self, totals: dict[int, int], *, dry: bool = True, after_s: float = 0.05) -> None:
        """Sample, and take what is complete."""
        self.now += after_s
        for connection, total in totals.items():
            self.account.sampled(connection, total, self.now)
        self.account.begin_rounds()
        if dry:
            self.account.taken("main", 0, dry=True)

    def closed(self) -> list[Excess]:
        return self.account.excess(self.kinds.get)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_message_that_never_ends_is_too_long(rig: Rig) -> None:
    rig.open(1)
    rig.look({1: 100_000})
    assert rig.closed() == []
    rig.look({1: 100_001})
    assert rig.closed() == [Excess(1, 100_001, 100_000, shared=False)]
    assert rig.closed() == []
    assert len(rig.account) == 0


def test_complete_messages_that_wait_for_a_busy_node_are_nobodys_fault(rig: Rig) -> None:
    rig.open(1)
    for total in range(100_000, 10_000_000, 100_000):
        rig.look({1: total}, dry=False)
        assert rig.closed() == []
    # The node comes to them at last: all were complete.
    for _ in range(99):
        rig.deliver(1, 100_000 - FRAME_HEAD_BYTES)
    rig.account.taken("main", 99, dry=True)
    assert rig.closed() == []
    rig.look({1: 9_950_000})
    assert rig.closed() == []


def test_others_that_keep_a_node_busy_hide_nobody(rig: Rig) -> None:
    rig.open(1, 2, 3)
    rig.look({1: 500_000}, dry=False)
    rig.account.taken("main", 5, dry=False)
    assert rig.closed() == []
    # Everybody with a complete message has had a turn by now.
    rig.look({1: 600_000}, dry=False)
    rig.account.taken("main", 1, dry=False)
    (excess,) = rig.closed()
    assert excess.connection == 1


def test_one_who_delivers_meanwhile_is_not_judged_by_what_it_had_before(rig: Rig) -> None:
    rig.open(1)
    rig.look({1: 150_000}, dry=False)
    rig.deliver(1, 140_000)
    rig.account.taken("main", 1, dry=True)
    assert rig.closed() == []
    rig.look({1: 200_000})
    assert rig.closed() == []


def test_what_follows_a_delivery_is_charged_from_its_first_byte(rig: Rig) -> None:
    rig.open(1)
    rig.look({1: 100})
    rig.deliver(1, 91)
    # All in one go before the next look.
    rig.look({1: 100 + 150_000})
    (excess,) = rig.closed()
    assert excess.unfinished_bytes > 149_000


def test_heartbeats_are_not_taken_for_a_message(rig: Rig) -> None:
    rig.open(1, kind="client")
    total = 0
    for _ in range(20_000):
        # Ten seconds of heartbeats every 100 ms, a message, and so on: more than a day.
        total += 100 * 9 + 100 + FRAME_HEAD_BYTES
        rig.deliver(1, 100)
        rig.look({1: total}, after_s=10)
        assert rig.closed() == []


def test_what_commands_may_amount_to_is_bounded(rig: Rig) -> None:
    rig.open(1)
    rig.account.limits = UnfinishedLimits(1_000_000, 100_000_000, 100_000_000)
    rig.look({1: SHORT_HEAD_BYTES}, after_s=1e6)
    rig.deliver(1, 0)
    rig.look({1: SHORT_HEAD_BYTES + MAX_COMMAND_BYTES + 1_000_001})
    (excess,) = rig.closed()
    assert excess.unfinished_bytes >= 1_000_001
    rig.open(2)
    rig.deliver(2, 0)
    rig.look({2: SHORT_HEAD_BYTES + COMMAND_BYTES_PER_S + 1_000_001}, after_s=1)
    (excess,) = rig.closed()
    assert excess.unfinished_bytes == 1_000_001


def test_strangers_share_a_bound_and_the_oldest_goes_first(rig: Rig) -> None:
    rig.open(1, 2, 3, 4)
    for connection in (3, 1, 4, 2):
        rig.look({connection: 80_000})
    assert [(e.connection, e.shared) for e in rig.closed()] == [(3, True)]
    rig.look({1: 90_000})
    assert rig.closed() == []


def test_clients_share_another_and_nodes_none(rig: Rig) -> None:
    rig.open(1, 2, 3, 4, 5, 6, kind="client")
    rig.open(7, kind="broker")
    rig.look(dict.fromkeys(range(1, 6), 99_000) | {7: 1_000_000})
    assert rig.closed() == []
    rig.look({6: 99_000})
    assert [e.connection for e in rig.closed()] == [1]


def test_what_is_over_gives_its_share_back(rig: Rig) -> None:
    rig.open(1, 2, 3)
    rig.look({1: 90_000, 2: 90_000})
    rig.account.closed(1)
    rig.deliver(2, 90_000)
    rig.look({3: 90_000})
    assert rig.closed() == []
    assert rig.account.unfinished_bytes == 90_000


def test_a_descriptor_that_is_used_again_is_another_connection(rig: Rig) -> None:
    rig.open(1)
    rig.look({1: 90_000})
    rig.open(1)
    rig.look({1: 20_000})
    assert rig.closed() == []
    assert rig.account.unfinished_bytes == 20_000


OLD, NEW, CHOSEN = (PeerAddress("main", routing_id) for routing_id in (b"\0one", b"\0two", b"me"))


def test_a_late_message_of_an_ended_connection_is_not_its_successors(rig: Rig) -> None:
    account = rig.account
    assert not account.heard(1, OLD), "it is not accepted"
    rig.open(1)
    assert not account.delivered(1, OLD, 1, 10)
    assert account.heard(1, OLD)
    account.closed(1)
    rig.open(1)
    for _ in range(2):
        assert not account.heard(1, OLD)
        assert not account.delivered(1, OLD, 1, 10)
        assert account.connection_of(OLD) is None
        assert account.heard(1, NEW)
        assert account.delivered(1, NEW, 1, 10)
    # A descriptor that another listener has now.
    assert not account.heard(1, PeerAddress("raft", b"\0three"))
    assert account.connection_of(NEW) == 1
    account.closed(1)
    assert account.connection_of(NEW) is None


def test_who_dials_again_with_its_own_routing_id_is_heard(rig: Rig) -> None:
    for _ in range(2):
        rig.open(1)
        assert rig.account.heard(1, CHOSEN)
        assert rig.account.connection_of(CHOSEN) == 1


def test_a_connection_has_one_peer(rig: Rig) -> None:
    rig.open(1)
    assert rig.account.heard(1, OLD)
    assert rig.account.heard(1, NEW)
    assert (rig.account.connection_of(OLD), rig.account.connection_of(NEW)) == (None, 1)


MIB = 1024 * 1024


def tiny(rig: Rig, connection: int, total: int, *, looks_so: bool | None = True) -> None:
    """One more look at a connection that sends tiny frames."""
    rig.now += 0.05
    rig.account.sampled(connection, total, rig.now, tiny=looks_so)
    rig.account.begin_rounds()
    rig.account.taken("main", 0, dry=True)


@pytest.fixture(name="roomy")
def roomy_rig() -> Rig:
    rig = Rig()
    rig.account.limits = UnfinishedLimits(64 * MIB, 128 * MIB, 512 * MIB)
    rig.open(1, 2)
    assert rig.account.swollen(100 * MIB, rig.kinds.get) == []
    return rig


def test_tiny_frames_that_make_the_process_grow_are_closed(roomy: Rig) -> None:
    tiny(roomy, 1, 2 * MIB)
    # Nothing waited when it was looked at: it is as before.
    tiny(roomy, 2, 2 * MIB, looks_so=True)
    tiny(roomy, 2, 3 * MIB, looks_so=None)
    assert roomy.account.swollen(250 * MIB, roomy.kinds.get)
    assert roomy.account.swollen(250 * MIB, roomy.kinds.get) == []
    assert len(roomy.account) == 0


def test_what_only_looks_like_tiny_frames_is_not_closed(roomy: Rig) -> None:
    for total in range(MIB, 60 * MIB, MIB):
        tiny(roomy, 1, total)
        # The process grows by what came, and by as much again for other reasons.
        assert roomy.account.swollen(100 * MIB + 2 * total, roomy.kinds.get) == []
    # It was a message: what it looked like is forgotten.
    roomy.deliver(1, 60 * MIB)
    assert roomy.account.swollen(2_000 * MIB, roomy.kinds.get) == []


def test_a_growing_process_alone_accuses_nobody(roomy: Rig) -> None:
    tiny(roomy, 1, 30 * MIB, looks_so=False)
    assert roomy.account.swollen(2_000 * MIB, roomy.kinds.get) == []


@pytest.mark.parametrize(
    ("said", "is_tiny"),
    [
        (b"\x01\x00" * 2_000, True),
        (b"\x00\x01\x00" + b"\x01\x00" * 2_000, True),
        (b"\x01\x05abcde" * 600, True),
        (b"\x03" + bytes(8) + (b"\x03" + bytes(8)) * 400, True),
        (b"\x00\x00" * 2_000, False),
        (b"\x01\xc8" + bytes(4_094), False),
        (bytes(range(256)) * 16, False),
    ],
)
def test_runs_of_tiny_frames_are_recognised(said: bytes, *, is_tiny: bool) -> None:
    assert (TINY_FRAMES.search(said) is not None) is is_tiny


CROWDED: Final = UnfinishedLimits(1_000_000, 1_000_000, 1_000_000, 50_000, 40_000, 100_000)


@pytest.fixture
def crowded() -> Rig:
    return Rig(CROWDED)


def overfull(rig: Rig) -> list[tuple[int, bool]]:
    """Return who is reset because too much of it waits, and if that is for the sake of others."""
    found = rig.account.overfull(rig.kinds.get)
    assert all(each.is_waiting for each in found)
    return [(each.connection, each.shared) for each in found]


def test_who_sends_more_than_a_busy_node_can_hold_is_reset(crowded: Rig) -> None:
    crowded.open(1, 2, kind="client")
    crowded.open(3, kind="broker")
    # Whether these are complete messages or not, nobody knows, and the listener never runs dry.
    crowded.look({1: 39_000, 2: 45_000, 3: 900_000}, dry=False)
    assert overfull(crowded) == [(2, False)]
    assert overfull(crowded) == []


def test_what_was_taken_waits_no_more(crowded: Rig) -> None:
    crowded.open(1, kind="client")
    crowded.look({1: 45_000}, dry=False)
    crowded.deliver(1, 20_000)
    assert overfull(crowded) == []
    crowded.look({1: 62_000}, dry=False)
    assert overfull(crowded) == [(1, False)]


def test_clients_share_what_may_wait_and_who_has_most_goes_first(crowded: Rig) -> None:
    crowded.open(1, 2, 3, 4, kind="client")
    crowded.look({1: 20_000, 2: 38_000, 3: 35_000, 4: 21_000}, dry=False)
    assert overfull(crowded) == [(2, True)]


def test_strangers_share_what_may_wait(crowded: Rig) -> None:
    crowded.open(1, 2)
    crowded.open(3, kind="client")
    crowded.look({1: 30_000, 2: 24_000, 3: 30_000}, dry=False)
    assert overfull(crowded) == [(1, True)]


def test_frames_cost_memory_too(crowded: Rig) -> None:
    crowded.open(1, 2, kind="client")
    for _ in range(MEASURED_FRAMES):
        crowded.deliver(1, 2)
        crowded.deliver(2, 1_000)
    crowded.look({1: 4_000, 2: 1_009_000}, dry=False)
    crowded.look({1: 14_000, 2: 1_019_000}, dry=False)
    # Each frame of four bytes takes 64 more.
    assert overfull(crowded) == [(1, False)]


def test_what_an_ended_connection_leaves_behind_still_counts(crowded: Rig) -> None:
    crowded.open(1, kind="client")
    crowded.look({1: 30_000}, dry=False)
    crowded.account.closed(1)
    left = crowded.account.waiting_bytes()
    assert left > 29_000
    crowded.account.orphaned("main", 1, 10_000)
    assert crowded.account.waiting_bytes() < left - 10_000
    crowded.account.taken("main", 3, dry=True)
    assert crowded.account.waiting_bytes() == 0


@pytest.mark.parametrize(("size", "frames", "more"), [(1, 1, 10_000), (300, 60, 80_000)])
def test_small_frames_earn_no_credit(rig: Rig, size: int, frames: int, more: int) -> None:
    """What is counted for their heads is about what was sent, so it hides no unfinished message."""
    rig.open(1)
    for _ in range(10_000):
        rig.deliver(1, size, frames)
    sent = 10_000 * (size + frames * SHORT_HEAD_BYTES)
    rig.look({1: sent + LIMITS.message_bytes + more})
    assert [each.connection for each in rig.closed()] == [1]
