"""What is parked is the same on every replica, however it came to the log that it has (Q12)."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.epochs import EpochTable
from logboom.nodes.index import QueueIndex
from logboom.nodes.keys import Position
from logboom.nodes.opening import open_queue
from logboom.nodes.replica import Replica
from logboom.nodes.storage import WriteSet
from logboom.wire.batch import check, encode_batch, peek, release
from logboom.wire.head import Kind
from logboom.wire.parking import encode_parked, encode_recalled
from tests.unit.nodes.test_replica import Log


class Author:
    """Writes a leader's log, and knows in plain words what is parked."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log = Log()
        self.log.replica.leader_epoch = 1
        self.parked: dict[Position, tuple[int, Position, bytes]] = {}
        """Place → due time, where it was parked first, the batch."""
        self.count = 0

    def step(self) -> None:
        """Append one entry of some kind."""
        replica, writes = self.log.replica, WriteSet()
        cache, at = self.log.cache, replica.end
        self.count += 1
        batch = encode_batch([b"%d" % self.count], now_ms=7)
        # Only what is applied is released, recalled or carried by a leader.
        old = [place for place in self.parked if place < replica.applied]
        kind = self.rng.choice(("park", "park", "send", "release", "recall", "carry", "carry"))
        if kind == "send" or not old:
            replica.append_batch(batch, check(batch, stamped=False), 7, writes, cache)
        if kind == "park":
            due_ms = self.rng.randrange(100)
            self.parked[replica.end] = (due_ms, replica.end, batch)
            replica.append_parked(batch, due_ms, 7, writes, cache)
        elif old and kind in ("release", "recall", "carry"):
            place = self.rng.choice(old)
            due_ms, first, batch = self.parked.pop(place)
            if kind == "release":
                released = release(batch, *place)
                replica.append_batch(released, peek(released), 7, writes, cache)
            elif kind == "recall":
                replica.append_control(Kind.RECALLED, encode_recalled(*place), 7, writes, cache)
            else:
                self.parked[at] = (due_ms, first, batch)
                body = encode_parked(batch, due_ms, (first, place))
                replica.append_control(Kind.PARKED, body, 7, writes, cache)
        self.log.commit(writes)

    def trim(self) -> None:
        """Retention, as far as what is parked lets it."""
        replica = self.log.replica
        self.log.trim(replica.parked.limit(replica.applied, self.log.storage))


def apply(log: Log, hw: Position) -> None:
    """The HW of a replica moves, and everything below it is applied."""
    log.replica.raise_hw(hw)
    more = True
    while more:
        writes = WriteSet()
        applied = log.replica.parked.apply(log.replica.hw, log.storage, writes)
        log.replica.applied, more = applied.reach, applied.more
        log.commit(writes)


def reopen(log: Log) -> None:
    """A restart."""
    opened = open_queue(log.storage, 1, 0)
    assert opened.damage is None
    index = QueueIndex(log.storage, 1, 0, opened.record.start)
    replica = Replica(1, 0, opened.record, EpochTable(opened.epochs), index)
    replica.load_derived(log.storage)
    replica.leader_epoch = log.replica.leader_epoch
    log.replica = replica


def standing(log: Log) -> tuple[int, int, dict[bytes, bytes]]:
    """Count, bytes and rows of what is parked; not the recalls, which are forgotten in time."""
    content = log.storage.content("parked").items()
    rows = {key: value for key, value in content if key[8:9] in (b"d", b"p", b"m")}
    return log.replica.parked.count, log.replica.parked.size, rows


@pytest.mark.parametrize("seed", range(60))
def test_replicas_derive_the_same_from_any_piece_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    author, follower = Author(rng), Log()
    leader = author.log
    for _ in range(rng.randrange(20, 90)):
        match rng.randrange(12):
            case 0 | 1:
                apply(leader, leader.replica.end)
            case 2:
                author.trim()
            case 3:
                follower.follow(leader, 1, rng.randrange(6))
            case 4:
                apply(follower, min(leader.replica.hw, follower.replica.end))
            case 5:
                reopen(rng.choice((leader, follower)))
            case 6 if rng.random() < 0.3:
                follower = Log()
            case _:
                author.step()
    follower.follow(leader, 1, 400)
    assert follower.replica.end == leader.replica.end
    for log in (leader, follower):
        apply(log, leader.replica.end)
    assert standing(follower) == standing(leader)
    count, _, rows = standing(leader)
    assert count == len(author.parked)
    assert sum(key[8:9] == b"p" for key in rows) == count
    reopen(follower)
    assert standing(follower) == standing(leader)
