"""The entry as a whole: what is written is read, and hostile bytes are named, never obeyed."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.batch import (
    HEAD_LENGTH,
    MAX_BODY,
    MAX_COUNT,
    STAMP_LENGTH,
    Attribute,
    ControlKind,
    control_body,
    encode_batch,
    encode_control,
    may_contain_tag,
    open_batch,
    peek,
    release,
    released_from,
    set_producer,
    stamp,
    validate_batch,
)
from logboom.wire.compression import Codec
from logboom.wire.errors import DamagedBatch, InvalidRequest
from logboom.wire.hashing import key_summary, tag_summary
from logboom.wire.head import sequence_after
from tests.unit.wire.batches import CODECS, INT64, Plain, forge, plains, sealed

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOL = Path(__file__).parents[3] / "docs" / "PROTOCOL.md"

SMALL = Plain(
    [b"one", None, b"three"], [b"k", b"k", None], ["late", None, "early"], [None] * 3, [5, 9, 7]
).encode()
STAMPED = stamp(SMALL, 120, 7, 1_700_000_000_000)


def bitwise_crc32c(data: bytes) -> int:
    """The checksum by its definition, as another client would first write it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def all_of(batch: bytes | memoryview) -> Plain:
    columns = open_batch(batch)
    return Plain(
        columns.values(),
        columns.keys(),
        columns.tags(),
        columns.all_headers(),
        columns.timestamps(),
    )


@given(plains(), CODECS)
def test_what_is_encoded_is_read(plain: Plain, codec: str) -> None:
    batch = plain.encode(codec, producer_id=9, producer_epoch=3, base_sequence=77)
    head = validate_batch(batch, stamped=False)
    assert all_of(batch) == plain
    assert head.count == len(plain.values)
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (9, 3, 77)
    assert head.first_timestamp_ms == plain.timestamps_ms[0]
    assert head.max_timestamp_ms == max(plain.timestamps_ms)
    assert head.key_summary == key_summary(plain.keys)
    assert head.tag_summary == tag_summary([tag for tag in plain.tags if tag is not None])


@given(plains(), st.integers(0, 2**62), st.integers(0, 2**32 - 1), INT64)
def test_a_stamp_changes_the_first_24_bytes_alone(
    plain: Plain, offset: int, epoch: int, now_ms: int
) -> None:
    batch = plain.encode()
    stamped = stamp(memoryview(batch), offset, epoch, now_ms)
    assert stamped[STAMP_LENGTH:] == batch[STAMP_LENGTH:]
    head = validate_batch(memoryview(stamped))
    assert (head.base_offset, head.leader_epoch, head.append_time_ms) == (offset, epoch, now_ms)
    assert head.last_offset == offset + len(plain.values) - 1
    assert head.next_offset == open_batch(stamped).next_offset
    assert all_of(memoryview(stamped)) == plain
    assert stamp(stamped, 0, 0, 0) == stamp(batch, 0, 0, 0)


def test_the_layout_is_the_documented_one() -> None:
    """Golden bytes: a change here is another version of the format."""
    batch = encode_batch(
        [b"abc", b"de"],
        [b"k1", None],
        ["late", "late"],
        [{"h": b"v"}, None],
        [1000, 2000],
        now_ms=0,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
    )
    stamped = stamp(batch, 8, 9, 10)
    body = (
        struct.pack("<3i4x", 0, 3, 5)
        + b"abcde\0\0\0"
        + b"\1".ljust(8, b"\0")
        + struct.pack("<3i4x", 0, 2, 2)
        + b"k1".ljust(8, b"\0")
        + (1).to_bytes(8, "little")
        + struct.pack("<2i", 0, 0)
        + struct.pack("<2i", 0, 4)
        + b"late".ljust(8, b"\0")
        + b"\1".ljust(8, b"\0")
        + struct.pack("<3i4x", 0, 6, 6)
        + b"\x81\xa1h\xc4\x01v".ljust(8, b"\0")
        + struct.pack("<2q", 1000, 2000)
    )
    assert stamped[:20] == struct.pack("<QIq", 8, 9, 10)
    assert stamped[24:28] == b"LGB\1"
    assert stamped[32:40] == struct.pack("<HBBI", 0b1010_0111_1000, 0, 0, 2)
    assert stamped[40:56] == struct.pack("<qii", 5, 6, 7)
    assert stamped[56:72] == struct.pack("<qq", 1000, 2000)
    assert stamped[80:88] == (1 << 24618 // 1024).to_bytes(8, "little")
    assert stamped[88:96] == struct.pack("<2I", len(body), len(body))
    assert stamped[96:] == body
    assert stamped[20:24] == bitwise_crc32c(stamped[:20]).to_bytes(4, "little")
    assert stamped[28:32] == bitwise_crc32c(stamped[32:]).to_bytes(4, "little")


def test_the_example_of_the_protocol_document_is_what_we_write() -> None:
    chapter = PROTOCOL.read_text(encoding="utf-8").split("### 4.7", 1)[1]
    lines = chapter.split("```")[1].strip().splitlines()
    shown = bytes.fromhex("".join(line.split(maxsplit=1)[1] for line in lines))
    batch = encode_batch(
        [b"abc", b"de"],
        [b"k1", None],
        ["late", "late"],
        timestamps_ms=[1000, 2000],
        now_ms=0,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
    )
    assert stamp(batch, 8, 9, 10) == shown


@given(st.lists(st.binary(max_size=30), min_size=1), CODECS, INT64)
def test_one_time_and_one_tag_serve_all(values: list[bytes], codec: str, at_ms: int) -> None:
    batch = encode_batch(values, tags="late", timestamps_ms=at_ms, now_ms=3, codec=codec)
    columns = open_batch(batch)
    assert columns.timestamps() == [at_ms] * len(values)
    assert columns.tags() == ["late"] * len(values)
    assert not peek(batch).has(Attribute.TIMESTAMPS)
    assert open_batch(encode_batch(values, now_ms=3)).timestamp_ms(0) == 3


def test_a_body_that_would_grow_is_stored_plain() -> None:
    noise = [bytes((place * 151 + 7) % 256 for place in range(7))]
    assert peek(encode_batch(noise, now_ms=0, codec="zstd")).codec is Codec.NONE
    assert peek(encode_batch([b"a" * 500], now_ms=0, codec="zstd")).codec is Codec.ZSTD


@given(plains(), INT64, st.integers(-1, 2**31 - 1), st.integers(-1, 2**31 - 1))
def test_a_producer_set_later_is_as_one_set_at_once(
    plain: Plain, producer: int, epoch: int, sequence: int
) -> None:
    later = set_producer(plain.encode(), producer, epoch, sequence)
    at_once = plain.encode(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    assert later == at_once


def test_sequences_wrap_to_zero() -> None:
    assert sequence_after(2**31 - 1, 1) == 0
    assert peek(set_producer(SMALL, 1, 1, 2**31 - 2)).last_sequence == 0


@pytest.mark.parametrize(
    "kind", [kind for kind in ControlKind if kind not in (ControlKind.MESSAGES, ControlKind.LOST)]
)
@pytest.mark.parametrize("body", [b"", b"opaque bytes"])
def test_a_control_entry_keeps_kind_and_body(kind: ControlKind, body: bytes) -> None:
    entry = stamp(encode_control(kind, body), 50, 3, 99)
    head = validate_batch(entry)
    assert head.is_control
    assert (head.kind, head.count, head.base_offset, head.next_offset) == (kind, 0, 50, 50)
    assert control_body(entry) == control_body(memoryview(entry)) == body
    with pytest.raises(DamagedBatch, match="control entry has no columns"):
        open_batch(entry)


def test_a_producer_may_not_write_control_entries() -> None:
    with pytest.raises(DamagedBatch, match="producer may not write control"):
        validate_batch(encode_control(ControlKind.PRODUCER_EXPIRY, b"id"), stamped=False)


def test_messages_are_no_control_entry() -> None:
    assert not validate_batch(STAMPED).is_control
    with pytest.raises(DamagedBatch, match="no control body"):
        control_body(STAMPED)
    with pytest.raises(InvalidRequest, match="control kind"):
        encode_control(ControlKind.MESSAGES, b"")


def test_a_tag_filter_skips_only_what_it_may() -> None:
    head = peek(SMALL)
    assert may_contain_tag(head, ["late"])
    assert may_contain_tag(head, ["nowhere", "early"])
    assert not may_contain_tag(head, [])
    others = [tag for tag in map(str, range(1000)) if may_contain_tag(head, [tag])]
    assert len(others) < 50
    assert not may_contain_tag(peek(encode_batch([b"x"], now_ms=0)), ["late"])


# Hostile bytes


@pytest.mark.parametrize(
    ("batch", "stamped"),
    [
        (STAMPED, True),
        (SMALL, False),
        (stamp(encode_control(ControlKind.PARKED, b"id"), 1, 1, 1), True),
        (stamp(encode_batch([b"a" * 90] * 3, now_ms=0, codec="zstd"), 1, 1, 1), True),
    ],
    ids=["stamped", "unstamped", "control", "compressed"],
)
def test_every_flipped_bit_is_seen(batch: bytes, stamped: bool) -> None:
    validate_batch(batch, stamped=stamped)
    for place in range(len(batch)):
        for bit in range(8):
            flipped = bytearray(batch)
            flipped[place] ^= 1 << bit
            with pytest.raises(DamagedBatch):
                validate_batch(bytes(flipped), stamped=stamped)


def test_every_cut_and_every_tail_is_seen() -> None:
    for length in range(len(STAMPED)):
        with pytest.raises(DamagedBatch):
            validate_batch(STAMPED[:length])
        with pytest.raises(DamagedBatch):
            open_batch(STAMPED[:length])
    with pytest.raises(DamagedBatch):
        validate_batch(STAMPED + b"\0")


@pytest.mark.parametrize(
    ("at", "content", "named"),
    [
        (24, b"XYZ", "magic"),
        (27, b"\2", "version 2"),
        (32, struct.pack("<H", peek(STAMPED).attributes | 3), "unknown codec 3"),
        (32, struct.pack("<H", peek(STAMPED).attributes | 7), "unknown codec 7"),
        (33, b"\x20", "unknown attributes"),
        (32, b"\0\2", "nulls in a column that it lacks"),
        (34, b"\1", "control kind or no message"),
        (35, b"\1", "unknown attributes"),
        (36, bytes(4), "control kind or no message"),
        (36, struct.pack("<I", 2**32 - 1), "do not fit"),
        (88, struct.pack("<I", MAX_BODY + 1), "exceeds"),
        (92, struct.pack("<I", MAX_BODY + 1), "exceeds"),
        (92, struct.pack("<I", 2**32 - 1), "exceeds"),
        (88, struct.pack("<I", 8), "its head says"),
        (92, struct.pack("<I", 8), "plain and stored length"),
    ],
)
def test_a_forged_head_is_named(at: int, content: bytes, named: str) -> None:
    with pytest.raises(DamagedBatch, match=named):
        validate_batch(forge(STAMPED, at, content))


@pytest.mark.parametrize(
    ("at", "content", "named"),
    [
        (32, b"\x81", "messages, columns or no kind"),
        (34, b"\0", "messages, columns or no kind"),
        (36, b"\1", "messages, columns or no kind"),
        (34, b"\xff", "unknown control kind 255"),
    ],
)
def test_a_forged_control_entry_is_named(at: int, content: bytes, named: str) -> None:
    entry = stamp(encode_control(ControlKind.PARKED, b"id"), 1, 1, 1)
    with pytest.raises(DamagedBatch, match=named):
        validate_batch(forge(entry, at, content))


def test_stamps_are_told_apart() -> None:
    with pytest.raises(DamagedBatch, match="checksum of its stamped head"):
        validate_batch(SMALL)
    with pytest.raises(DamagedBatch, match="stamped head is not empty"):
        validate_batch(STAMPED, stamped=False)
    with pytest.raises(DamagedBatch, match="base offset"):
        validate_batch(stamp(SMALL, 2**63 - 2, 1, 1))


def test_a_count_above_the_bound_is_refused() -> None:
    # A well-formed plain body, so that nothing but the bound stands in the way.
    many = MAX_COUNT + 1
    body = bytes(-(-4 * (many + 1) // 8) * 8)
    head = bytearray(SMALL[:HEAD_LENGTH])
    struct.pack_into("<HBBI", head, 32, 0, 0, 0, many)
    struct.pack_into("<2I", head, 88, len(body), len(body))
    with pytest.raises(DamagedBatch, match=f"{many} messages"):
        validate_batch(sealed(bytes(head) + body), stamped=False)


@given(st.binary(max_size=300))
def test_any_bytes_raise_damage_and_nothing_else(junk: bytes) -> None:
    for stamped in (True, False):
        with pytest.raises(DamagedBatch):
            validate_batch(junk, stamped=stamped)
    with pytest.raises(DamagedBatch):
        all_of(junk)


@given(plains(), CODECS, st.data())
def test_a_forged_byte_reads_as_something_or_raises_damage(
    plain: Plain, codec: str, data: st.DataObject
) -> None:
    """The checksum keeps out accidents; a forger computes it too."""
    batch = plain.encode(codec)
    at = data.draw(st.integers(32, len(batch) - 1))
    forged = forge(batch, at, data.draw(st.binary(min_size=1, max_size=1)))
    try:
        count = validate_batch(forged, stamped=False).count
        found = all_of(forged)
    except DamagedBatch:
        return
    assert {len(column) for column in found} == {count}


# Misuse

TEXT: Any = "text"
BYTES: Any = b"bytes"
WIDE: Any = memoryview(bytes(8)).cast("i")


@pytest.mark.parametrize(
    ("encode", "text"),
    [
        (lambda: encode_batch([], now_ms=0), "at least one message"),
        (lambda: encode_batch([b"a"], [b"k", b"l"], now_ms=0), "2 keys for 1 values"),
        (lambda: encode_batch([b"a"], tags=[], now_ms=0), "0 tags for 1 values"),
        (lambda: encode_batch([b"a"], headers=[], now_ms=0), "0 headers for 1 values"),
        (lambda: encode_batch([b"a"], timestamps_ms=[1, 2], now_ms=0), "2 timestamps_ms"),
        (lambda: encode_batch([TEXT], now_ms=0), "values must be bytes"),
        (lambda: encode_batch([WIDE], now_ms=0), "a view of wider items"),
        (lambda: encode_batch([b"a"], [TEXT], now_ms=0), "keys must be bytes"),
        (lambda: encode_batch([b"a"], tags=[BYTES], now_ms=0), "tags must be text"),
        (lambda: encode_batch([b"a"], tags=["\ud800"], now_ms=0), "tags must be text"),
        (lambda: encode_batch([b"a"], headers=[{"k": TEXT}], now_ms=0), "headers map text"),
        (lambda: encode_batch([b"a"], timestamps_ms=[2**63], now_ms=0), "64 bits"),
        (lambda: encode_batch([b"a"], now_ms=2**63), "out of its range"),
        (lambda: encode_batch([b"a"], now_ms=0, codec="gzip"), "unknown compression"),
        (lambda: set_producer(SMALL, 2**63, 0, 0), "does not fit"),
    ],
)
def test_misuse_is_named(encode: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        encode()


@pytest.mark.parametrize(
    "encode",
    [
        lambda: encode_batch([bytes(MAX_BODY + 1)], now_ms=0),
        lambda: encode_batch([bytes(MAX_BODY // 2)] * 2, now_ms=0),
        lambda: encode_control(ControlKind.PARKED, bytes(MAX_BODY + 1)),
        lambda: encode_batch([b""] * (MAX_COUNT + 1), now_ms=0),
    ],
    ids=["value", "body", "control", "count"],
)
def test_too_large_is_refused(encode: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        encode()
    assert caught.value.code == "TOO_LARGE"


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_released_batch_names_its_parked_entry_and_keeps_its_messages(codec: str) -> None:
    parked = encode_batch([b"a" * 50, b"b" * 50], [b"k", None], now_ms=5, codec=codec)
    released = stamp(release(parked, 17, 3), 20, 4, 9)
    head = validate_batch(released)
    assert released_from(released, head) == (17, 3)
    assert released_from(stamp(parked, 20, 4, 9)) is None
    assert open_batch(released).values() == [b"a" * 50, b"b" * 50]
    assert open_batch(released).keys() == [b"k", None]


def test_the_parked_position_is_covered_by_the_checksum_and_written_once() -> None:
    released = release(encode_batch([b"value"], now_ms=5), 17, 3)
    with pytest.raises(DamagedBatch):
        validate_batch(stamp(released[:-1] + bytes([released[-1] ^ 1]), 0, 1, 0))
    with pytest.raises(DamagedBatch, match="may not write"):
        validate_batch(released, stamped=False)
    with pytest.raises(InvalidRequest, match="once"):
        release(released, 1, 1)
