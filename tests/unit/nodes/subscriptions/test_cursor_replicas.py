"""Cursors are the same on every replica, however it came to the log that it has (Q12)."""

from __future__ import annotations

import random

import pytest

from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.cursors import whole_delta
from logboom.wire.batch import encode_batch, validate_batch
from logboom.wire.cursor_deltas import CursorDelta, encode_deltas, pack_counts, pack_spans
from logboom.wire.head import ControlKind
from tests.thorough import seeds
from tests.unit.nodes.log.replica_logs import Log, walk

NAMES = ("billing", "shipping")


class Author:
    """Writes a leader's log, and knows in plain sets what is acknowledged."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log = Log()
        self.log.replica.leader_epoch = 1
        self.acks: dict[str, AckSet] = {}
        self.counts: dict[str, dict[int, int]] = {}

    def step(self) -> None:
        """Append one entry of some kind."""
        replica, writes = self.log.replica, WriteSet()
        kind = self.rng.choice(("send", "send", "acked", "acked", "acked", "whole", "ended"))
        if kind == "send":
            batch = encode_batch([b"v"] * self.rng.choice((1, 3, 5_000)), now_ms=7)
            head = validate_batch(batch, stamped=False)
            replica.append_batch(batch, head, 7, writes, self.log.cache)
        else:
            delta = self._delta(kind)
            body = encode_deltas([delta])
            replica.append_control(ControlKind.CURSOR_DELTA, body, 7, writes, self.log.cache)
        self.log.commit(writes)

    def _delta(self, kind: str) -> CursorDelta:
        name, end = self.rng.choice(NAMES), self.log.replica.end.offset
        acks = self.acks.get(name)
        if acks is None:
            self.acks[name], self.counts[name] = AckSet(end // 2), {}
            return CursorDelta(name, "whole", end // 2)
        counts = self.counts[name]
        if kind == "ended" and self.rng.random() < 0.5:
            del self.acks[name], self.counts[name]
            return CursorDelta(name, "ended")
        if kind == "whole":
            return whole_delta(name, acks, counts)
        start = self.rng.randrange(end + 1)
        stop = min(end, start + self.rng.choice((1, 2, 6_000)))
        again = {self.rng.randrange(end): self.rng.randint(1, 5)} if end else {}
        again = {offset: n for offset, n in again.items() if offset not in acks}
        spans = [(start, stop)] if start < stop else []
        counts.update(again)
        for first, behind in spans:
            acks.add(first, behind)
        self.counts[name] = {o: n for o, n in counts.items() if o not in acks}
        return CursorDelta(name, "acked", 0, pack_spans(spans), pack_counts(again))

    def trim(self) -> None:
        """Retention, as far as the cursors let it."""
        replica = self.log.replica
        self.log.trim(replica.cursors.limit(replica.applied))


def apply(log: Log, hw: Position) -> None:
    """The HW of a replica moves, and everything below it is applied."""
    log.replica.raise_hw(hw)
    writes = WriteSet()
    log.replica.cursors.apply(log.replica.hw, writes)
    log.replica.applied = log.replica.hw
    log.commit(writes)


def shown(log: Log) -> dict[str, object]:
    """Every cursor, as plain values."""
    return {
        name: (cursor.acks.floor, list(cursor.acks.spans()), cursor.counts)
        for name, cursor in log.replica.cursors.cursors.items()
    }


@pytest.mark.parametrize("seed", seeds(40))
def test_replicas_derive_the_same_from_any_piece_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    author = Author(rng)
    follower = walk(rng, author, apply)
    leader = author.log
    wanted = {
        name: (acks.floor, list(acks.spans()), author.counts[name])
        for name, acks in author.acks.items()
    }
    assert shown(leader) == wanted
    assert shown(follower) == wanted
    follower.reopen()
    assert shown(follower) == wanted
