"""Batches for the tests of the wire: strategies, and forgeries whose checksums hold."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from logboom.wire.batch import NO_PRODUCER, STAMP_LENGTH, encode_batch
from logboom.wire.head import CRC_START
from logboom.wire.validation import crc32c

INT64 = st.integers(-(2**63), 2**63 - 1)
CODECS = st.sampled_from(["none", "lz4", "zstd"])


class Plain(NamedTuple):
    """The columns of a batch as lists."""

    values: list[bytes | None]
    keys: list[bytes | None]
    tags: list[str | None]
    headers: list[dict[str, bytes] | None]
    timestamps_ms: list[int]

    def encode(
        self,
        codec: str = "none",
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = NO_PRODUCER,
        base_sequence: int = NO_PRODUCER,
    ) -> bytes:
        """The batch of these columns, made at 1,000 ms."""
        return encode_batch(
            *self,
            now_ms=1000,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


@st.composite
def plains(draw: st.DrawFn) -> Plain:
    """Any columns, each sometimes without nulls and sometimes with nothing else."""
    count = draw(st.integers(1, 40))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    blob = st.binary(max_size=12)
    even = st.binary(min_size=7, max_size=7)

    def column(item: st.SearchStrategy) -> list:  # type: ignore[type-arg]  # any column
        kinds = [st.just(None), item, st.none() | item]
        return draw(st.one_of([st.lists(kind, min_size=count, max_size=count) for kind in kinds]))

    return Plain(
        column(draw(st.sampled_from([blob, even]))),
        column(draw(st.sampled_from([blob, even]))),
        column(text),
        column(st.dictionaries(text, blob, max_size=2)),
        draw(st.lists(INT64, min_size=count, max_size=count)),
    )


def forge(batch: bytes, at: int, content: bytes) -> bytes:
    """The batch with other bytes at `at`, its head's checksum made to hold."""
    changed = bytearray(batch)
    changed[at : at + len(content)] = content
    return sealed(bytes(changed))


def sealed(batch: bytes) -> bytes:
    """The batch with a head checksum that holds."""
    crc = crc32c(batch[CRC_START:]).to_bytes(4, "little")
    return batch[: STAMP_LENGTH + 4] + crc + batch[CRC_START:]
