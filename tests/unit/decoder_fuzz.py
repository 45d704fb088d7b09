"""Mutated bytes against all that decodes: its own errors alone, and 10 ms per 64 KiB at most.

`python -m tests.unit.decoder_fuzz --minutes N` is the long form, part of `make verify`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from logboom.backup.backup_format import (
    Manifest,
    QueueRecord,
    SegmentRecord,
    StateRecord,
    TopicRecord,
    decode_manifest,
    encode_manifest,
    segment_name,
)
from logboom.metadata.raft import raft_snapshot
from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.state.state_machine import StateMachine
from logboom.nodes.disk.journal_records import (
    JournalEntry,
    decode_operations,
    encode_record,
    make_header,
    read_header,
    scan_segment,
)
from logboom.nodes.log.keys import Position
from logboom.nodes.log.producer_windows import ProducerWindows
from logboom.nodes.log.storage import Operation
from logboom.wire.access.access_rules import AccessRule, AccessView, RoleView, UserView, rule_fault
from logboom.wire.base import SMALL_FRAME
from logboom.wire.batch import encode_batch, open_batch, peek, validate_batch
from logboom.wire.errors import DamagedBatch, DataDamaged, InvalidRequest, StartError
from logboom.wire.filters import read_matcher
from logboom.wire.validation import crc32c
from tests.unit.metadata.state.states import three_brokers
from tests.unit.wire import frame_fuzz
from tests.unit.wire.work import cost_ms, without_garbage_of_others

ROUND: Final = 200
"""Inputs of one kind before the next one's turn."""
Refusals = tuple[type[Exception], ...]


class Target(NamedTuple):
    """Something that decodes."""

    seeds: Sequence[bytes]
    """What it decodes without complaint."""
    decode: Callable[[bytes], object]
    refusals: Refusals
    """The errors that it may raise."""
    opened: Callable[[bytes], int] = len
    """Returns the bytes that an input may cost."""


def _batches() -> list[bytes]:
    many, few = [b"value %d" % (n % 9) for n in range(400)], [b"v" * 3_000] * 20
    keys = [b"key %d" % n for n in range(400)]
    headers = [{"a": b"%d" % n} for n in range(400)]
    plain = [encode_batch(few, now_ms=1, codec=codec) for codec in ("none", "lz4", "zstd")]
    full = [
        encode_batch(many, keys, "tag", headers, [*range(400)], now_ms=1, codec=codec)
        for codec in ("none", "lz4", "zstd")
    ]
    return plain + full


def _open(batch: bytes) -> None:
    """All of a batch whose checksum may have been made to fit."""
    with contextlib.suppress(DamagedBatch):
        validate_batch(batch, stamped=False)
    columns = open_batch(batch)
    columns.keys()
    columns.values()


def _opened(batch: bytes) -> int:
    """A batch may open to what its head says, which PRODUCE holds against the limits of the topic."""
    try:
        return len(batch) + peek(batch).plain_length
    except DamagedBatch:
        return len(batch)


FILTERS: Final = (
    b"red || green",
    b"WHERE a > 3 AND (KEYS CONTAINS '7' OR NOT b IN ('x', 'y', '')) AND _timestamp BETWEEN 1 AND 2.5",
    b"a WHERE x IS NULL OR y <> -1 OR TAGS = 'z'",
    b"WHERE " + b"(NOT " * 16 + b"a = 1" + b")" * 16,
    b"WHERE " + b" AND ".join([b"(a = 1 OR b = 2)"] * 60),
)


def _read_filter(raw: bytes) -> None:
    read_matcher(raw.decode("utf-8", "replace")[: SMALL_FRAME // 2])


def _rules() -> bytes:
    rules = [
        AccessRule(True, "read", "topic", "orders.*"),
        AccessRule(False, "admin", "cluster", "*"),
    ]
    subscription = AccessRule(True, "manage", "subscription", "orders.eu/billing")
    users = [UserView("alice", [], ["role"], [*rules, subscription] * 20)]
    return msgspec.msgpack.encode(AccessView(True, users, [RoleView("role", rules)]))


def _read_rules(raw: bytes) -> None:
    view = msgspec.msgpack.decode(raw, type=AccessView)
    held = [each.rules for each in view.users] + [each.rules for each in view.roles]
    for rule in chain.from_iterable(held):
        rule_fault(rule)


def _manifest() -> bytes:
    name, segment = "20261124T021500Z", segment_name(3, 1, (40, 2), "entries")
    record = SegmentRecord(name, segment, (40, 2), (60, 0), 7, 100, 5, 2, 20)
    queues = [QueueRecord(n, (40, 2), (60, 0), 7, 8, (55, 1), b"state", [record]) for n in range(9)]
    topics = [TopicRecord("flights", 3, queues)]
    made = Manifest(name, "cluster", "", 1, 2, "0.1.0", StateRecord(9, 10, 11), topics, 110)
    return encode_manifest(made)


def _read_manifest(raw: bytes) -> None:
    with contextlib.suppress(DataDamaged, StartError):
        decode_manifest(raw, "it")
    # As if its checksum had been made to fit.
    begin, end = raw.find(b'"content":') + 10, raw.rfind(b"}")
    content = raw[begin:end]
    decode_manifest(b'{"format":1,"crc":%d,"content":%s}' % (crc32c(content), content), "it")


def _journal() -> bytes:
    header, content = make_header(3, 7, 99)
    for number in range(7, 27):
        operations: list[Operation] = [(1, "log", b"key %d" % n, b"v" * (40 * n)) for n in range(5)]
        entry = JournalEntry(number, 3 * number, operations)
        content += b"".join(encode_record(header, entry, number - 1))
    return content


def _replay(raw: bytes) -> None:
    header = read_header(raw)
    if header is not None:
        found = scan_segment(header, raw)
        for record in found.records:
            decode_operations(raw, record)


def _state() -> bytes:
    return three_brokers().state.snapshot()


def _restore(raw: bytes) -> None:
    StateMachine().restore(raw)


def _windows() -> bytes:
    windows = ProducerWindows()
    for producer in range(50):
        head = peek(
            encode_batch([b"v"], now_ms=1, producer_id=producer, producer_epoch=0, base_sequence=0)
        )
        windows.add(head, Position(producer + 1), 5, Position(0))
    return windows.encode(Position(99))


def _load(raw: bytes) -> None:
    ProducerWindows().load(raw, Position(10))


def _raft_snapshot() -> bytes:
    last = (b"\x00\x90", 9, 2)
    made = raft_snapshot.RaftSnapshot((b"\x01", 8, 2), last, ["a", "b"], b"state" * 200)
    return raft_snapshot.encode_snapshot(made)


def targets() -> dict[str, Target]:
    """Return what is tried besides the requests of `frame_fuzz`, by its name."""
    return {
        "batches": Target(_batches(), _open, (DamagedBatch,), _opened),
        "filters": Target(FILTERS, _read_filter, (InvalidRequest,)),
        "rules": Target([_rules()], _read_rules, (msgspec.DecodeError, UnicodeDecodeError)),
        "manifests": Target([_manifest()], _read_manifest, (DataDamaged, StartError)),
        "journal": Target([_journal()], _replay, ()),
        "states": Target([_state()], _restore, (JournalError,)),
        "windows": Target([_windows()], _load, (DataDamaged,)),
        "snapshots": Target([_raft_snapshot()], raft_snapshot.decode_snapshot, (JournalError,)),
    }


def run(target: Target, rng: random.Random, count: int) -> None:
    """Try so many inputs."""
    for _ in range(count):
        raw = frame_fuzz.mutated(rng.choice(target.seeds), rng.choice(target.seeds), rng)
        most_ms = frame_fuzz.MOST_MS * (1 + target.opened(raw) // SMALL_FRAME)
        spent = cost_ms(partial(_attempt, target, raw), most_ms, frame_fuzz.TRIES)
        assert spent <= most_ms, f"{spent:.1f} ms for {len(raw)} bytes: {raw[:100]!r}"


def _attempt(target: Target, raw: bytes) -> None:
    with contextlib.suppress(*target.refusals):
        target.decode(raw)


def main() -> None:
    """Try inputs of all kinds by turns for some minutes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF)
    given = parser.parse_args()
    known, all_targets = frame_fuzz.seeds(), targets()
    ends, seed = time.monotonic() + 60 * given.minutes, given.seed
    with without_garbage_of_others():
        while time.monotonic() < ends:
            with _named(seed):
                rng = random.Random(seed)
                frame_fuzz.run(rng, 2 * ROUND, known)
                for target in all_targets.values():
                    run(target, rng, ROUND)
            seed += 1
    rounds = seed - given.seed
    kinds = ", ".join(all_targets)
    _say(
        f"{2 * ROUND * rounds:,} requests, and {ROUND * rounds:,} each of {kinds}, were decoded or refused, "
        f"with seeds {given.seed} to {seed - 1}"
    )


@contextlib.contextmanager
def _named(seed: int) -> Iterator[None]:
    """Say how to run again what fails."""
    whole = False
    try:
        yield
        whole = True
    finally:
        if not whole:
            _say(f"ended in: python -m tests.unit.decoder_fuzz --seed {seed}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
