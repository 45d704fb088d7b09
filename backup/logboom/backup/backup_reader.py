"""Reading backups: their manifests, their state, and the entries of their queues."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, suppress
from typing import NamedTuple, Protocol

import msgspec

from logboom.backup.backup_format import (
    ID,
    MANIFEST,
    PROGRESS,
    STATE,
    LogPosition,
    Manifest,
    Progress,
    QueueRecord,
    ReadableFile,
    SegmentKind,
    SegmentReader,
    SegmentRecord,
    decode_manifest,
    decode_progress,
    position_after,
    split_copies,
)
from logboom.wire.backup_messages import ClusterSnapshot
from logboom.wire.base import UNDECODABLE
from logboom.wire.batch import encode_control, peek, split_entries, stamp
from logboom.wire.cursor_deltas import encode_deltas
from logboom.wire.errors import DamagedBatch, DataDamaged, InvalidRequest
from logboom.wire.head import KIND_AT, ControlKind
from logboom.wire.validation import crc32c


class EntryBlock(NamedTuple):
    """Some entries of a queue's log, one after the other."""

    begin: LogPosition
    end: LogPosition
    content: bytes
    entries: int


class SurvivorCopy(NamedTuple):
    """A batch from before the log's start, and its surviving messages."""

    bits: bytes
    """As in `Pulled.survivors`."""
    batch: memoryview


class StoredFiles(Protocol):
    """The files of all backups in one place, as a reader needs them (`object_store.BackupStore`)."""

    url: str

    def describe(self, name: str) -> str:
        """Return a file's name for people."""

    def exists(self, name: str) -> bool:
        """Return True if there is such a file."""

    def read(self, name: str) -> bytes:
        """Return the content of a small file, or raise FileNotFoundError."""

    def open(self, name: str) -> AbstractContextManager[ReadableFile]:
        """Open a file, or raise FileNotFoundError."""

    def folders(self) -> list[str]:
        """Return the names of all folders, sorted."""

    def files(self, folder: str) -> dict[str, int]:
        """Return name below the folder → size of all files in a folder."""


class BackupReader:
    """All backups in a store. Everything that it returns has been checked against its checksums."""

    def __init__(self, store: StoredFiles) -> None:
        self.store = store

    def ids(self) -> list[str]:
        """Return the ids of all finished backups, oldest first."""
        return [name for name in self.folders() if self._is_finished(name)]

    def _is_finished(self, backup: str) -> bool:
        return self.store.exists(f"{backup}/{MANIFEST}")

    def folders(self) -> list[str]:
        """Return the names of all folders that are, were or will be backups, oldest first."""
        return [name for name in self.store.folders() if ID.fullmatch(name)]

    def found(self) -> tuple[list[str], list[str]]:
        """Return the ids of all finished backups, and of all unfinished ones, oldest first."""
        finished: list[str] = []
        unfinished: list[str] = []
        for name in self.folders():
            # In this order: a backup that is finished meanwhile has one or the other.
            begun = self.store.exists(f"{name}/{PROGRESS}")
            if self._is_finished(name):
                finished.append(name)
            elif begun:
                unfinished.append(name)
        return finished, unfinished

    def unfinished(self) -> list[str]:
        """Return the ids of folders with files of an unfinished backup, oldest first."""
        return self.found()[1]

    def all_progress(self) -> list[Progress]:
        """Return what each unfinished backup has, oldest first.

        One that cannot be read, or is gone by now, is left out: nobody can go on with it.

        Raises:
            StartError: NEWER_FORMAT.
        """
        found: list[Progress] = []
        for backup in self.unfinished():
            with suppress(FileNotFoundError, DataDamaged):
                found.append(self.progress(backup))
        return found

    def newest(self) -> str:
        """Return the id of the newest finished backup.

        Raises:
            InvalidRequest: there is none.
        """
        found = self.ids()
        if not found:
            raise self._nothing()
        return found[-1]

    def _nothing(self) -> InvalidRequest:
        text = f"there is no finished backup at {self.store.url}: make one with `logboom backup create`"
        return InvalidRequest(text)

    def manifest(self, backup: str = "") -> Manifest:
        """Return the manifest of a backup; "": of the newest.

        Raises:
            InvalidRequest: there is no such backup, or it is not finished.
            DataDamaged: the manifest is damaged.
            StartError: NEWER_FORMAT.
        """
        backup = backup or self.newest()
        found = self.find_manifest(backup)
        if found is None:
            raise self._unknown(backup)
        return found

    def _unknown(self, backup: str) -> InvalidRequest:
        found = self.ids()
        if not found:
            return self._nothing()
        text = f"there is no finished backup {backup!r} at {self.store.url}"
        return InvalidRequest(f"{text}: `logboom backup list {self.store.url}` lists {len(found)}")

    def find_manifest(self, backup: str) -> Manifest | None:
        """Return the manifest of a backup; None: there is none, or no more.

        Raises:
            DataDamaged, StartError: as `manifest`.
        """
        name = f"{backup}/{MANIFEST}"
        try:
            encoded = self.store.read(name)
        except FileNotFoundError:
            return None
        found = decode_manifest(encoded, self.store.describe(name))
        if found.id != backup:
            raise DataDamaged(f"{self.store.describe(name)} is that of backup {found.id}")
        return found

    def manifests(self) -> list[Manifest]:
        """Return the manifests of all finished backups, oldest first.

        Those that are removed meanwhile are left out.

        Raises:
            DataDamaged, StartError: as `manifest`.
        """
        found = [self.find_manifest(backup) for backup in self.ids()]
        return [each for each in found if each is not None]

    def check_there(self, manifest: Manifest) -> None:
        """Refuse a backup that was removed since its manifest was read.

        Raises:
            InvalidRequest: it is gone.
        """
        if not self._is_finished(manifest.id):
            raise self._unknown(manifest.id)

    def progress(self, backup: str) -> Progress:
        """Return what an unfinished backup has.

        Raises:
            FileNotFoundError: nothing is known of it.
            DataDamaged, StartError: as `manifest`.
        """
        name = f"{backup}/{PROGRESS}"
        found = decode_progress(self.store.read(name), self.store.describe(name))
        # Whoever continues it writes and removes files in the folder of this id.
        if found.id != backup:
            raise DataDamaged(f"{self.store.describe(name)} is that of backup {found.id}")
        return found

    def state(self, manifest: Manifest) -> ClusterSnapshot:
        """Return the replicated state at the cut.

        Raises:
            DataDamaged: it is missing or damaged.
            InvalidRequest: the backup was removed meanwhile.
        """
        name = f"{manifest.id}/{STATE}"
        try:
            encoded = self.store.read(name)
        except FileNotFoundError:
            self.check_there(manifest)
            raise missing(self.store.describe(name)) from None
        if len(encoded) < manifest.state.size:
            raise DataDamaged(f"{self.store.describe(name)} is truncated")
        if len(encoded) != manifest.state.size or crc32c(encoded) != manifest.state.crc:
            raise DataDamaged(f"{self.store.describe(name)} is damaged: its checksum is wrong")
        try:
            return msgspec.msgpack.decode(encoded, type=ClusterSnapshot)
        except UNDECODABLE as error:
            raise DataDamaged(f"{self.store.describe(name)} cannot be read: {error}") from None

    def blocks(
        self, topic_id: int, queue: int, record: SegmentRecord, kind: SegmentKind = "entries"
    ) -> Generator[bytes, None, None]:
        """Yield the blocks of a segment file, and compare it with its record.

        Raises:
            DataDamaged: it is missing, truncated, damaged, or not the file that the record names.
            StartError: NEWER_FORMAT.
        """
        name = f"{record.backup}/{record.file}"
        described = self.store.describe(name)
        try:
            with self.store.open(name) as file:
                reader = SegmentReader(file, described)
                if reader.header != (kind, topic_id, queue, record.begin):
                    raise DataDamaged(f"{described} is another file: {_text(reader.header)}")
                yield from reader.blocks()
        except FileNotFoundError:
            raise missing(described) from None
        totals = (record.entries, record.messages, record.end)
        if reader.size != record.size or reader.crc != record.crc or reader.totals != totals:
            raise DataDamaged(f"{described} is another file than the manifest names")

    def entries(
        self, topic_id: int, queue: QueueRecord, begin: LogPosition | None = None
    ) -> Iterator[EntryBlock]:
        """Yield the log of a queue as it is restored, from a position at which an entry begins.

        Acknowledgements of subscriptions that came after the cut are left out: an empty entry stands
        in their place (see docs/SAFETY.md, K3).

        Raises:
            DataDamaged: as `blocks`, or entries do not continue each other.
        """
        at = queue.begin
        for record in queue.segments:
            if record.begin != at:
                raise DataDamaged(
                    f"{self.store.describe(f'{record.backup}/{record.file}')} begins at "
                    f"{record.begin}, and not at {at}"
                )
            if begin is not None and record.end <= begin:
                at = record.end
                continue
            with closing(self.blocks(topic_id, queue.queue, record)) as blocks:
                for content in blocks:
                    block = self._block(record, at, content, queue.cursors_end, begin)
                    at = block.end
                    if block.entries:
                        yield block
            if at != record.end:
                raise DataDamaged(
                    f"{self.store.describe(f'{record.backup}/{record.file}')} ends at {at}, and "
                    f"not at {record.end}"
                )

    def _block(
        self,
        record: SegmentRecord,
        at: LogPosition,
        content: bytes,
        cursors_end: LogPosition,
        begin: LogPosition | None,
    ) -> EntryBlock:
        first, count, parts, changed = at, 0, [], False
        try:
            for entry in split_entries(content):
                head = peek(entry)
                after = position_after(at, head.count)
                if begin is not None and at < begin:
                    first, changed = after, True
                else:
                    part: bytes | memoryview = entry
                    if entry[KIND_AT] == ControlKind.CURSOR_DELTA and at >= cursors_end:
                        empty = encode_control(ControlKind.CURSOR_DELTA, encode_deltas([]))
                        part = stamp(
                            empty, head.base_offset, head.leader_epoch, head.append_time_ms
                        )
                        changed = True
                    parts.append(part)
                    count += 1
                at = after
        except DamagedBatch as error:
            name = self.store.describe(f"{record.backup}/{record.file}")
            raise DataDamaged(f"{name} is damaged: {error.text}") from None
        return EntryBlock(first, at, b"".join(parts) if changed else content, count)

    def copies(self, topic_id: int, queue: QueueRecord) -> Iterator[SurvivorCopy]:
        """Yield the survivors of a compacted queue from before its log.

        Raises:
            DataDamaged: as `blocks`.
        """
        for record in queue.copies:
            with closing(self.blocks(topic_id, queue.queue, record, "copies")) as blocks:
                for content in blocks:
                    for bits, batch in split_copies(content):
                        yield SurvivorCopy(bits, batch)


def missing(name: str) -> DataDamaged:
    """Build the error for a file that is not there."""
    return DataDamaged(f"{name} is missing: the backup cannot be restored without it")


def _text(header: tuple[object, ...]) -> str:
    return " ".join(map(str, header))
