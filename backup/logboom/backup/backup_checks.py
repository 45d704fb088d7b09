"""Verification of backups: everything is read back and compared with its checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from msgspec import Struct

from logboom.backup.backup_format import (
    MANIFEST,
    PROGRESS,
    STATE,
    Manifest,
    QueueRecord,
    SegmentRecord,
    TopicRecord,
    position_after,
    split_copies,
)
from logboom.backup.backup_reader import BackupReader
from logboom.wire.batch import split_entries
from logboom.wire.errors import DamagedBatch, LogboomError
from logboom.wire.validation import validate_batch


class BackupFault(Struct, frozen=True):
    """Something that is wrong with a file of a backup."""

    file: str
    fault: str


class BackupCheck(Struct, frozen=True):
    """The result of verifying a backup."""

    backup: str
    files: int
    size: int
    """Bytes read."""
    entries: int
    messages: int
    faults: list[BackupFault]


def verify(
    reader: BackupReader,
    manifest: Manifest,
    on_progress: Callable[[int], None] = lambda done: None,
) -> BackupCheck:
    """Read all files that a backup needs, also those of earlier backups.

    Args:
        on_progress: called with the bytes read so far.

    Raises:
        InvalidRequest: it was removed meanwhile.
    """
    faults: list[BackupFault] = []
    files = size = entries = messages = 0
    try:
        reader.state(manifest)
    except LogboomError as error:
        faults.append(BackupFault(reader.store.describe(f"{manifest.id}/{STATE}"), error.text))
    files, size = 1, manifest.state.size
    for topic, queue, record in manifest.records():
        done = size
        file = reader.store.describe(f"{record.backup}/{record.file}")
        try:
            for read in _read(reader, topic, queue, record):
                size += read
                on_progress(size)
            entries += record.entries
            messages += record.messages
        except LogboomError as error:
            faults.append(BackupFault(file, error.text))
            size = done + record.size
        files += 1
    faults += _gaps(reader, manifest)
    faults += [
        BackupFault(reader.store.describe(f"{manifest.id}/{name}"), "no manifest names this file")
        for name in unnamed_files(reader, manifest)
    ]
    if faults:
        # To prune removes the manifest before its files.
        reader.check_there(manifest)
    return BackupCheck(manifest.id, files, size, entries, messages, faults)


def unnamed_files(reader: BackupReader, manifest: Manifest) -> list[str]:
    """Return the files in a backup's folder that its manifest does not name."""
    own = {record.file for _, _, record in manifest.records() if record.backup == manifest.id}
    own |= {MANIFEST, PROGRESS, STATE}
    return [name for name in reader.store.files(manifest.id) if name not in own]


def _read(
    reader: BackupReader, topic: TopicRecord, queue: QueueRecord, record: SegmentRecord
) -> Iterator[int]:
    """Read one file, check each entry by its own checksum, and yield the bytes of each block."""
    kind = "copies" if record in queue.copies else "entries"
    at = record.begin
    with closing(
        reader.blocks(topic.id, queue.queue, record, "copies" if kind == "copies" else "entries")
    ) as blocks:
        for content in blocks:
            try:
                if kind == "copies":
                    for _, batch in split_copies(content):
                        validate_batch(bytes(batch))
                else:
                    for entry in split_entries(content):
                        head = validate_batch(bytes(entry))
                        if head.base_offset != at[0]:
                            raise DamagedBatch(f"an entry is missing at offset {at[0]}")
                        at = position_after(at, head.count)
            except DamagedBatch as error:
                name = reader.store.describe(f"{record.backup}/{record.file}")
                raise DamagedBatch(f"{name} is damaged: {error.text}") from None
            yield len(content)


def _gaps(reader: BackupReader, manifest: Manifest) -> Iterator[BackupFault]:
    """Yield files that do not begin where the one before ends: one is missing or doubled."""
    for topic in manifest.topics:
        for queue in topic.queues:
            at = queue.begin
            for record in queue.segments:
                if record.begin != at:
                    what = "doubled" if record.begin < at else "missing"
                    fault = f"entries are {what}: it begins at {record.begin}, and not at {at}"
                    yield BackupFault(
                        reader.store.describe(f"{record.backup}/{record.file}"), fault
                    )
                at = record.end
            if at != queue.end:
                fault = f"queue {queue.queue} of {topic.name} ends at {at}, and not at {queue.end}"
                yield BackupFault(reader.store.describe(f"{manifest.id}/{MANIFEST}"), fault)
