"""A folder of format 1 holds released batches whole, and reads as before."""

from __future__ import annotations

import random
import struct

import pytest

from logboom.nodes.disk.data_folder import FORMAT
from logboom.nodes.log.body_references import STORED, referenced_key
from logboom.nodes.log.keys import log_key, queue_key
from logboom.nodes.log.storage import PUT, Operation, WriteSet
from logboom.wire.head import CRC_START, HEAD_LENGTH, RELEASED_FROM, Attribute
from tests.sim.scenario import Scenario
from tests.sim.world.disk_image import Table
from tests.sim.world.older_format import OLDEST, aged
from tests.sim.world.storage import SETTLED, SimulatedStorage

LENDER, BORROWER = log_key(1, 0, 0, 1), log_key(1, 0, 7)
ROW = queue_key(1, 0, b"b" + BORROWER[-12:])
RECORD = queue_key(1, 0, b"q")


def parked(body: bytes) -> bytes:
    return bytes(HEAD_LENGTH) + body


def released(length: int) -> bytes:
    """An entry that stands without its body."""
    entry = bytearray(STORED)
    struct.pack_into("<H", entry, CRC_START, Attribute.RELEASED)
    struct.pack_into("<I", entry, 88, length)
    RELEASED_FROM.pack_into(entry, HEAD_LENGTH, 0, 1)
    assert referenced_key(BORROWER, bytes(entry)) == LENDER
    return bytes(entry)


def filled(later: int) -> SimulatedStorage:
    """A store with a borrower, and so many write sets behind it."""
    storage = SimulatedStorage("s")
    writes = WriteSet()
    writes.put("log", LENDER, parked(b"body"))
    writes.put("log", BORROWER, released(4))
    writes.put("state", ROW, b"x")
    writes.put("state", RECORD, b"record")
    storage.write(writes)
    for number in range(later):
        writes = WriteSet()
        writes.put("state", RECORD, b"%d" % number)
        storage.write(writes)
    storage.sync()
    storage.crash(random.Random(1))
    return storage


@pytest.mark.parametrize("later", [1, SETTLED + 3])
def test_what_is_read_is_the_same_and_stands_whole(later: int) -> None:
    storage = filled(later)
    before = storage.content("log")
    assert storage.grow_old() == 1
    assert storage.format == OLDEST
    assert storage.content("log") == before
    assert b"body" in before[BORROWER]
    assert list(storage.content("state")) == [RECORD]
    assert storage.on_disk(1, 0, 7) == before[BORROWER]
    gone = WriteSet()
    gone.delete("log", LENDER)
    storage.write(gone)
    assert storage.content("log") == {BORROWER: before[BORROWER]}
    storage.open()
    assert storage.format == FORMAT


@pytest.mark.parametrize("seed", range(10))
def test_damage_takes_as_much_of_it_as_of_a_newer_one(seed: int) -> None:
    newer, older = filled(SETTLED - 2), filled(SETTLED - 2)
    older.grow_old()
    assert newer.damage(random.Random(seed)) == older.damage(random.Random(seed))
    assert newer.content("log") == older.content("log")
    assert newer.get("state", RECORD) == older.get("state", RECORD)


def test_a_body_is_that_of_the_time_when_it_was_released() -> None:
    sets: list[list[Operation]] = [
        [(PUT, "log", LENDER, parked(b"one!")), (PUT, "log", BORROWER, released(4))],
        [(PUT, "log", LENDER, parked(b"two!")), (PUT, "state", RECORD, b"")],
    ]
    bodies, written = aged(Table(), Table(), sets)
    assert bodies == 1
    assert [len(operations) for operations in written] == [2, 2]
    assert b"one!" in written[0][1][3]


def test_some_brokers_are_upgraded_and_none_of_a_run_with_flipped_bits() -> None:
    worlds = [Scenario(seed, rot=rot).world for seed in range(10) for rot in (False, True)]
    plain, rot = (
        {machine.old_until for world in worlds[first::2] for machine in world.nodes("broker")}
        for first in (0, 1)
    )
    assert {0, 2} < plain
    assert rot == {0}
