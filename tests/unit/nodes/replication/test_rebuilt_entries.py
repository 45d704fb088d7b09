"""Released batches that a leader sends without their body, and followers rebuild."""

from __future__ import annotations

import msgspec
import pytest

from logboom.nodes.log.body_references import STORED, lender_of
from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.log.storage import WriteSet
from logboom.wire.batch import encode_control, release, stamp
from logboom.wire.frames import Frame
from logboom.wire.head import HEAD_LENGTH, RELEASED_FROM, ControlKind
from logboom.wire.messages import Replicate, Replicated
from logboom.wire.parking import encode_parked
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import LATER_MS, ME, Peer, Rig, batch, fetch, produce
from tests.unit.nodes.test_broker_rules import flowing, replicated

VALUE = b"v" * 3_000
ALL = (ME, "broker-2", "broker-3")
PARKED = Position(0)
RELEASED = Position(0, 1)


def parked_entry(value: bytes = VALUE) -> bytes:
    """What a leader parks at the start of a log."""
    body = encode_parked(batch(value=value), LATER_MS)
    return stamp(encode_control(ControlKind.PARKED, body), 0, 2, LATER_MS)


def released_entry(parked: Position = PARKED, value: bytes = VALUE) -> bytes:
    """What it appends when it releases that."""
    return stamp(release(batch(value=value), *parked), 0, 2, LATER_MS)


def short_of(entry: bytes) -> bytes:
    """The entry as it is sent to a follower that rebuilds it."""
    return entry[:HEAD_LENGTH] + entry[-RELEASED_FROM.size :]


# ── the follower ────────────────────────────────────────────────────────────────────────────────


def follower(storage: SimulatedStorage | None = None, incarnation: str = "one") -> Rig:
    """A broker that follows broker-2."""
    rig = Rig(storage or SimulatedStorage("store-1"), incarnation=incarnation)
    rig.lead(epoch=2, leader="broker-2", isr=ALL, replicas=ALL)
    return rig


def with_parked() -> Rig:
    """A follower that has the parked entry."""
    rig = follower()
    assert replicated(rig, flowing(2, 0, 1), frames=[parked_entry()]).queues[0].rebuilds
    assert rig.replica().end == RELEASED
    return rig


def counted(rig: Rig, name: str) -> int:
    return rig.broker.stats.counters.get(name, 0)


def stored(rig: Rig, at: Position) -> bytes | None:
    return rig.storage.get("log", log_key(1, 0, *at))


@pytest.mark.parametrize("cached", [True, False])
def test_a_rebuilt_entry_is_the_leaders_byte_for_byte(cached: bool) -> None:
    rig = with_parked()
    if not cached:
        rig.replica().tail.clear()
    replicated(rig, flowing(2, 0, 1), frames=[short_of(released_entry())])
    assert rig.replica().end == Position(1)
    assert rig.replica().tail[RELEASED][0] == released_entry()
    assert stored(rig, RELEASED) == released_entry()
    assert counted(rig, "rebuilt_entries") == 1
    assert replicated(rig).queues[0].rebuilds


def test_both_entries_may_come_in_one_answer() -> None:
    rig = follower()
    frames = [parked_entry(), short_of(released_entry())]
    replicated(rig, flowing(2, 0, 2), frames=frames)
    assert rig.replica().end == Position(1)
    assert stored(rig, RELEASED) == released_entry()


def test_a_follower_that_was_restarted_in_between_rebuilds_from_its_disk() -> None:
    rig = follower(with_parked().storage, "two")
    assert not rig.replica().tail
    replicated(rig, flowing(2, 0, 1), frames=[short_of(released_entry())])
    assert stored(rig, RELEASED) == released_entry()


def refused(rig: Rig, short: bytes) -> None:
    """The follower does not take it, asks for the whole entry once, and then rebuilds again."""
    end = rig.replica().end
    replicated(rig, flowing(2, 0, 1), frames=[short])
    assert rig.replica().end == end
    assert counted(rig, "rebuilds_failed") == 1
    whole = released_entry()
    (queue,) = replicated(rig, flowing(2, 0, 1), frames=[whole]).queues
    assert (queue.rebuilds, queue.offset, queue.side) == (False, *end)
    assert stored(rig, end) == whole
    (queue,) = replicated(rig).queues
    assert (queue.rebuilds, queue.offset) == (True, 1)
    assert counted(rig, "bad_entries") == 0


def test_a_parked_entry_that_is_not_there_is_not_needed() -> None:
    refused(follower(), short_of(released_entry()))


@pytest.mark.parametrize("side", [1, 9])
def test_a_wrong_position_is_noticed(side: int) -> None:
    refused(with_parked(), short_of(released_entry(Position(0, side))))


def test_another_body_is_noticed() -> None:
    rig = follower()
    replicated(rig, flowing(2, 0, 1), frames=[parked_entry(VALUE.upper())])
    refused(rig, short_of(released_entry()))
    assert rig.replica().damage is None


def test_a_body_that_is_too_short_is_noticed() -> None:
    rig = follower()
    replicated(rig, flowing(2, 0, 1), frames=[parked_entry(VALUE[:100])])
    refused(rig, short_of(released_entry()))


def test_what_precedes_it_in_an_answer_is_kept() -> None:
    rig = follower()
    frames = [parked_entry(VALUE.upper()), short_of(released_entry())]
    replicated(rig, flowing(2, 0, 2), frames=frames)
    assert rig.replica().end == RELEASED
    (queue,) = replicated(rig, flowing(2, 0, 1), frames=[released_entry()]).queues
    assert (queue.rebuilds, queue.side) == (False, 1)
    assert stored(rig, RELEASED) == released_entry()


def test_a_parked_entry_that_proves_damaged_is_reported_and_fetched_again() -> None:
    """As if the scrubber had found it (Q14)."""
    rig = with_parked()
    rig.replica().tail.clear()
    damaged = bytearray(parked_entry())
    damaged[-9] ^= 4
    writes = WriteSet()
    writes.put("log", log_key(1, 0, *PARKED), bytes(damaged))
    rig.storage.write(writes)
    replicated(rig, flowing(2, 0, 1), frames=[short_of(released_entry())])
    replica = rig.replica()
    assert (replica.damaged_at, replica.end) == (PARKED, RELEASED)
    assert counted(rig, "damages") == 1


def test_the_checksum_covers_the_rest_of_what_was_sent() -> None:
    short = bytearray(short_of(released_entry()))
    short[64] ^= 1
    refused(with_parked(), bytes(short))


# ── the leader ──────────────────────────────────────────────────────────────────────────────────


def release_at(rig: Rig, two: Peer, *, rebuilds: bool, cached: bool = True) -> Frame:
    """Let a leader release a batch; the frame of it that the follower gets."""
    two.ask(named(fetch(0, (Position(0), -1)), rebuilds=rebuilds))
    two.taken()
    due = msgspec.structs.replace(produce(), due_ms=rig.wall_ms + 50)
    rig.client().ask(due, [batch(value=VALUE)])
    two.ask(named(fetch(1, (RELEASED, 1)), rebuilds=rebuilds))
    two.taken()
    if not cached:
        rig.replica().tail.clear()
    rig.wall_ms += 60
    rig.settle(0.06)
    frames = [frame for reply in two.taken() for frame in reply.batches]
    if not frames:
        two.ask(fetch(2))
        frames = [frame for reply in two.taken() for frame in reply.batches]
    (frame,) = frames
    assert stored(rig, RELEASED) == rig.replica().tail[RELEASED][0]
    return frame


def named(request: Replicate, *, rebuilds: bool) -> Replicate:
    """The request of a follower that can rebuild, or cannot."""
    request.queues = [msgspec.structs.replace(q, rebuilds=rebuilds) for q in request.queues]
    return request


def leader() -> tuple[Rig, Peer]:
    rig = Rig()
    rig.lead(isr=ALL[:2], replicas=ALL[:2])
    return rig, rig.follower()


def test_a_released_batch_is_sent_without_its_body() -> None:
    rig, two = leader()
    frame = bytes(release_at(rig, two, rebuilds=True))
    assert len(frame) == STORED
    assert lender_of(frame) == PARKED
    assert frame == short_of(rig.replica().tail[RELEASED][0])


def test_a_follower_that_does_not_rebuild_gets_it_whole() -> None:
    """An older one never says that it does."""
    rig, two = leader()
    frame = release_at(rig, two, rebuilds=False)
    assert bytes(frame) == rig.replica().tail[RELEASED][0]


def test_a_batch_that_was_parked_long_ago_is_sent_whole() -> None:
    rig, two = leader()
    frame = release_at(rig, two, rebuilds=True, cached=False)
    assert bytes(frame) == rig.replica().tail[RELEASED][0]


def test_a_body_that_is_left_out_takes_its_room_in_an_answer() -> None:
    rig, two = leader()
    release_at(rig, two, rebuilds=True)
    rig.client().ask(produce(), [batch(value=VALUE)])
    request = named(fetch(3, (RELEASED, 1), session=8), rebuilds=True)
    request.number, request.max_bytes = 0, 2_000
    two.ask(request)
    (reply,) = two.taken()
    assert isinstance(reply.message, Replicated)
    assert [len(frame) for frame in reply.batches] == [STORED]


def test_a_follower_that_failed_to_rebuild_gets_the_same_entry_whole() -> None:
    rig, two = leader()
    release_at(rig, two, rebuilds=True)
    two.ask(named(fetch(0, (RELEASED, 1), session=8), rebuilds=False))
    (reply,) = two.taken()
    assert list(map(bytes, reply.batches)) == [rig.replica().tail[RELEASED][0]]
