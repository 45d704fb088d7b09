"""A compacted topic at one broker: what its readers are answered, and what damage does to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logboom.nodes.log.keys import Position, queue_key
from logboom.nodes.log.storage import WriteSet
from logboom.wire.batch import encode_batch, open_batch
from logboom.wire.errors import NotLeader, Unavailable
from logboom.wire.messages import FollowerPosition, Offsets, Pull, Pulled, QueueAnswer, Replicated
from logboom.wire.view import TopicConfig
from tests.unit.nodes.rig import ME, Peer, Rig, fetch, produce
from tests.unit.nodes.test_broker_rules import replicated

BOTH = (ME, "broker-2")
COMPACTED = TopicConfig(retention_ms=-1, compaction=True)
SHORT = TopicConfig(retention_ms=-1, retention_bytes=1, compaction=True, delete_retention_ms=60_000)
AT_ONCE = msgspec.structs.replace(SHORT, delete_retention_ms=0)
LETTER = len(queue_key(0, 0))


def keyed(keys: list[bytes | None], value: bytes | None = b"v") -> bytes:
    return encode_batch([value] * len(keys), keys, now_ms=5)


def pulling(offset: int, wait_ms: int = 0, **more: Any) -> Pull:
    message = Pull(0, 30_000, "flights", 0, offset, 1 << 20, wait_ms, compacted=True)
    for name, value in more.items():
        setattr(message, name, value)
    return message


def offsets_of(client: Peer) -> list[int]:
    """Offsets that a reader of the one answer takes."""
    (reply,) = client.taken()
    if reply.error is not None:
        raise reply.error
    found = []
    assert isinstance(reply.message, Pulled)
    survivors = reply.message.survivors or []
    for place, batch in enumerate(reply.batches):
        columns = open_batch(batch)
        bits = int.from_bytes(survivors[place], "little") if survivors and survivors[place] else -1
        found += [columns.base_offset + at for at in range(len(columns)) if bits >> at & 1]
    return found


def read(rig: Rig, offset: int = 0) -> list[int]:
    client = rig.client("reader")
    client.ask(pulling(offset))
    return offsets_of(client)


def rows(rig: Rig, letter: bytes) -> dict[bytes, bytes]:
    content = rig.storage.content("compact")
    return {k: v for k, v in content.items() if k[LETTER : LETTER + 1] == letter}


def spoil(rig: Rig, letter: bytes) -> None:
    """One bit of the first row of a kind is another."""
    key, value = next(iter(rows(rig, letter).items()))
    writes = WriteSet()
    writes.put("compact", key, value[:-1] + bytes([value[-1] ^ 1]))
    rig.storage.write(writes)


def filled(config: TopicConfig = COMPACTED) -> Rig:
    """Offsets 0 to 5 of keys a b a c b d."""
    rig = Rig()
    rig.lead(config=config)
    client = rig.client()
    for keys in ([b"a", b"b"], [b"a", b"c"], [b"b", b"d"]):
        client.ask(produce(), [keyed([*keys])])
    rig.settle(2.0)
    return rig


def test_a_reader_gets_the_latest_and_waits_at_the_horizon() -> None:
    rig = filled()
    assert read(rig) == [2, 3, 4, 5]
    assert read(rig, 3) == [3, 4, 5]
    client = rig.client("two")
    client.ask(Offsets(0, 5_000, "flights", [0]))
    assert client.answer().horizons == [6]
    client.ask(pulling(6, wait_ms=5_000))
    assert client.taken() == []
    rig.client().ask(produce(), [keyed([b"d", b"d"])])
    # What came after the horizon is seen as it is.
    assert offsets_of(client) == [6, 7]
    rig.settle(1.0)
    assert read(rig) == [2, 3, 4, 7]


def test_a_reader_is_moved_past_what_nothing_survives_of() -> None:
    rig = Rig()
    rig.lead(config=AT_ONCE)
    client = rig.client()
    client.ask(produce(), [keyed([b"a"], None)])
    client.ask(produce(), [keyed([None])])
    client.ask(produce(), [keyed([b"z"], None)])
    rig.settle(12.0)
    assert rig.replica().start == 2
    client.ask(pulling(0))
    (reply,) = client.taken()
    assert isinstance(reply.message, Pulled)
    assert (reply.message.status, reply.message.next_offset) == ("FOUND", 3)
    assert len(reply.batches) == 1
    client.ask(pulling(3))
    assert client.answer().status == "NO_NEW_MESSAGE"


def test_a_topic_that_is_not_compacted_is_read_as_it_is() -> None:
    rig = filled(TopicConfig(retention_ms=-1))
    assert read(rig) == [0, 1, 2, 3, 4, 5]
    assert rows(rig, b"c") == {}


def test_retention_leaves_copies_and_for_a_while_tombstones() -> None:
    rig = filled(SHORT)
    client = rig.client()
    client.ask(produce(), [keyed([b"c"], None)])
    client.ask(produce(), [keyed([b"e"])])
    client.ask(produce(), [keyed([b"f"])])
    rig.settle(12.0)
    assert rig.replica().start == 8
    # Who has read up to 4 is told that c has ended, though the log has dropped that.
    assert read(rig) == [2, 4, 5, 6, 7, 8]
    assert rows(rig, b"t")
    rig.wall_ms += 59_000
    rig.settle(30.0)
    assert read(rig, 5) == [5, 6, 7, 8]
    rig.wall_ms += 1_000
    rig.settle(30.0)
    assert read(rig) == [2, 4, 5, 7, 8]
    assert read(rig, 5) == [5, 7, 8]
    assert rows(rig, b"t") == {}
    assert not [key for key in rows(rig, b"k") if key.endswith(b"c")]
    # Everybody else goes on from the log's start.
    client.ask(Pull(0, 30_000, "flights", 0, 0, 1 << 20, 0))
    assert client.answer().status == "OFFSET_ILLEGAL"
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2, config=SHORT)
    again.settle(1.0)
    assert read(again) == [2, 4, 5, 7, 8]


def test_large_batches_of_several_queues_are_copied_over_turns_before_they_go() -> None:
    rig = Rig()
    rig.lead(queues=2, config=SHORT)
    client = rig.client()
    for queue in range(2):
        client.ask(produce(queue=queue), [keyed([b"%d" % n for n in range(3_000)])])
        client.ask(produce(queue=queue), [keyed([b"last"])])
    rig.settle(20.0)
    for queue in range(2):
        assert rig.replica(queue).start == 3_000
        assert rig.replica(queue).compaction.copying is None
    assert len(rows(rig, b"m")) == 2 * 12
    found: list[int] = []
    while len(found) < 3_001:
        found += read(rig, found[-1] + 1 if found else 0)
    assert found == list(range(3_001))


def test_tombstones_are_not_kept_for_as_long_as_a_clock_was_ahead() -> None:
    rig = filled(SHORT)
    rig.wall_ms += 400 * 86_400_000
    rig.client().ask(produce(), [keyed([b"c"], None)])
    rig.client().ask(produce(), [keyed([b"e"])])
    rig.settle(12.0)
    assert 6 in read(rig)
    rig.wall_ms -= 400 * 86_400_000
    for _ in range(2):
        rig.settle(30.0)
        rig.wall_ms += 60_000
    rig.settle(30.0)
    assert 6 not in read(rig)
    assert rows(rig, b"t") == {}


def test_turned_off_all_of_it_goes_and_turned_on_it_begins_anew() -> None:
    rig = filled()
    rig.lead(config=TopicConfig(retention_ms=-1))
    rig.settle(0.5)
    assert rig.storage.content("compact") == {}
    assert read(rig) == [0, 1, 2, 3, 4, 5]
    rig.lead(config=COMPACTED)
    rig.settle(1.0)
    assert read(rig) == [2, 3, 4, 5]


def test_turned_off_while_the_broker_was_down() -> None:
    rig = filled()
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2, config=TopicConfig(retention_ms=-1))
    again.settle(0.5)
    assert again.storage.content("compact") == {}


@pytest.mark.parametrize("letter", [b"c", b"k", b"b"])
def test_a_row_that_does_not_hold_is_never_believed(letter: bytes) -> None:
    rig = filled()
    spoil(rig, letter)
    again = Rig(rig.storage, incarnation="two")
    again.lead(epoch=2, config=COMPACTED)
    client = again.client()
    if letter == b"b":
        client.ask(pulling(0))
        with pytest.raises(Unavailable, match="made anew"):
            offsets_of(client)
    client.ask(produce(), [keyed([b"a", b"b", b"c", b"d"])])
    again.settle(2.0)
    assert read(again) == [6, 7, 8, 9]
    assert again.replica().damage is None


@pytest.mark.parametrize("letter", [b"n", b"m", b"b"])
def test_copies_that_do_not_hold_are_damage(letter: bytes) -> None:
    rig = filled(SHORT)
    rig.settle(12.0)
    assert rig.replica().start == 4
    spoil(rig, letter)
    client = rig.client("two")
    for _ in range(4):
        client.ask(pulling(0))
        rig.settle(1.0)
    assert rig.replica().damage is not None


def test_the_scrub_finds_a_copy_that_has_rotten() -> None:
    rig = filled(SHORT)
    rig.settle(12.0)
    assert rig.replica().start == 4
    spoil(rig, b"m")
    again = Rig(rig.storage, incarnation="two", scrub_every_s=1.0)
    again.lead(epoch=2, config=SHORT)
    again.settle(5.0)
    assert again.broker.stats.counters["scrub_finds"] == 1
    assert again.replica().damage is not None


def test_a_leader_that_cannot_read_a_copy_for_a_follower_is_damaged() -> None:
    rig = Rig()
    short = TopicConfig(1, -1, 1, compaction=True)
    rig.lead(isr=(ME,), replicas=BOTH, config=short)
    client = rig.client()
    for keys in ([b"a"], [b"b"], [b"c"]):
        client.ask(produce(), [keyed([*keys])])
    rig.settle(12.0)
    assert rig.replica().start == 2
    spoil(rig, b"m")
    message = fetch(0, (Position(2), 1))
    message.queues[0] = FollowerPosition(1, 0, 1, 2, 0, 1, (0, 2))
    rig.follower().ask(message)
    rig.settle(1.0)
    assert rig.replica().damage is not None


def test_a_follower_without_the_copies_does_not_join_before_it_has_them() -> None:
    rig = Rig()
    short = TopicConfig(1, -1, 1, compaction=True)
    rig.lead(isr=(ME,), replicas=BOTH, config=short)
    client = rig.client()
    for keys in ([b"a", b"b"], [b"a", b"c"], [b"d"]):
        client.ask(produce(), [keyed([*keys])])
    rig.settle(12.0)
    assert rig.replica().start == 4
    two = rig.follower()
    two.ask(fetch(0, (Position(0), -1)))
    (answer,) = two.answer().answers
    assert (answer.status, answer.cut_offset) == ("RESET", 4)

    def asks(number: int, position: Position, last: int, lacks: tuple[int, int] | None) -> Any:
        message = fetch(number, (position, last))
        message.queues[0] = FollowerPosition(1, 0, 1, *position, last, lacks)
        two.ask(message)
        (reply,) = two.taken()
        assert isinstance(reply.message, Replicated)
        (found,) = reply.message.answers
        return found, reply.batches

    found, frames = asks(1, Position(4), 1, (0, 4))
    assert (found.frames, found.copied, found.compacts) == (1, 4, True)
    bases = [open_batch(frame).base_offset for frame in frames]
    assert bases == [4, 0, 2]
    message = fetch(2, (Position(5), 1))
    message.queues[0] = FollowerPosition(1, 0, 1, 5, 0, 1, (3, 4))
    two.ask(message)
    rig.settle(0.2)
    assert not rig.commands, "all of the log is not all"
    two.ask(fetch(3, (Position(5), 1)))
    rig.settle(1.0)
    assert rig.commands, "now it may join"


def test_copies_that_the_leader_does_not_have_yet_come_once_it_has_them() -> None:
    """Nothing else happens to the queue, and the follower has nothing new to say."""
    rig = Rig()
    rig.lead(isr=BOTH, replicas=BOTH, config=COMPACTED)
    for keys in ([b"a", b"b"], [b"a", b"c"]):
        rig.client().ask(produce("leader"), [keyed([*keys])])
    two = rig.follower()
    message = fetch(0, (Position(4), 1), wait_ms=5)
    message.queues[0] = FollowerPosition(1, 0, 1, 4, 0, 1, (0, 4))
    two.ask(message)
    copied = []
    for number in range(1, 10):
        rig.settle(1.0)
        for reply in two.taken():
            assert isinstance(reply.message, Replicated)
            copied += [answer.copied for answer in reply.message.answers]
        two.ask(fetch(number, wait_ms=5))
    assert (copied[0], copied[-1]) == (-1, 4)


def test_a_follower_that_lacks_copies_asks_for_them_and_serves_none() -> None:
    rig = Rig(follower_reads=True)
    rig.lead(epoch=2, leader="broker-2", isr=("broker-2",), replicas=BOTH, config=COMPACTED)
    snapshot = filled().replica().snapshot(Position(4))
    replicated(rig, QueueAnswer(1, 0, 2, "RESET", 5, 0, 4, 0, -1, 4, 0, snapshot))
    rig.settle(0.2)
    assert rig.replica().compaction.lacks == 0
    client = rig.client()
    client.ask(pulling(0))
    with pytest.raises(NotLeader):
        client.answer()
    leader = filled(SHORT)
    leader.settle(12.0)
    copies = list(rows(leader, b"m").values())
    assert [open_batch(copy).base_offset for copy in copies] == [2]
    answer = QueueAnswer(1, 0, 2, "OK", 4, 0, 4, 0, compacts=True, survivors=[b""], copied=4)
    replicated(rig, answer, frames=copies)
    rig.settle(0.5)
    assert rig.replica().compaction.lacks is None
