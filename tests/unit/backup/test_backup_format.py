"""Manifests and segment files: whatever is damaged, truncated or newer is noticed and named."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.backup.backup_format import (
    FORMAT,
    HEADER_BYTES,
    MOST_BLOCK_BYTES,
    Manifest,
    Progress,
    QueueRecord,
    SegmentHead,
    SegmentReader,
    SegmentRecord,
    SegmentWriter,
    StateRecord,
    TopicRecord,
    decode_manifest,
    decode_progress,
    encode_copy,
    encode_manifest,
    position_after,
    segment_name,
    split_copies,
)
from logboom.wire.batch import encode_batch, encode_control, split_entries, stamp
from logboom.wire.errors import DamagedBatch, DataDamaged, StartError
from logboom.wire.head import ControlKind
from logboom.wire.validation import crc32c

HEADER = SegmentHead("entries", 3, 1, (40, 2))
BLOCKS = [b"first block", b"second"]


def segment(header: SegmentHead = HEADER) -> bytes:
    """A segment file of two blocks."""
    file = io.BytesIO()
    writer = SegmentWriter(file, header)
    for number, block in enumerate(BLOCKS):
        writer.write(block, crc32c(block), 1, 10, (50 + 10 * number, 0))
    writer.finish()
    assert (writer.size, writer.crc) == (len(file.getvalue()), crc32c(file.getvalue()))
    return file.getvalue()


def read(content: bytes) -> tuple[SegmentReader, list[bytes]]:
    """All of a segment file."""
    reader = SegmentReader(io.BytesIO(content), "the file")
    return reader, list(reader.blocks())


def manifest(**changes: Any) -> Manifest:
    """A manifest of one queue."""
    name = segment_name(3, 1, (40, 2), "entries")
    record = SegmentRecord("20261124T021500Z", name, (40, 2), (60, 0), 7, 100, 5, 2, 20)
    queue = QueueRecord(1, (40, 2), (60, 0), 7, 8, (55, 1), b"\x00state", [record])
    topic = TopicRecord("flights", 3, [queue])
    state = StateRecord(9, 10, 11)
    made = Manifest("20261124T021500Z", "cluster", "", 1, 2, "0.1.0", state, [topic], 110)
    return msgspec.structs.replace(made, **changes)


def test_a_segment_file_is_read_as_it_was_written() -> None:
    reader, blocks = read(segment())
    assert (reader.header, blocks) == (HEADER, BLOCKS)
    assert reader.totals == (2, 20, (60, 0))
    assert (reader.size, reader.crc) == (len(segment()), crc32c(segment()))


@given(st.integers(0, len(segment()) - 1))
def test_a_truncated_file_is_named(length: int) -> None:
    with pytest.raises(DataDamaged, match="the file is truncated"):
        read(segment()[:length])


@given(st.integers(0, len(segment()) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at: int, bit: int) -> None:
    content = bytearray(segment())
    content[at] ^= 1 << bit
    with pytest.raises((DataDamaged, StartError), match="the file"):
        read(bytes(content))


def test_what_follows_the_end_of_a_file_is_noticed() -> None:
    with pytest.raises(DataDamaged, match="something follows its end"):
        read(segment() + b"x")


def test_a_block_of_an_impossible_length_is_not_read() -> None:
    length = (MOST_BLOCK_BYTES + 1).to_bytes(4, "little")
    with pytest.raises(DataDamaged, match=f"a block of {MOST_BLOCK_BYTES + 1} bytes"):
        read(segment()[:HEADER_BYTES] + length + bytes(4))


def test_a_file_of_a_newer_format_is_refused() -> None:
    content = bytearray(segment())
    content[8] = FORMAT + 1
    with pytest.raises(StartError, match="the file has format 2"):
        read(bytes(content))


def test_a_manifest_is_read_as_it_was_written() -> None:
    made = manifest()
    assert decode_manifest(encode_manifest(made), "m") == made
    assert (made.size, made.messages, made.needs()) == (110, 20, {"20261124T021500Z"})
    assert made.queue(3, 1) == made.topics[0].queues[0]
    assert made.queue(3, 0) is None
    progress = Progress("20261124T021500Z", "cluster", "", 1, "me", 2, made.topics)
    assert decode_progress(encode_manifest(progress), "p") == progress


@given(st.data())
def test_a_changed_manifest_is_noticed(data: st.DataObject) -> None:
    content = bytearray(encode_manifest(manifest()))
    at = data.draw(st.integers(0, len(content) - 2))
    content[at] ^= 1 << data.draw(st.integers(0, 6))
    with pytest.raises((DataDamaged, StartError)):
        decode_manifest(bytes(content), "m")


@pytest.mark.parametrize(
    ("backup", "file"),
    [
        ("..", segment_name(3, 1, (40, 2), "entries")),
        ("20261124T021500Z", "../20261125T021500Z/manifest.json"),
        ("20261124T021500Z", "manifest.json"),
        ("20261124T021500Z", "/etc/passwd"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(backup: str, file: str) -> None:
    made = manifest()
    (queue,) = made.topics[0].queues
    record = msgspec.structs.replace(queue.segments[0], backup=backup, file=file)
    for changes in ({"segments": [record]}, {"copies": [record]}):
        topic = TopicRecord("flights", 3, [msgspec.structs.replace(queue, **changes)])
        with pytest.raises(DataDamaged, match=r"m is damaged: .* is no segment file"):
            decode_manifest(encode_manifest(manifest(topics=[topic])), "m")
        progress = Progress("20261124T021500Z", "cluster", "", 1, "me", 2, [topic])
        with pytest.raises(DataDamaged, match=r"p is damaged: .* is no segment file"):
            decode_progress(encode_manifest(progress), "p")


def test_a_clock_that_is_ahead_does_not_free_a_backup() -> None:
    progress = Progress("20261124T021500Z", "cluster", "", 1, "me", 1_000_000, [])
    for now, written in ((995, True), (1_005, True), (1_061, False), (939, False)):
        assert progress.is_written(now) is written
    assert not msgspec.structs.replace(progress, owner="").is_written(1_000)


def test_a_manifest_of_a_newer_format_is_refused_whatever_else_it_holds() -> None:
    newer = msgspec.json.encode({"format": FORMAT + 1, "something": "new"})
    with pytest.raises(StartError, match="use the version that wrote") as error:
        decode_manifest(newer, "m")
    assert error.value.code == "NEWER_FORMAT"


def test_entries_and_copies_are_taken_apart_by_their_lengths() -> None:
    batch = stamp(encode_batch([b"a", b"b"], now_ms=5), 10, 1, 5)
    control = stamp(encode_control(ControlKind.CURSOR_DELTA, b"\x90"), 12, 1, 5)
    assert [bytes(each) for each in split_entries(batch + control)] == [batch, control]
    copies = encode_copy(b"\x01", batch) + encode_copy(b"", batch)
    assert [(bits, bytes(each)) for bits, each in split_copies(copies)] == [
        (b"\x01", batch),
        (b"", batch),
    ]
    for split, content in ((split_entries, batch), (split_copies, encode_copy(b"", batch))):
        with pytest.raises(DamagedBatch):
            list(split(content + content[:-1]))
    assert position_after((10, 3), 2) == (12, 0)
    assert position_after((10, 3), 0) == (10, 4)
