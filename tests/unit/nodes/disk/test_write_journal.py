"""The journal on a disk whose power fails between any two steps, and whose bits flip."""

from __future__ import annotations

import random
from functools import partial

import pytest

from logboom.nodes.disk import write_journal
from logboom.nodes.disk.journal_records import (
    HEADER_LENGTH,
    PAGE,
    RECORDS_START,
    JournalEntry,
    JournalReplay,
    SegmentContent,
    SegmentHeader,
    read_header,
    scan_segment,
)
from logboom.nodes.disk.write_journal import WriteJournal, find_segments, sync_segments
from logboom.nodes.log.storage import DELETE, DELETE_RANGE, PUT, Operation
from tests.thorough import seeds
from tests.unit.nodes.disk.failing_disk import FailingDisk, PowerFailure

SEGMENT = 40_000


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a few pages, so that they are used again and again."""
    monkeypatch.setattr(write_journal, "SEGMENT_BYTES", SEGMENT)
    monkeypatch.setattr(write_journal, "STEP_BYTES", 3 * PAGE)
    monkeypatch.setattr(write_journal, "KEPT_FILES", 2)


class Lost(Exception):
    """The store is suspect."""


class Store:
    """A store as `RocksStorage` is one, whose database is a list of write sets."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = FailingDisk(rng)
        self.flushed: list[list[Operation]] = []
        """What the database has on disk."""
        self.start = 0
        """As `_SEGMENT` in the database."""
        self.written: list[list[Operation]] = []
        """Every write set of today's history, whether it survives or not."""
        self.synced = 0
        """Writes that were synced: none of them may ever be missing."""
        self.noted = 0
        """The file `synced`, which may be older after a power failure."""
        self._waiting: list[JournalEntry] = []
        self._known = 0

    def open(self) -> None:
        """Open it again, whatever has happened.

        Raises:
            Lost: not all that was synced is there; it goes on with what is left.
        """
        segments, unknown = find_segments(self.disk, self.start)
        sync_segments(self.disk, segments)
        replay = JournalReplay(len(self.flushed))
        found = list(self.flushed)
        for segment in segments:
            for number, operations in replay.take(segment.header, self.disk.read(segment.name)):
                found.append(operations)
                assert number == len(found)
                if self.rng.random() < 0.05:
                    self._flush(found)
        assert found == self.written[: len(found)], "something else came back"
        if unknown or max(replay.proven, self.noted) > len(found):
            raise Lost
        ordinal = max((each.header.ordinal + 1 for each in segments), default=max(1, self.start))
        self._flush(found)
        self.disk.step()
        self.start = ordinal
        self.journal = WriteJournal(
            self.disk, ordinal, len(found), lambda: self.rng.randrange(1, 1 << 32)
        )
        # Only now: an opening that was cut off may find the rest once more, or not.
        assert len(found) >= self.synced
        self.written = found
        self.synced = self.noted = self._known = len(found)
        self._waiting = []

    def _flush(self, found: list[list[Operation]]) -> None:
        self.disk.step()
        self.flushed = list(found)

    def write(self, size: int = 0) -> None:
        """One write set, of one of a few sizes, so that old records lie where new ones end."""
        number = len(self.written) + 1
        size = size or self.rng.choice((10, 10, 700, 700, 5_000, 9_000))
        value = self.rng.randbytes(8) * (size // 8)
        kind = self.rng.choice((PUT, PUT, PUT, DELETE, DELETE_RANGE))
        operations: list[Operation] = [
            (PUT, "log", b"%d" % number, value),
            (kind, "state", b"begin", b"" if kind == DELETE else b"end"),
        ]
        self.written.append(operations)
        self._waiting.append(JournalEntry(number, number * 3, operations))
        if self.rng.random() < 0.04:
            # A memtable is full: all families are flushed, synced or not.
            self._flush(self.written)
        if self.rng.random() < 0.3:
            self._known = len(self.flushed)

    def sync(self) -> None:
        """What the committer does."""
        if self._waiting:
            entries, self._waiting = self._waiting, []
            self.journal.write(entries, lambda: self._known)
            self.synced = entries[-1].number
            if self.rng.random() < 0.5:
                self.noted = self.synced

    def live(self, turns: int) -> None:
        """Write and sync."""
        for _ in range(turns):
            for _ in range(self.rng.choice((1, 1, 3))):
                self.write()
            if self.rng.random() < 0.7:
                self.sync()


@pytest.mark.parametrize("seed", seeds(150))
def test_power_fails_between_any_two_steps_and_nothing_that_was_synced_goes(seed: int) -> None:
    rng = random.Random(seed)
    store = Store(rng)
    store.open()
    for _ in range(rng.randint(2, 8)):
        # Some of these hit the next opening, which is begun again.
        store.disk.left = rng.choice((rng.randint(1, 12), rng.randint(1, 300)))
        try:
            store.live(rng.randint(1, 80))
            if rng.random() < 0.2:
                store.open()
        except PowerFailure:
            pass
        store.disk.kill() if rng.random() < 0.3 else store.disk.fail()
        for _ in range(5):
            store.disk.left = rng.choice((None, rng.randint(1, 12)))
            try:
                # It raises Lost if it takes what was never synced for damage.
                store.open()
                break
            except PowerFailure:
                store.disk.fail()
        else:
            store.disk.left = None
            store.open()


def test_files_are_used_again() -> None:
    store = Store(random.Random(1))
    store.open()
    store.live(600)
    assert 2 <= len(store.disk.files) <= 12
    headers = [read_header(store.disk.read(name)) for name in store.disk.names()]
    ordinals = [header.ordinal for header in headers if header is not None]
    assert max(ordinals) > 3 * len(ordinals)
    assert all(len(file.current) < 4 * SEGMENT for file in store.disk.files.values())


def test_q13_no_segment_is_used_again_before_rocksdb_has_its_writes() -> None:
    store = Store(random.Random(19))
    store.open()
    for number in range(1, 61):
        operations: list[Operation] = [(PUT, "log", b"%d" % number, bytes(5_000))]
        store.written.append(operations)
        # RocksDB has flushed a third of them, and says so late.
        store.flushed = store.written[:20]
        known = [0, 20][number > 40]
        store.journal.write([JournalEntry(number, number, operations)], partial(int, known))
        store.synced = number
    headers = [read_header(store.disk.read(name)) for name in store.disk.names()]
    assert max(header.ordinal for header in headers if header is not None) > len(headers)
    store.disk.fail()
    store.open()
    assert len(store.written) == 60


@pytest.mark.parametrize("proof", ["noted", "in the journal"])
@pytest.mark.parametrize("seed", seeds(150))
def test_q13_a_flipped_bit_is_noticed_if_it_costs_what_was_synced(seed: int, proof: str) -> None:
    """`in the journal`: the file `synced` is that of long ago, as after a power failure."""
    rng = random.Random(f"{seed} {proof}")
    store = Store(rng)
    store.open()
    store.live(rng.randint(2, 60))
    store.sync()
    groups = store.synced
    store.write()
    store.sync()
    store.disk.fail()
    store.noted = store.synced if proof == "noted" else len(store.flushed)
    name = rng.choice(store.disk.names())
    content = store.disk.read(name)
    header = read_header(content)
    assert header is not None
    end = scan_segment(header, content).end
    at = rng.choice((rng.randrange(end), rng.randrange(HEADER_LENGTH), rng.randrange(len(content))))

    def flip(held: bytearray) -> None:
        held[at] ^= 1 << rng.randrange(8)

    store.disk.change(name, flip)
    before = store.synced
    if proof != "noted":
        # Only what a later record, or segment, proves can be noticed: not the last sync.
        store.synced = min(groups, store.synced)
    try:
        store.open()
    except Lost:
        return
    assert len(store.written) >= (before if proof == "noted" else groups)


@pytest.mark.parametrize("region", ["first header", "second header", "marker", "crc", "length"])
@pytest.mark.parametrize("which", [0, 3, 9])
def test_q13_every_part_of_a_record_is_covered(region: str, which: int) -> None:
    store = Store(random.Random(region))
    store.open()
    for _ in range(10):
        store.write(700)
        store.sync()
    (name,) = store.disk.names()
    content = store.disk.read(name)
    header = read_header(content)
    assert header is not None
    record = scan_segment(header, content).records[which]
    begin = record.at - 36
    at = {
        "first header": 3,
        "second header": PAGE + 9,
        "marker": begin + 1,
        "crc": begin + 5,
        "length": begin + 9,
    }[region]

    def flip(held: bytearray) -> None:
        held[at] ^= 4

    store.disk.change(name, flip)
    store.flushed = []
    store.noted = 10
    if region.endswith("header"):
        store.open()
        assert store.synced == 10
        return
    with pytest.raises(Lost):
        store.open()
    found = scan_segment(header, store.disk.read(name))
    assert len(found.records) == which
    assert [each.number for each in found.hidden] == list(range(which + 2, 11))
    assert found.torn


@pytest.mark.parametrize("at", [*range(8, 36, 3), 36, 40, 300])
def test_q13_each_byte_of_a_record_is_under_its_checksum(at: int) -> None:
    store = Store(random.Random(3))
    store.open()
    for _ in range(3):
        store.write(700)
    store.sync()
    (name,) = store.disk.names()
    content = bytearray(store.disk.read(name))
    header = read_header(bytes(content))
    assert header is not None
    content[scan_segment(header, bytes(content)).records[0].at - 36 + at] ^= 0x80
    found = scan_segment(header, bytes(content))
    assert found.records == []
    assert [each.number for each in found.hidden] == [2, 3]


def test_q13_a_segment_whose_headers_are_both_gone_is_missed() -> None:
    store = Store(random.Random(5))
    store.open()
    while len(store.disk.files) < 3:
        store.write()
        store.sync()
    store.flushed = []
    store.noted = 0
    second = sorted(store.disk.names())[1]

    def wipe(held: bytearray) -> None:
        held[:RECORDS_START] = bytes(RECORDS_START)

    store.disk.change(second, wipe)
    with pytest.raises(Lost):
        store.open()


def test_a_full_disk_and_a_failed_sync_end_the_journal_and_lose_nothing() -> None:
    for failure in ("room", "sync"):
        store = Store(random.Random(7))
        store.open()
        store.live(20)
        store.sync()
        kept = store.synced
        if failure == "room":
            store.disk.room = 5_000
        else:
            store.disk.refuses = True
        for _ in range(100):
            store.write()
            try:
                store.sync()
            except OSError:
                break
            kept = store.synced
        else:
            pytest.fail("the disk takes everything")
        store.disk.room, store.disk.refuses = None, False
        store.disk.fail()
        store.open()
        assert store.synced >= kept


def test_records_of_an_earlier_life_do_not_come_back() -> None:
    """What was not synced lies in the file intact; the next life writes records of the same size."""
    store = Store(random.Random(11))
    store.open()
    # Of exactly one page, so that nothing behind it is overwritten.
    whole = PAGE - 36 - 10 - 4

    def entry(number: int, value: bytes) -> JournalEntry:
        operations: list[Operation] = [(PUT, "log", b"%04d" % number, value)]
        store.written[number - 1 :] = [operations]
        return JournalEntry(number, number, operations)

    store.disk.left = 3
    with pytest.raises(PowerFailure):
        store.journal.write([entry(number, b"o" * whole) for number in (1, 2, 3)], lambda: 0)
    store.disk.kill()
    (name,) = store.disk.names()
    header = read_header(store.disk.read(name))
    assert header is not None
    first, *_ = scan_segment(header, store.disk.read(name)).records

    def tear(held: bytearray) -> None:
        held[first.at] ^= 1

    store.disk.change(name, tear)
    store.open()
    assert store.written == []
    store.journal.write([entry(1, b"n" * whole)], lambda: 0)
    assert b"oooo" in store.disk.read(name)
    store.disk.kill()
    store.open()
    assert [operations[0][3] for operations in store.written] == [b"n" * whole]


def two_segments(store: Store) -> list[tuple[str, SegmentHeader, SegmentContent]]:
    """Open the store and write two segments; return name, header and content of each."""
    store.open()
    while len(store.disk.files) < 2:
        store.write(5_000)
        store.sync()
    found = []
    for name in store.disk.names():
        header = read_header(store.disk.read(name))
        assert header is not None
        found.append((name, header, scan_segment(header, store.disk.read(name))))
    return found


def test_q13_the_start_of_a_segment_proves_that_the_one_before_was_synced() -> None:
    store = Store(random.Random(13))
    for name, _, content in two_segments(store):
        last = content.records[-1]

        def flip(held: bytearray, at: int = last.at) -> None:
            held[at] ^= 1

        store.disk.change(name, flip)
    store.flushed, store.noted = [], 0
    with pytest.raises(Lost):
        store.open()


@pytest.mark.parametrize("wiped", [0, PAGE])
def test_q13_a_header_of_which_one_copy_is_wiped_and_one_damaged_is_missed(wiped: int) -> None:
    """Nothing else proves that the last segment was there."""
    store = Store(random.Random(5))
    two_segments(store)
    store.flushed, store.noted = [], 0
    last = store.disk.names()[-1]

    def spoil(held: bytearray) -> None:
        held[wiped : wiped + PAGE] = bytes(PAGE)
        held[PAGE - wiped] ^= 1

    store.disk.change(last, spoil)
    assert find_segments(store.disk, store.start).unknown == [last]
    with pytest.raises(Lost):
        store.open()


def test_what_lies_behind_a_loss_is_over_once_the_store_goes_on() -> None:
    """Killed when the loss is settled in the database, and before the old segments are wiped."""
    store = Store(random.Random(17))
    third = next(
        content for _, header, content in two_segments(store) if header.first == 1
    ).records[2]
    store.disk.change("000001.journal", lambda held: held.__setitem__(third.at, 0xFF))
    store.flushed = []
    with pytest.raises(Lost):
        store.open()
    # As `RocksStorage` does: no later write gets a number of before.
    count = len(store.written)
    store.flushed = [*store.written[:2], *[[] for _ in range(count - 2)]]
    store.written = list(store.flushed)
    store.start, store.synced, store.noted = 3, count, count
    assert find_segments(store.disk, store.start) == ([], [])
    store.open()
    store.write(700)
    store.sync()
    store.disk.fail()
    store.open()
    assert len(store.written) == count + 1
