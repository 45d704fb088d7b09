"""Segments of the journal, each read on its own, also behind damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from logboom.nodes.disk.journal_records import (
    find_operations,
    is_unused,
    read_header,
    scan_segment,
)
from logboom.nodes.log.storage import PUT
from logboom.nodes.salvage.store_rows import StoreRow


class SegmentReport(NamedTuple):
    """What a segment holds."""

    ordinal: int
    """-1 if its header cannot be read."""
    first: int
    """Number of its first write."""
    last: int
    """Number of the last write that can be read."""
    records: int
    """Writes that can be read."""
    torn: bool
    """True if a write in it, or its last one, cannot be read."""


def report_segment(data: bytes) -> SegmentReport | None:
    """Report a segment; None if the file waits to be used."""
    header = read_header(data)
    if header is None:
        return None if is_unused(data) else SegmentReport(-1, 0, 0, 0, torn=True)
    found = scan_segment(header, data)
    records = [*found.records, *found.hidden]
    last = records[-1].number if records else header.first - 1
    torn = found.torn or bool(found.hidden)
    return SegmentReport(header.ordinal, header.first, last, len(records), torn)


def journal_rows(data: bytes) -> Iterator[StoreRow | None]:
    """Yield the puts of every intact record, in order; None where something is not readable."""
    header = read_header(data)
    if header is None:
        if not is_unused(data):
            yield None
        return
    found = scan_segment(header, data)
    for record in (*found.records, *found.hidden):
        for kind, _, key, at, size in find_operations(data, record):
            if kind == PUT:
                yield StoreRow(key, record.sequence, at, size)
    if found.torn or found.hidden:
        yield None
