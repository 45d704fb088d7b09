"""Compaction against a model: whatever is written, cut, restarted or retained, a reader who keeps a
table by key ends up with the latest value of each key, and sees each message as it was sent."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.nodes.compaction import survivor_copies as compact_copies
from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.compaction_update import COPY_MESSAGES
from logboom.wire.batch import HEAD_LENGTH, encode_batch, open_batch, validate_batch
from logboom.wire.validation import crc32c
from tests.thorough import examples, seeds
from tests.unit.nodes.compaction.model import CompactedLog, Row, table_of

DAY_MS = 86_400_000
KEYS = (b"a", b"b", b"c", b"d", b"e", b"f", None)
CODECS = ("none", "lz4", "zstd")


class Author:
    """A leader, a follower, and every message that was ever written."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.leader, self.follower = CompactedLog(), CompactedLog()
        self.written: dict[int, Row] = {}
        self.epoch = 1
        self.compacted = 0
        """The greatest horizon that there ever was."""
        self.reader = (0, dict[bytes, bytes]())
        """Where a reader stands that goes on now and then, and its table."""
        self.told_ms = self.leader.now_ms
        """When it was last not behind the log's start, or began."""

    def send(self) -> None:
        """One batch of anything."""
        rng, end = self.rng, self.leader.replica.end.offset
        count = rng.choice((1, 1, 2, 5, 12))
        keys = [rng.choice(KEYS) for _ in range(count)]
        if rng.random() < 0.2:
            keys = [None] * count
        values = [
            None if rng.random() < 0.2 else b"%d of %d" % (end + n, self.epoch)
            for n in range(count)
        ]
        self.leader.send(keys, values, rng.choice(CODECS))
        rows = zip(range(end, end + count), keys, values, strict=True)
        self.written.update({row[0]: row for row in rows})

    def replicate(self) -> None:
        """The follower comes to what the leader has, copies and all."""
        follower, leader = self.follower, self.leader
        follower.follow(leader, self.epoch, 1_000, 3)
        if follower.replica.compaction.lacks is None or self.rng.random() < 0.8:
            follower.fetch_copies(leader, 1_000)
        leader.apply()
        follower.replica.raise_hw(leader.replica.hw)
        follower.replica.applied = follower.replica.hw

    def fail_over(self) -> None:
        """The follower leads, if it is in sync."""
        self.replicate()
        if self.follower.replica.compaction.lacks is None:
            self.leader, self.follower = self.follower, self.leader
            self.epoch += 1
            self.leader.replica.leader_epoch = self.epoch

    def lose_disk(self) -> None:
        """The follower begins with nothing."""
        self.follower = CompactedLog()
        self.follower.now_ms = self.leader.now_ms

    def step(self) -> None:
        """Anything that may happen."""
        rng, leader = self.rng, self.leader
        one = rng.choice((leader, self.follower))
        match rng.choice(("send",) * 8 + ("apply",) * 3 + ("compact",) * 5 + OTHERS):
            case "send":
                self.send()
            case "apply":
                self.replicate()
            case "compact":
                one.compact(rng.choice((1, 3, 50)))
            case "control":
                leader.control()
            case "expire":
                self.replicate()
                leader.expire(rng.randint(0, leader.replica.end.offset))
                self.follower.expire(leader.replica.start)
            case "restart":
                one.restart()
            case "fail-over":
                self.fail_over()
            case "disk":
                self.lose_disk()
            case "rebuild":
                writes = WriteSet()
                one.replica.compaction.rebuild(writes, one.storage, one.replica.start)
                one.commit(writes)
            case "go on":
                self.go_on(leader)
            case "time":
                self.leader.now_ms += rng.choice((1, DAY_MS // 3, DAY_MS))
                self.follower.now_ms = self.leader.now_ms
                one.forget_tombstones()
        both = (self.leader.replica, self.follower.replica)
        self.compacted = max(self.compacted, *(each.compaction.reach for each in both))

    def go_on(self, log: CompactedLog) -> None:
        """The reader reads some more; one that fell behind the log's start may have missed the
        end of a key, and begins anew."""
        offset, table = self.reader
        if not self.is_told(log):
            offset, table = 0, {}
            self.told_ms = log.now_ms
        for _ in range(self.rng.randint(1, 5)):
            if offset >= log.replica.readable.offset:
                break
            rows, offset = log.read(offset, self.rng.randint(1, 4))
            table = table_of(rows, table)
        self.reader = (offset, table)
        if offset >= log.replica.start:
            self.told_ms = log.now_ms

    def is_told(self, log: CompactedLog) -> bool:
        """Whether the reader misses no tombstone: these are kept for a day after the log."""
        offset = self.reader[0]
        return not 0 < offset < log.replica.start or log.now_ms - self.told_ms < DAY_MS

    def check(self, log: CompactedLog) -> None:
        """What a reader of this replica must see."""
        end = log.replica.readable.offset
        if end < self.compacted:
            # Its HW is not known again yet, and what lies behind it has superseded something.
            return
        written = [row for offset, row in sorted(self.written.items()) if offset < end]
        expected = table_of(written)
        rows = log.read_all(0, self.rng)
        assert all(self.written[row[0]] == row for row in rows)
        assert [row[0] for row in rows] == sorted({row[0] for row in rows})
        assert table_of(rows) == expected
        if log is self.leader:
            offset, table = self.reader
            if offset <= end and self.is_told(log):
                assert table_of(log.read_all(offset), table) == expected


OTHERS = (
    "time",
    "control",
    "expire",
    "expire",
    "restart",
    "fail-over",
    "disk",
    "rebuild",
    "go on",
    "go on",
)


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(1, 120))
def test_a_table_by_key_is_right_whatever_happened(seed: int, steps: int) -> None:
    author = Author(random.Random(seed))
    for _ in range(steps):
        author.step()
        author.check(author.leader)
        if author.follower.replica.compaction.lacks is None:
            author.check(author.follower)


@pytest.mark.parametrize("seed", seeds(20))
def test_below_the_horizon_nothing_superseded_is_seen(seed: int) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    for _ in range(150):
        author.step()
    author.replicate()
    log = author.leader
    log.finish()
    assert log.replica.compaction.reach == log.replica.readable.offset
    log.now_ms += DAY_MS
    log.forget_tombstones()
    rows = log.read_all(0)
    keys = [key for _, key, _ in rows if key is not None]
    assert len(keys) == len(set(keys))
    # What the log holds no longer is kept for its key alone.
    old = [row for row in rows if row[0] < log.replica.start]
    assert all(key is not None and value is not None for _, key, value in old)


def test_a_batch_is_taken_in_a_part_at_a_time() -> None:
    log = CompactedLog()
    keys: list[bytes | None] = [b"%d" % (n % 300) for n in range(1_000)]
    log.send(keys, [b"v"] * 1_000, "none")
    log.apply()
    assert log.compact(100) >= 100
    assert 0 < log.replica.compaction.reach < 100
    log.restart()
    assert log.compact(450) >= 450
    reach = log.replica.compaction.reach
    assert 300 < reach < 600
    # From the horizon on the batch is seen as it is: nobody waits for the rest of the pass.
    gone = reach - 300
    assert [row[0] for row in log.read_all(0)][: 300 - gone] == list(range(gone, 300))
    log.finish()
    assert [row[0] for row in log.read_all(0)] == list(range(700, 1_000))


def test_copies_shrink_with_what_survives_of_them() -> None:
    log = CompactedLog()
    count = 1_000
    keys: list[bytes | None] = [b"key %d" % n for n in range(count)]
    log.send(keys, [random.Random(n).randbytes(100) for n in range(count)], "none")
    log.send([b"other"], [b"v"], "none")
    log.apply()
    log.finish()
    log.expire(count)
    sizes = []
    for gone in (0, 10, 600, 900, 999):
        if gone:
            log.send(keys[:gone], [b"new"] * gone, "none")
            log.apply()
            log.finish()
        content = log.storage.content("compact")
        sizes.append(sum(len(v) for k, v in content.items() if k[8:9] == b"m"))
        assert len(table_of(log.read_all(0))) == count + 1
    assert sizes[0] == sizes[1] > 100 * count
    assert sizes[2] < 65 * count
    assert sizes[3] < sizes[2] / 2
    assert sizes[4] < 1_000
    log.send(keys, [b"newest"] * count, "none")
    log.apply()
    log.finish()
    assert not [key for key in log.storage.content("compact") if key[8:9] in b"mn"]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_superseded_while_a_batch_is_copied_is_kept_no_longer(codec: str) -> None:
    log = CompactedLog()
    count = 3 * COPY_MESSAGES
    keys: list[bytes | None] = [b"key %d" % n for n in range(count)]
    log.send(keys, [b"old"] * count, codec)
    log.send([b"other"], [b"v"], codec)
    log.apply()
    log.finish()
    for until in (COPY_MESSAGES, count):
        log.copy(until)
        log.send(keys[: until - 5], [b"new"] * (until - 5), codec)
        log.apply()
        log.finish()
        assert len(table_of(log.read_all(0))) == count + 1
    assert len(copies(log)) == 1
    log.restart()
    log.expire(count)
    assert log.replica.start == count
    assert len(copies(log)) == 1
    assert [row[2] for row in log.read_all(0)].count(b"old") == 5
    log.send(keys, [b"newest"] * count, codec)
    log.apply()
    log.finish()
    assert not copies(log)


def test_a_batch_is_not_copied_while_the_pass_is_in_the_middle_of_it() -> None:
    log = CompactedLog()
    keys: list[bytes | None] = [b"%d" % n for n in range(200)]
    log.send(keys, [b"v"] * 200, "none")
    log.apply()
    while log.replica.compaction.reach < 100:
        log.compact(30)
    for until in (log.replica.compaction.reach, 199):
        log.copy(until)
        assert not copies(log)
    log.finish()
    log.send([b"last"], [b"v"], "none")
    log.apply()
    log.finish()
    log.expire(200)
    assert log.replica.start == 200
    assert len(table_of(log.read_all(0))) == 201


def test_copies_of_a_batch_that_is_superseded_around_a_restart_are_dropped() -> None:
    log = CompactedLog()
    count = 2 * COPY_MESSAGES
    keys: list[bytes | None] = [b"key %d" % n for n in range(count)]
    log.send(keys, [b"old"] * count, "none")
    log.send([b"other"], [b"v"], "none")
    log.apply()
    log.finish()
    log.copy(count)
    assert len(copies(log)) == 2
    log.restart()
    log.send(keys, [b"new"] * count, "none")
    log.apply()
    log.finish()
    log.expire(count + 1)
    assert log.replica.start == count + 1
    assert len(copies(log)) == 1
    assert len(table_of(log.read_all(0))) == count + 1


def test_tombstones_that_are_forgotten_while_their_batch_is_copied_leave_no_copy() -> None:
    log = CompactedLog()
    count = 2 * COPY_MESSAGES
    keys: list[bytes | None] = [b"key %d" % n for n in range(count)]
    log.send(keys, [None] * count, "none")
    log.send([b"other"], [b"v"], "none")
    log.apply()
    log.finish()
    while log.replica.compaction.kept < COPY_MESSAGES:
        log.copy_some(count)
    log.now_ms += DAY_MS
    log.forget_tombstones()
    assert log.replica.compaction.kept < count
    log.expire(count)
    assert log.replica.start == count
    log.now_ms += DAY_MS
    log.forget_tombstones()
    assert not copies(log)
    assert [row[1] for row in log.read_all(0)] == [b"other"]


def copies(log: CompactedLog) -> list[bytes]:
    """The keys of all copies."""
    return [key for key in log.storage.content("compact") if key[8:9] == b"m"]


def test_a_malformed_batch_without_keys_is_left_behind() -> None:
    """It is stored as its producer sent it; readers say that it is damaged, replicas are not."""
    log = CompactedLog()
    good = encode_batch([b"a", b"b"], now_ms=7)
    bad = bytearray(good)
    bad[HEAD_LENGTH : HEAD_LENGTH + 4] = b"\xff" * 4
    bad[28:32] = crc32c(bytes(bad[32:])).to_bytes(4, "little")
    head = validate_batch(bytes(bad), stamped=False)
    writes = WriteSet()
    log.replica.append_batch(bytes(bad), head, 7, writes, log.cache)
    log.commit(writes)
    log.send([b"k"], [b"v"], "none")
    log.apply()
    log.finish()
    log.expire(2)
    assert log.replica.start == 2
    assert not copies(log)
    assert table_of(log.read_all(0)) == {b"k": b"v"}


def test_what_lies_above_the_hw_supersedes_nothing() -> None:
    log = CompactedLog()
    log.send([b"k"], [b"one"], "none")
    log.apply()
    log.send([b"k"], [b"two"], "none")
    log.finish()
    assert log.replica.compaction.reach == 1
    assert table_of(log.read_all(0)) == {b"k": b"one"}
    log.apply()
    log.finish()
    assert table_of(log.read_all(0)) == {b"k": b"two"}


def test_what_is_cut_below_the_hw_is_forgotten() -> None:
    log = CompactedLog()
    for value in (b"one", b"two"):
        log.send([b"k"], [value], "none")
    log.apply()
    log.finish()
    assert table_of(log.read_all(0)) == {b"k": b"two"}
    writes = WriteSet()
    log.replica.cut(Position(1), writes, log.storage)
    log.commit(writes)
    assert table_of(log.read_all(0)) == {b"k": b"one"}
    log.finish()
    assert table_of(log.read_all(0)) == {b"k": b"one"}


def test_a_follower_merges_copies_with_what_it_knows_better() -> None:
    """Its log begins behind the copies, and tells of later messages of their keys before these come."""
    leader, follower = CompactedLog(), CompactedLog()
    for number in range(6):
        leader.send([b"%d" % (number % 3), b"own %d" % number], [b"v", b"w"], "lz4")
    leader.apply()
    leader.finish()
    leader.expire(8)
    follower.follow(leader, 1, 100)
    assert follower.replica.start == leader.replica.start == 8
    assert follower.replica.compaction.lacks == 0
    leader.send([b"own 0", b"own 1"], [b"again", None], "none")
    leader.apply()
    follower.follow(leader, 1, 100)
    follower.apply()
    follower.finish()
    leader.finish()
    follower.fetch_copies(leader, 100)
    assert follower.replica.compaction.lacks is None
    assert follower.read_all(0) == leader.read_all(0)
    page = compact_copies.read_copy_page(leader.replica, leader.storage, (0, 8), 1)
    assert page is not None
    assert open_batch(page.frames[0]).base_offset == 4
