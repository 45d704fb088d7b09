"""What is parked is the same on every replica, however it came to the log that it has (Q12)."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.log.keys import Position, position_of
from logboom.nodes.log.storage import WriteSet
from logboom.wire.batch import encode_batch, peek, release, validate_batch
from logboom.wire.head import ControlKind
from logboom.wire.parking import encode_parked, encode_recalled
from logboom.wire.transactions import DecidedBody, TransactionId, encode_decided
from tests.thorough import seeds
from tests.unit.nodes.log.replica_logs import Log, walk

KINDS = (
    *("park", "park", "send", "release", "recall", "carry", "carry"),
    *("prepare", "prepare", "prepare", "decide", "decide"),
)


class Author:
    """Writes a leader's log, and knows in plain words what is parked."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log = Log()
        self.log.replica.leader_epoch = 1
        self.parked: dict[Position, tuple[int, Position, bytes, TransactionId | None]] = {}
        """Place → due time, where it was parked first, the batch, whose decision it waits for."""
        self.decided = 0
        self.count = 0

    def step(self) -> None:
        """Append one entry of some kind."""
        replica, writes = self.log.replica, WriteSet()
        cache, at = self.log.cache, replica.end
        self.count += 1
        batch = encode_batch([b"%d" % self.count], now_ms=7)
        # Only what is applied is released, recalled or carried by a leader.
        old = [place for place in self.parked if place < replica.applied]
        timed = [place for place in old if self.parked[place][3] is None]
        kind = self.rng.choice(KINDS)
        if kind in ("release", "recall"):
            old = timed
        if kind == "send" or not old:
            replica.append_batch(batch, validate_batch(batch, stamped=False), 7, writes, cache)
        if kind == "park":
            due_ms = self.rng.randrange(100)
            self.parked[replica.end] = (due_ms, replica.end, batch, None)
            replica.append_parked(batch, due_ms, 7, writes, cache)
        elif kind == "prepare":
            mine = TransactionId("app", self.rng.randrange(4), self.rng.randrange(2))
            self.parked[replica.end] = (max(7, replica.append_time_ms), replica.end, batch, mine)
            replica.append_parked(batch, -1, 7, writes, cache, mine)
        elif kind == "decide" and replica.applied == replica.end:
            self.decide(writes)
        elif old and kind in ("release", "recall", "carry"):
            place = self.rng.choice(old)
            due_ms, first, batch, whose = self.parked.pop(place)
            if kind == "release":
                released = release(batch, *place)
                replica.append_batch(released, peek(released), 7, writes, cache)
            elif kind == "recall":
                replica.append_control(
                    ControlKind.RECALLED, encode_recalled(*place), 7, writes, cache
                )
            else:
                self.parked[at] = (due_ms, first, batch, whose)
                body = encode_parked(batch, due_ms, (first, place), whose)
                replica.append_control(ControlKind.PARKED, body, 7, writes, cache)
        self.log.commit(writes)

    def decide(self, writes: WriteSet) -> None:
        """Commit or abort some transaction, and release what is listed."""
        replica, cache, rng = self.log.replica, self.log.cache, self.rng
        self.decided += 1
        sequence, attempt = rng.randrange(4), rng.randrange(2)
        commit = rng.random() < 0.6
        mine = {p: whose for p, (_, _, _, whose) in self.parked.items() if whose is not None}
        ended = [
            place
            for place, whose in mine.items()
            if (
                whose.sequence <= sequence
                if commit
                else (whose.sequence, whose.attempt) == (sequence, attempt)
            )
        ]
        good = [p for p in ended if mine[p] == TransactionId("app", sequence, attempt)]
        listed = rng.sample(good, rng.randint(0, len(good))) if commit else []
        batches = [(place, self.parked[place][2]) for place in listed]
        decided = DecidedBody(self.decided, "app", sequence, attempt, commit, list(listed))
        body = encode_decided(decided)
        replica.append_control(ControlKind.DECIDED, body, 7, writes, cache)
        for place, batch in batches:
            released = release(batch, *place)
            replica.append_batch(released, peek(released), 7, writes, cache)
        for place in ended:
            del self.parked[place]

    def trim(self) -> None:
        """Retention, as far as what is parked lets it."""
        replica = self.log.replica
        limit = replica.parked.limit(replica.applied, self.log.storage)
        self.log.trim(min(limit, replica.readable.offset))


def apply(log: Log, hw: Position) -> None:
    """The HW of a replica moves, and everything below it is applied."""
    log.replica.raise_hw(hw)
    more = True
    while more:
        writes = WriteSet()
        applied = log.replica.parked.apply(log.replica.hw, log.storage, writes)
        log.replica.applied, more = applied.reach, applied.more
        log.commit(writes)


def standing(log: Log) -> tuple[int, int, dict[bytes, bytes]]:
    """Count, bytes and rows of what is parked; not the recalls, which are forgotten in time."""
    content = log.storage.content("parked").items()
    letters = (b"d", b"p", b"m", b"t", b"a", b"h")
    rows = {key: value for key, value in content if key[8:9] in letters}
    parked = log.replica.parked
    assert parked.undecided == sum(key[8:9] in (b"a", b"h") for key in rows)
    assert parked.release is None
    return parked.count, parked.size, rows


@pytest.mark.parametrize("seed", seeds(60))
def test_replicas_derive_the_same_from_any_piece_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    follower = walk(rng, author, apply)
    leader = author.log
    assert standing(follower) == standing(leader)
    assert leader.replica.parked.done == author.decided
    count, _, rows = standing(leader)
    assert count == len(author.parked)
    assert sum(key[8:9] == b"p" for key in rows) == count
    follower.reopen()
    assert standing(follower) == standing(leader)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_cut_below_the_hw_is_mended_by_the_same_entries(seed: int) -> None:
    author = Author(random.Random(seed))
    leader = author.log
    for step in range(40):
        author.step()
        if step % 3 == 0:
            apply(leader, leader.replica.end)
    apply(leader, leader.replica.end)
    for key in leader.log():
        follower = Log()
        follower.follow(leader, 1, 400)
        apply(follower, leader.replica.end)
        assert standing(follower) == standing(leader)
        place = position_of(key)
        writes = WriteSet()
        follower.replica.cut(place, writes, follower.storage)
        follower.commit(writes)
        follower.follow(leader, 1, 400)
        apply(follower, leader.replica.end)
        assert standing(follower) == standing(leader), place
