"""Logs of replicas to test with: appended to, cut, trimmed and followed as brokers do."""

from __future__ import annotations

import random
from typing import Protocol

import msgspec

from logboom.nodes.log.epoch_table import EpochTable
from logboom.nodes.log.index import QueueIndex
from logboom.nodes.log.keys import Position, log_key, queue_key
from logboom.nodes.log.log_state import LogState
from logboom.nodes.log.recovery import open_queue
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.log.tail_cache import TailCache
from logboom.nodes.replica.entry_reader import entries
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replicate_handler import compare_position
from logboom.wire.batch import encode_lost, stamp, validate_batch
from logboom.wire.head import ControlKind
from logboom.wire.messages import FollowerPosition
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import batch


class Log:
    """A replica with its own store; every change is written and synced at once."""

    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.storage = SimulatedStorage("store")
        self.cache = TailCache(cache_bytes)
        self.replica = Replica(1, 0, LogState(), EpochTable(), QueueIndex(self.storage, 1, 0, 0))
        self.commit(WriteSet())

    def commit(self, writes: WriteSet) -> None:
        """As a turn's end and the sync after it do."""
        replica = self.replica
        replica.stage_record(writes)
        self.storage.write(writes)
        replica.written = replica.synced = replica.end
        self.cache.trim()

    def lead(self, epoch: int, counts: list[int], producer: int = 5) -> None:
        """Append batches of these sizes in an epoch; 0 makes a control entry, -n an entry for n lost
        messages."""
        self.replica.leader_epoch = epoch
        for sequence, count in enumerate(counts):
            writes = WriteSet()
            if count < 0:
                lost = stamp(encode_lost(-count), self.replica.end.offset, epoch, 7)
                self.replica.append_entry(lost, writes, self.cache)
            elif count:
                data = batch(count, producer, epoch, sequence, b"%d" % epoch)
                self.replica.append_batch(
                    data, validate_batch(data, stamped=False), 7, writes, self.cache
                )
            else:
                nobody = msgspec.msgpack.encode([1_000_000 + epoch])
                self.replica.append_control(
                    ControlKind.PRODUCER_EXPIRY, nobody, 7, writes, self.cache
                )
            self.commit(writes)

    def trim(self, offset: int) -> None:
        """Retention up to the batch that holds `offset`, at most to the HW."""
        replica, writes = self.replica, WriteSet()
        starts = [
            int.from_bytes(key[8:16], "big")
            for key in self.storage.content("log")
            if int.from_bytes(key[8:16], "big") <= min(offset, replica.hw.offset)
        ]
        start = max(starts, default=replica.start)
        if start > replica.start:
            writes.delete_range("log", queue_key(1, 0), log_key(1, 0, start))
            replica.trimmed(start, 0)
            self.commit(writes)

    def asked(self, epoch: int) -> FollowerPosition:
        """What this replica says to a leader."""
        at = self.replica.synced
        return FollowerPosition(1, 0, epoch, *at, self.replica.epochs.before(at))

    def follow(self, leader: Log, epoch: int, rounds: int, most: int = 2) -> int:
        """Fetch from a leader for so many rounds; how many there were until nothing was missing."""
        replica, theirs = self.replica, leader.replica
        replica.leader_epoch = epoch
        for number in range(rounds):
            asked = self.asked(epoch)
            answer = compare_position(theirs, asked)
            writes = WriteSet()
            if answer is None:
                at = Position(asked.offset, asked.side)
                if at == theirs.end:
                    return number
                found = entries(theirs, leader.storage, at, theirs.end)
                for entry, _ in [pair for pair, _ in zip(found, range(most), strict=False)]:
                    replica.append_entry(entry, writes, self.cache)
            elif answer.status == "CUT":
                end = Position(answer.cut_offset, answer.cut_side)
                replica.truncate_to_leader(answer.cut_epoch, end, writes, self.storage)
            else:
                assert answer.status == "RESET"
                replica.reset(answer.state, writes)
            self.commit(writes)
        return rounds

    def log(self) -> dict[bytes, bytes]:
        """Every entry by its key."""
        return self.storage.content("log")

    def reopen(self) -> None:
        """A restart."""
        opened = open_queue(self.storage, 1, 0)
        assert opened.damage is None
        index = QueueIndex(self.storage, 1, 0, opened.record.start)
        replica = Replica(1, 0, opened.record, EpochTable(opened.epochs), index)
        replica.load_derived(self.storage)
        replica.leader_epoch = self.replica.leader_epoch
        self.replica = replica


class Author(Protocol):
    """Writes a leader's log in epoch 1."""

    log: Log

    def step(self) -> None:
        """Append one entry of some kind."""

    def trim(self) -> None:
        """Retention, as far as what is derived from the log lets it."""


class Apply(Protocol):
    """The HW of a replica moves, and everything below it is applied."""

    def __call__(self, log: Log, hw: Position) -> None: ...


def walk(rng: random.Random, author: Author, apply: Apply) -> Log:
    """A leader and a follower that write, apply, fetch, restart and lose their disks at random; the
    follower, when both have everything and have applied it."""
    leader, follower = author.log, Log()
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
                rng.choice((leader, follower)).reopen()
            case 6 if rng.random() < 0.3:
                follower = Log()
            case _:
                author.step()
    follower.follow(leader, 1, 400)
    assert follower.replica.end == leader.replica.end
    for log in (leader, follower):
        apply(log, leader.replica.end)
    return follower
