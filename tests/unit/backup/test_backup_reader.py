"""Reading a backup back: what comes out is what counts at the cut, or the fault is named."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from logboom.backup.backup_checks import BackupCheck, verify
from logboom.backup.backup_format import (
    MANIFEST,
    PROGRESS,
    STATE,
    LogPosition,
    Manifest,
    Progress,
    QueueRecord,
    SegmentHead,
    SegmentRecord,
    SegmentWriter,
    StateRecord,
    TopicRecord,
    encode_copy,
    encode_manifest,
    position_after,
    segment_name,
)
from logboom.backup.backup_reader import BackupReader
from logboom.backup.object_store import BackupStore
from logboom.wire.backup_messages import ClusterSnapshot
from logboom.wire.batch import encode_batch, encode_control, peek, stamp
from logboom.wire.cursor_deltas import CursorDelta, decode_deltas, encode_deltas
from logboom.wire.errors import DataDamaged, InvalidRequest
from logboom.wire.head import HEAD_LENGTH, ControlKind
from logboom.wire.validation import crc32c, validate_batch

ID = "20261124T021500Z"
EMPTY = ClusterSnapshot(5, "cluster", 9, 2, 1, 1, [], [], 1, [], [], [], [])


def messages(offset: int) -> bytes:
    """A batch of two messages."""
    return stamp(encode_batch([b"a", b"b"], now_ms=5), offset, 3, 7)


def acked(offset: int, floor: int) -> bytes:
    """An acknowledgement of all below `floor`."""
    body = encode_deltas([CursorDelta("s", "acked", floor)])
    return stamp(encode_control(ControlKind.CURSOR_DELTA, body), offset, 3, 7)


LOG = [messages(0), acked(2, 1), messages(2), acked(4, 2), acked(4, 3), messages(4)]


class Written:
    """A backup of one queue in memory, in segment files of three entries each."""

    def __init__(self, log: list[bytes], cursors_end: LogPosition = (99, 0)) -> None:
        self.store = BackupStore(f"memory://{uuid.uuid4().hex}")
        self.reader = BackupReader(self.store)
        at: LogPosition = (0, 0)
        segments = []
        for number in range(0, len(log), 3):
            record = self.segment(at, log[number : number + 3])
            segments.append(record)
            at = record.end
        queue = QueueRecord(0, (0, 0), at, 3, 3, cursors_end, b"", segments, [self.copies()])
        state = msgspec.msgpack.encode(EMPTY)
        self.store.write(f"{ID}/{STATE}", state)
        described = StateRecord(5, len(state), crc32c(state))
        topics = [TopicRecord("flights", 1, [queue])]
        self.manifest = Manifest(ID, "cluster", "", 1, 2, "0.1.0", described, topics, 0)
        self.store.write(f"{ID}/{MANIFEST}", encode_manifest(self.manifest))

    @property
    def queue(self) -> QueueRecord:
        """What the manifest says of the queue."""
        return self.manifest.topics[0].queues[0]

    def segment(self, begin: LogPosition, entries: list[bytes]) -> SegmentRecord:
        """Write a segment file of one block for each entry."""
        name = segment_name(1, 0, begin, "entries")
        with self.store.create(f"{ID}/{name}") as file:
            writer = SegmentWriter(file, SegmentHead("entries", 1, 0, begin))
            at = begin
            for entry in entries:
                at = position_after(at, peek(entry).count)
                writer.write(entry, crc32c(entry), 1, peek(entry).count, at)
            writer.finish()
        return writer.record(ID, name, 3)

    def copies(self) -> SegmentRecord:
        """Write a file with a survivor."""
        name = segment_name(1, 0, (0, 0), "copies")
        content = encode_copy(b"\x01", messages(0))
        with self.store.create(f"{ID}/{name}") as file:
            writer = SegmentWriter(file, SegmentHead("copies", 1, 0, (0, 0)))
            writer.write(content, crc32c(content), 1, 0, (0, 0))
            writer.finish()
        return writer.record(ID, name, -1)

    def log(self, begin: LogPosition | None = None) -> bytes:
        """The log as it is restored."""
        return b"".join(block.content for block in self.reader.entries(1, self.queue, begin))

    def faults(self) -> list[str]:
        """What verification says."""
        return [f"{each.file}: {each.fault}" for each in self.read().faults]

    def read(self) -> BackupCheck:
        """The result of verification."""
        return verify(self.reader, self.reader.manifest(ID))

    def change(self, name: str, content: bytes) -> None:
        """Replace a file."""
        self.store.write(f"{ID}/{name}", content)


def test_a_backup_is_read_as_it_was_written() -> None:
    written = Written(LOG)
    assert written.log() == b"".join(LOG)
    assert [block.begin for block in written.reader.entries(1, written.queue)][:3] == [
        (0, 0),
        (2, 0),
        (2, 1),
    ]
    assert written.reader.state(written.manifest) == EMPTY
    copies = list(written.reader.copies(1, written.queue))
    assert [(each.bits, bytes(each.batch)) for each in copies] == [(b"\x01", messages(0))]
    check = written.read()
    assert (check.faults, check.files, check.entries) == ([], 4, 7)


def test_reading_goes_on_from_an_entry() -> None:
    written = Written(LOG)
    assert written.log((4, 1)) == b"".join(LOG[4:])
    assert written.log((2, 0)) == b"".join(LOG[1:])
    assert written.log((6, 0)) == b""


def test_k3_acknowledgements_after_the_cut_do_not_count() -> None:
    written = Written(LOG, cursors_end=(4, 0))
    found = b"".join(block.content for block in written.reader.entries(1, written.queue))
    early = b"".join(LOG[:3])
    assert found.startswith(early)
    rest = found[len(early) :]
    for number in (3, 4):
        head = peek(rest)
        entry = rest[: head.length]
        assert validate_batch(entry) == head
        assert decode_deltas(entry[HEAD_LENGTH:]) == []
        before = peek(LOG[number])
        assert (head.base_offset, head.leader_epoch, head.append_time_ms) == (
            before.base_offset,
            before.leader_epoch,
            before.append_time_ms,
        )
        rest = rest[head.length :]
    assert rest == LOG[5]


def test_k4_a_damaged_block_is_not_restored() -> None:
    written = Written(LOG)
    name = written.queue.segments[0].file
    content = bytearray(written.store.read(f"{ID}/{name}"))
    content[60] ^= 1
    written.change(name, bytes(content))
    with pytest.raises(DataDamaged, match="is damaged at byte"):
        written.log()


def test_every_fault_names_its_file() -> None:
    written = Written(LOG)
    first, second = (record.file for record in written.queue.segments)
    whole = {name: written.store.read(f"{ID}/{name}") for name in (first, second, STATE)}

    def only(name: str, text: str) -> None:
        (fault,) = written.faults()
        assert name in fault
        assert text in fault
        for each, content in whole.items():
            written.change(each, content)
        assert written.faults() == []

    written.change(first, whole[first][:-1])
    only(first, "truncated")
    written.change(second, whole[second][:70] + b"?" + whole[second][71:])
    only(second, "damaged")
    written.store.remove(f"{ID}/{first}")
    only(first, "missing")
    written.change(second, whole[first])
    only(second, "another file")
    written.change(STATE, whole[STATE][:-1])
    only(STATE, "truncated")
    written.change(STATE, whole[STATE][:-1] + b"?")
    only(STATE, "damaged")
    written.store.remove(f"{ID}/{STATE}")
    only(STATE, "missing")
    written.change("1/0/copy of a file.seg", whole[first])
    (fault,) = written.faults()
    assert "1/0/copy of a file.seg: no manifest names this file" in fault


def test_files_of_another_length_than_the_manifest_names_are_noticed() -> None:
    written = Written(LOG)
    # A whole file at the same position, with fewer entries: of an earlier try.
    written.segment((0, 0), LOG[:2])
    assert "another file than the manifest names" in written.faults()[0]
    with pytest.raises(DataDamaged, match="another file"):
        written.log()


def test_another_file_of_the_same_length_is_noticed() -> None:
    written = Written(LOG)
    other = stamp(encode_batch([b"c", b"d"], now_ms=5), 0, 3, 7)
    record = written.segment((0, 0), [other, *LOG[1:3]])
    known = written.queue.segments[0]
    assert (record.size, record.end) == (known.size, known.end)
    with pytest.raises(DataDamaged, match="another file than the manifest names"):
        written.log()


def test_a_missing_entry_within_a_file_is_noticed() -> None:
    written = Written([messages(0), messages(4), messages(6)])
    (fault,) = written.faults()
    assert "an entry is missing at offset 2" in fault


def test_the_manifest_of_another_backup_is_refused() -> None:
    written = Written(LOG)
    later = "20261125T021500Z"
    written.store.write(f"{later}/{MANIFEST}", encode_manifest(written.manifest))
    with pytest.raises(DataDamaged, match=f"is that of backup {ID}"):
        written.reader.manifest(later)


def test_ranges_with_gaps_are_noticed() -> None:
    written = Written(LOG)
    queue = written.queue
    for segments, text in (
        (queue.segments[1:], "missing"),
        (queue.segments[:1], "ends at"),
        ([queue.segments[0], *queue.segments], "doubled"),
    ):
        wrong = msgspec.structs.replace(queue, segments=segments)
        topics = [TopicRecord("flights", 1, [wrong])]
        manifest = msgspec.structs.replace(written.manifest, topics=topics)
        written.store.write(f"{ID}/{MANIFEST}", encode_manifest(manifest))
        assert any(text in fault for fault in written.faults())
        if text != "ends at":
            with pytest.raises(DataDamaged, match="begins at"):
                list(written.reader.entries(1, wrong))


def test_what_is_not_there_is_said() -> None:
    written = Written(LOG)
    with pytest.raises(InvalidRequest, match="lists 1"):
        written.reader.manifest("20200101T000000Z")
    empty = BackupReader(BackupStore(f"memory://{uuid.uuid4().hex}"))
    assert (empty.ids(), empty.unfinished()) == ([], [])
    with pytest.raises(InvalidRequest, match="logboom backup create"):
        empty.manifest()


def test_the_progress_of_another_backup_is_refused() -> None:
    store = BackupStore(f"memory://{uuid.uuid4().hex}")
    reader = BackupReader(store)
    other = Progress("20261123T021500Z", "cluster", "", 1, "me", 2, [])
    store.write(f"{ID}/{PROGRESS}", encode_manifest(other))
    with pytest.raises(DataDamaged, match="is that of backup 20261123T021500Z"):
        reader.progress(ID)


def test_unfinished_backups_that_somebody_writes_are_known() -> None:
    store = BackupStore(f"memory://{uuid.uuid4().hex}")
    reader = BackupReader(store)
    for second, owner in enumerate(("me", "", "me")):
        backup = f"20261124T02150{second}Z"
        progress = Progress(backup, "cluster", "", 1, owner, 1_000_000 * (second + 1), [])
        store.write(f"{backup}/{PROGRESS}", encode_manifest(progress))
    store.write(f"20261124T021509Z/{PROGRESS}", b"damaged")
    begun = reader.all_progress()
    assert [each.id for each in begun if each.is_written(1_001)] == ["20261124T021500Z"]
