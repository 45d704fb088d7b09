"""Writing a backup: the order of the cut, queues in parallel, and what an interrupted one leaves.

The order makes the cut true (see docs/SAFETY.md, K1 to K3): first the ends of all queues are noted,
then the replicated state is read, then the entries.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from msgspec import Struct

from logboom import __version__
from logboom.backup.backup_format import (
    CLAIM,
    MANIFEST,
    PROGRESS,
    SEGMENT_BYTES,
    STALE_S,
    STATE,
    LogPosition,
    Manifest,
    Progress,
    QueueRecord,
    SegmentHead,
    SegmentKind,
    SegmentRecord,
    SegmentWriter,
    StateRecord,
    TopicRecord,
    encode_copy,
    encode_manifest,
    segment_name,
    whole_part,
)
from logboom.backup.backup_pace import BackupPace
from logboom.backup.backup_reader import BackupReader
from logboom.backup.object_store import BackupStore
from logboom.client import Client
from logboom.client.admin_flows.backup_flows import EntryRange, FetchedEntries
from logboom.wire.backup_messages import ClusterSnapshot, EntriesFetched
from logboom.wire.errors import (
    Forbidden,
    InvalidRequest,
    LogboomError,
    Unavailable,
    UnknownResource,
)
from logboom.wire.validation import crc32c
from logboom.wire.view import TopicView

ID_FORMAT: Final = "%Y%m%dT%H%M%SZ"
WORKERS: Final = 4
"""Queues that are read at once."""
FETCH_BYTES: Final = 4 * 1024 * 1024
PROGRESS_S: Final = 2.0
"""Seconds between two writings of the progress; it names finished files only."""
STAGED_WAIT_S: Final = 0.01
"""Seconds before entries are asked for again that the leader's store does not show yet."""
COPIES_WAIT_S: Final = 0.2
"""Seconds before copies are asked for again that the leader has not compacted yet."""
COPIES_TRIES: Final = 300
"""Tries for copies without progress, each after `COPIES_WAIT_S`."""
SPARE_BYTES: Final = 16 * 1024 * 1024
"""Bytes that have to be free besides those that a backup is expected to take."""

ProgressCallback = Callable[[int, int], None]
"""Called with (bytes written, bytes expected), from any thread."""


class BackupOptions(Struct, frozen=True):
    """What to back up, and how."""

    topics: Sequence[str] = ()
    """Names or patterns (`orders*`); empty: all."""
    incremental: bool = True
    """True to continue from the newest backup of this cluster."""
    bytes_per_s: int = 0
    """Limit of what is read from the cluster; 0: none."""
    segment_bytes: int = SEGMENT_BYTES
    workers: int = WORKERS


class _QueueNote(Struct, frozen=True):
    """What a queue's leader told before the state was read."""

    hw: LogPosition
    log_start: int
    log_bytes: int


class _Stopped(Exception):
    """Another queue failed, or the backup was interrupted."""


class BackupWriter:
    """One run of `create`."""

    def __init__(
        self,
        client: Client,
        store: BackupStore,
        options: BackupOptions,
        on_progress: ProgressCallback = lambda done, total: None,
    ) -> None:
        self._client = client
        self.store = store
        """Where the backups are."""
        self._reader = BackupReader(store)
        self.options = options
        """What to back up, and how."""
        self._on_progress = on_progress
        self._pace = BackupPace(options.bytes_per_s)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._owner = uuid.uuid4().hex
        self.id = ""
        """The id of this backup, once it has begun."""
        self._begun_ms = 0
        self._base: Manifest | None = None
        self._base_files: dict[str, dict[str, int]] = {}
        """Folder → its files → bytes, of all folders that the base needs, when the backup began."""
        self._faults: list[str] = []
        """Files of the base that are missing, or have another size than its manifest says."""
        self._cluster_id = ""
        self._done: dict[tuple[int, int], tuple[TopicView, QueueRecord]] = {}
        """What is finished of each queue of this backup, the base's part included."""
        self._deleted: set[int] = set()
        """Ids of topics that were deleted while they were copied."""
        self._taken_over: Progress | None = None
        """What an unfinished backup says that it has, until that is verified."""
        self._before: set[str] = set()
        """Unfinished backups whose files this one may refer to."""
        self._owns = False
        """True once the progress names this process as the one that writes the backup."""
        self._notes: list[str] = []
        self._written = 0
        self._expected = 0
        self._progress_at = 0.0
        self.resumed = False
        """True if an unfinished backup is continued."""

    # ── the run ─────────────────────────────────────────────────────────────────────────────────

    def create(self) -> Manifest:
        """Write a backup, and return its manifest.

        An unfinished one with the same base is continued. Whatever ends this one early, the same
        command continues it.

        Raises:
            LogboomError: the cluster or the store cannot be used; nothing is lost.
        """
        admin = self._client.admin
        self._cluster_id = admin.cluster_id()
        names = self._choose(admin.read_state())
        self._check_sight(names)
        self._base = self._find_base()
        try:
            self._check_base()
            self._resume()
            before = self._note_ends(names)
            self._check_room()
            self._begin()
            state = admin.read_state()
            self._write_state(state)
            topics = self._choose(state)
            self._copy_all(topics, before, state)
            return self._finish(state, topics)
        # Ctrl-C too: whoever continues need not wait until it is clear that nobody writes it.
        except BaseException:
            # What ended it is what to say, not that this cannot be written either.
            with suppress(LogboomError):
                self._write_progress(owner="")
            raise

    def _choose(self, state: ClusterSnapshot) -> list[TopicView]:
        """Return the topics to back up: those that are wanted, and that are not being restored.

        Raises:
            InvalidRequest: a pattern names no topic.
        """
        wanted = [topic for topic in state.topics if self._wanted(topic.name)]
        self._check_names(wanted)
        for topic in wanted:
            if topic.restoring:
                text = f"topic {topic.name} is being restored from {topic.restoring}"
                self._notes.append(f"{text}: it is left out")
        return [topic for topic in wanted if not topic.restoring]

    def _wanted(self, name: str) -> bool:
        patterns = self.options.topics
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    def _check_names(self, topics: Sequence[TopicView]) -> None:
        for pattern in self.options.topics:
            if not any(fnmatchcase(topic.name, pattern) for topic in topics):
                text = f"no topic is called {pattern!r}: `logboom topic list` lists them"
                raise InvalidRequest(text)

    def _check_sight(self, topics: Sequence[TopicView]) -> None:
        """Refuse a backup by somebody who may read the state, but does not see all topics.

        Raises:
            Forbidden: a topic is hidden.
        """
        admin = self._client.admin
        seen = {topic.id for topic in admin.topics()}
        hidden = [topic for topic in topics if topic.id not in seen]
        if hidden:
            exist = {topic.id for topic in admin.read_state().topics}
            for topic in hidden:
                if topic.id in exist:
                    raise forbidden(topic.name)

    def is_deleted(self, topic: TopicView) -> bool:
        """Return True if a topic that was in the state is not there any more."""
        return topic.id not in {each.id for each in self._client.admin.read_state().topics}

    def _find_base(self) -> Manifest | None:
        if not self.options.incremental:
            return None
        for backup in reversed(self._reader.ids()):
            manifest = self._reader.find_manifest(backup)
            if manifest is not None and manifest.cluster_id == self._cluster_id:
                return manifest
        return None

    def _check_base(self) -> None:
        """Compare the sizes of all files that the base needs.

        Where one is not what the base's manifest says, the copy of its queue goes on before it.
        """
        if self._base is None:
            return
        self._base_files = {each: self.store.files(each) for each in self._base.needs()}
        for _, _, record in self._base.records():
            if not self._is_there(record):
                self._faults.append(self.store.describe(f"{record.backup}/{record.file}"))
        if self._faults:
            self._notes.append(_faults_text(self._base, self._faults))

    def _is_there(self, record: SegmentRecord) -> bool:
        return self._base_files.get(record.backup, {}).get(record.file) == record.size

    # ── an unfinished one ───────────────────────────────────────────────────────────────────────

    def _resume(self) -> None:
        """Take over what an unfinished backup has, as far as its files are whole."""
        base = "" if self._base is None else self._base.id
        for backup in reversed(self._reader.unfinished()):
            if backup < base:
                break
            try:
                progress = self._reader.progress(backup)
            except (FileNotFoundError, LogboomError):
                continue
            if (progress.cluster_id, progress.base) != (self._cluster_id, base):
                continue
            if progress.is_written(time.time()):
                raise self._busy(backup)
            self._take_over(progress)
            return

    def _busy(self, backup: str) -> Unavailable:
        return Unavailable(
            f"another process writes backup {backup} at {self.store.url}: wait for it, or "
            f"for {STALE_S:.0f} s if it has ended",
            "BUSY",
        )

    def _take_over(self, progress: Progress) -> None:
        self._begun_ms = progress.begun_ms
        self._notes = [*progress.notes, *self._notes]
        self.resumed = True
        # Verifying takes long, and nobody else may begin it meanwhile.
        self._taken_over = progress
        # Who has not said that it has ended may go on after a long pause. Its folder is left to it.
        if progress.owner or not self._claim(progress.id, progress):
            self._before = {progress.id, *progress.needs}
            self._begin_folder()
        views = {topic.id: topic for topic in self._client.admin.topics()}
        for topic in progress.topics:
            view = views.get(topic.id)
            if view is None or not self._wanted(topic.name):
                continue
            for queue in topic.queues:
                whole = self._whole(topic.id, queue)
                if whole is not None:
                    self._done[topic.id, queue.queue] = (view, whole)
        self._taken_over = None

    def _claim(self, folder: str, seen: Progress | None) -> bool:
        """Make this process the one that writes in a folder; return False if others are about to.

        Of several that try at the same time one succeeds at most, since each looks for the others
        after it has left its own claim.

        Args:
            seen: what the folder is known to have; None: nothing.

        Raises:
            Unavailable: BUSY, another process has begun there.
        """
        claim = f"{CLAIM}{self._owner}"
        self.store.write(f"{folder}/{claim}", b"")
        try:
            there = self.store.files(folder).keys() - {claim}
            if any(name.startswith(CLAIM) for name in there):
                return False
            try:
                found = self._reader.progress(folder)
            except FileNotFoundError:
                found = None
            if found != seen or (seen is None and there):
                raise self._busy(folder)
            self.id = folder
            self._write_progress(owner=self._owner)
        finally:
            self.store.remove(f"{folder}/{claim}")
        return True

    def _whole(self, topic_id: int, queue: QueueRecord) -> QueueRecord | None:
        """Return the part of a queue's record whose files are whole; None: nothing is.

        Files of the base were compared before. The others are read.
        """

        def is_whole(record: SegmentRecord, kind: SegmentKind) -> bool:
            if record.backup in self._base_files:
                return self._is_there(record)
            return self._is_whole(topic_id, queue, record, kind)

        return whole_part(queue, is_whole)

    def _is_whole(
        self, topic_id: int, queue: QueueRecord, record: SegmentRecord, kind: SegmentKind
    ) -> bool:
        try:
            for _ in self._reader.blocks(topic_id, queue.queue, record, kind):
                self._tell()
        except LogboomError as error:
            if error.code == "BUSY":
                raise
            return False
        return True

    # ── before the state is read ────────────────────────────────────────────────────────────────

    def _note_ends(self, topics: Sequence[TopicView]) -> dict[tuple[int, int], _QueueNote]:
        """Ask every leader where its queue ends: acknowledgements of subscriptions up to there count.

        Raises:
            LogboomError: a queue has no leader, or the right is missing.
        """
        queues = [(topic, number) for topic in topics for number in range(len(topic.queues))]
        with ThreadPoolExecutor(self.options.workers, "backup") as pool:
            found = list(pool.map(lambda each: self._note_end(*each), queues))
        notes = {key: note for key, note in found if note is not None}
        self._expected += sum(self._expected_bytes(key, note) for key, note in notes.items())
        return notes

    def _note_end(self, topic: TopicView, number: int) -> tuple[tuple[int, int], _QueueNote | None]:
        key = (topic.id, number)
        try:
            head = self.fetch(EntryRange(topic.name, topic.id, number)).head
        except UnknownResource:
            return key, None  # it was deleted just now
        return key, _QueueNote((head.hw_offset, head.hw_side), head.log_start, head.log_bytes)

    def _expected_bytes(self, key: tuple[int, int], note: _QueueNote) -> int:
        """Estimate the bytes of a queue that are new, by its offsets."""
        prior = self.prior(key)
        span = note.hw[0] - note.log_start
        if prior is None or prior.end[0] < note.log_start or span <= 0:
            return note.log_bytes
        return note.log_bytes * max(0, note.hw[0] - prior.end[0]) // span

    def prior(self, key: tuple[int, int]) -> QueueRecord | None:
        """Return what is there of a queue: of this backup, else of its base."""
        done = self._done.get(key)
        if done is not None:
            return done[1]
        queue = None if self._base is None else self._base.queue(*key)
        if queue is None or not self._faults:
            return queue
        return whole_part(queue, lambda record, _kind: self._is_there(record))

    def _check_room(self) -> None:
        """Refuse before anything is written, if it would not fit.

        Raises:
            Unavailable: DISK_FULL.
        """
        free = self.store.free_bytes()
        wanted = self._expected + SPARE_BYTES
        if free is not None and free < wanted:
            raise Unavailable(
                f"{self.store.url} has {free >> 20} MiB free, and this backup takes about "
                f"{wanted >> 20} MiB: free some, or choose another place",
                "DISK_FULL",
            )

    def _begin(self) -> None:
        """Let everybody see that this backup is written, and what it needs.

        Raises:
            Unavailable: BUSY, another process writes it, or the base is gone.
        """
        if self.id:
            self._write_progress(owner=self._owner)
        else:
            self._begun_ms = int(time.time() * 1000)
            self._begin_folder()
        # From here on nobody removes what the base needs, but somebody may have begun before.
        base = self._base
        if base is not None and self._reader.find_manifest(base.id) is None:
            raise Unavailable(
                f"backup {base.id} at {self.store.url}, which this one continues, was removed "
                "just now: give the same command again",
                "BUSY",
            )

    def _begin_folder(self) -> None:
        """Take a folder of its own.

        Raises:
            Unavailable: BUSY, another process has taken it.
        """
        folder = new_id(self.store.folders(), time.time())
        if not self._claim(folder, None):
            raise self._busy(folder)

    def _write_state(self, state: ClusterSnapshot) -> None:
        self.store.write(f"{self.id}/{STATE}", msgspec.msgpack.encode(state))

    # ── the queues ──────────────────────────────────────────────────────────────────────────────

    def _copy_all(
        self,
        topics: Iterable[TopicView],
        before: dict[tuple[int, int], _QueueNote],
        state: ClusterSnapshot,
    ) -> None:
        queues = [(topic, number) for topic in topics for number in range(len(topic.queues))]
        with (
            ThreadPoolExecutor(self.options.workers, "backup") as pool,
            ThreadPoolExecutor(self.options.workers, "backup-fetch") as fetches,
        ):
            copier = QueueCopier(self, fetches, state.version)
            futures = [
                pool.submit(copier.copy, topic, number, before.get((topic.id, number)))
                for topic, number in queues
            ]
            try:
                self._await(futures)
            # Ctrl-C too: the other queues end at their next block.
            except BaseException:
                self._stop.set()
                for future in futures:
                    future.cancel()
                raise

    @staticmethod
    def _await(futures: list[Future[None]]) -> None:
        """Wait for all queues, or for the first that fails.

        Raises:
            LogboomError: that of the first queue that failed.
        """
        left = set(futures)
        while left:
            # A wait without an end could not be interrupted by Ctrl-C on every platform.
            done, left = wait(left, timeout=0.5, return_when=FIRST_EXCEPTION)
            failed = [error for each in done if (error := each.exception()) is not None]
            for error in failed:
                if not isinstance(error, _Stopped):
                    raise error

    def fetch(self, wanted: EntryRange) -> FetchedEntries:
        """Ask the leader of a queue."""
        return self._client.admin.fetch_entries(wanted)

    def put(self, topic: TopicView, queue: QueueRecord) -> None:
        """Note what is finished of a queue."""
        with self._lock:
            self._done[topic.id, queue.queue] = (topic, queue)
        self._tell()

    def _tell(self) -> None:
        """Write the progress now and then, which also says that this process goes on."""
        if time.monotonic() >= self._progress_at:
            self._write_progress(owner=self._owner)

    def note(self, text: str) -> None:
        """Note something for whoever relies on the backup."""
        with self._lock:
            self._notes.append(text)

    def leave_out(self, topic: TopicView) -> None:
        """Leave out a topic that was deleted: half of it must not look like a backup of it."""
        with self._lock:
            self._deleted.add(topic.id)
        self.note(f"topic {topic.name} was deleted while it was backed up: it is left out")

    def count(self, size: int) -> None:
        """Count bytes that were read, and wait as the rate demands.

        Raises:
            _Stopped: the backup ends.
        """
        with self._lock:
            self._written += size
            self._expected = max(self._expected, self._written)
            done, total = self._written, self._expected
            wait_s = self._pace.take(size, time.monotonic())
        self._on_progress(done, total)
        self._tell()
        while wait_s > 0 and not self._stop.wait(min(wait_s, PROGRESS_S)):
            wait_s -= PROGRESS_S
            self._tell()
        if self._stop.is_set():
            raise _Stopped

    def pause(self, seconds: float) -> None:
        """Wait before a leader is asked again: it tells nobody that it has more.

        Raises:
            _Stopped: the backup ends.
        """
        self._tell()
        if self._stop.wait(seconds):
            raise _Stopped

    @property
    def stopped(self) -> bool:
        """True if the backup ends."""
        return self._stop.is_set()

    # ── its files ───────────────────────────────────────────────────────────────────────────────

    def _records(self) -> list[TopicRecord]:
        by_topic: dict[int, tuple[str, list[QueueRecord]]] = {}
        for topic, queue in self._done.values():
            by_topic.setdefault(topic.id, (topic.name, []))[1].append(queue)
        return [
            TopicRecord(name, topic_id, sorted(queues, key=lambda queue: queue.queue))
            for topic_id, (name, queues) in sorted(by_topic.items(), key=lambda each: each[1][0])
        ]

    def _check_owner(self) -> None:
        """Refuse to go on with a backup that another process has taken over.

        Raises:
            Unavailable: BUSY.
        """
        if not self._owns:
            return
        try:
            owner = self._reader.progress(self.id).owner
        except FileNotFoundError:
            text = f"another process has finished or removed backup {self.id} at {self.store.url}"
            raise Unavailable(f"{text}: give the same command again", "BUSY") from None
        # Also if it is nobody's: another process had it, and may have written other files.
        if owner != self._owner:
            raise self._busy(self.id)

    def _write_progress(self, owner: str) -> None:
        if not self.id:
            return
        with self._lock:
            self._check_owner()
            self._progress_at = time.monotonic() + PROGRESS_S
            base = "" if self._base is None else self._base.id
            progress = Progress(
                self.id,
                self._cluster_id,
                base,
                self._begun_ms,
                owner,
                int(time.time() * 1000),
                self._records() if self._taken_over is None else self._taken_over.topics,
                list(self._notes),
                sorted(self._before.union(self._base_files)),
            )
            self.store.write(f"{self.id}/{PROGRESS}", encode_manifest(progress))
            self._owns = True

    def _finish(self, state: ClusterSnapshot, topics: Sequence[TopicView]) -> Manifest:
        """Write the manifest, which makes this a backup."""
        encoded = msgspec.msgpack.encode(state)
        chosen = {topic.id for topic in topics} - self._deleted
        self._done = {key: each for key, each in self._done.items() if key[0] in chosen}
        records = self._records()
        own = [
            record.size
            for topic in records
            for queue in topic.queues
            for record in (*queue.copies, *queue.segments)
            if record.backup == self.id
        ]
        manifest = Manifest(
            self.id,
            self._cluster_id,
            "" if self._base is None else self._base.id,
            self._begun_ms,
            int(time.time() * 1000),
            __version__,
            StateRecord(state.version, len(encoded), crc32c(encoded)),
            records,
            len(encoded) + sum(own),
            list(dict.fromkeys(self._notes)),
        )
        self._check_owner()
        self._check_files(manifest)
        self._remove_unnamed(manifest)
        self.store.write(f"{self.id}/{MANIFEST}", encode_manifest(manifest))
        try:
            # To prune takes the progress first, then looks for manifests, then removes files.
            self._check_owner()
        except LogboomError:
            self.store.remove(f"{self.id}/{MANIFEST}")
            raise
        self.store.remove(f"{self.id}/{PROGRESS}")
        return manifest

    def _check_files(self, manifest: Manifest) -> None:
        """Refuse a manifest that names files which are not there any more, such as by pruning.

        Raises:
            Unavailable: one is missing, or has another size.
        """
        there = {each: self.store.files(each) for each in manifest.needs()}
        wanted = [(self.id, STATE, manifest.state.size)]
        wanted += [(each.backup, each.file, each.size) for _, _, each in manifest.records()]
        for backup, file, size in wanted:
            if there[backup].get(file) != size:
                raise Unavailable(
                    f"{self.store.describe(f'{backup}/{file}')} was removed or changed while this "
                    "backup was made: give the same command again"
                )

    def _remove_unnamed(self, manifest: Manifest) -> None:
        """Remove files of an earlier try that the manifest does not name."""
        if not self.resumed and not manifest.notes:
            return
        own = {record.file for _, _, record in manifest.records() if record.backup == self.id}
        for name in self.store.files(self.id):
            if name not in own and name not in (STATE, PROGRESS, MANIFEST):
                self.store.remove(f"{self.id}/{name}")


class QueueCopier:
    """Copies queues; each is copied by one thread, which has the next entries fetched meanwhile."""

    def __init__(self, writer: BackupWriter, fetches: ThreadPoolExecutor, version: int) -> None:
        """Create a copier; `version` is that of the state at the cut."""
        self._writer = writer
        self._fetches = fetches
        self._version = version

    def copy(self, topic: TopicView, number: int, noted: _QueueNote | None) -> None:
        """Copy what is new in a queue, up to its HW or a decision after the cut.

        Raises:
            LogboomError: it cannot be read or written.
        """
        writer = self._writer
        if writer.stopped:
            raise _Stopped
        try:
            self._copy(topic, number, noted)
        except UnknownResource:
            if not writer.is_deleted(topic):
                raise forbidden(topic.name) from None
            writer.leave_out(topic)

    def _copy(self, topic: TopicView, number: int, noted: _QueueNote | None) -> None:
        writer = self._writer
        key = (topic.id, number)
        prior = writer.prior(key)
        while True:
            if prior is None:
                prior = self._begin(topic, number)
            answer = self._ask(topic, number, prior, None).result()
            if answer.head.start == "here":
                break
            writer.note(_gap_text(topic, prior, answer.head))
            prior = None
        # Later acknowledgements of subscriptions do not count, unless retention has shortened the
        # log since: then it may have whole cursors only after the place that was noted.
        until = (answer.head.hw_offset, answer.head.hw_side)
        # A queue without a note was made after all ends were noted, so none of its
        # acknowledgements counts.
        if noted is None:
            cursors_end = (0, 0) if prior.begin == (0, 0) else until
        else:
            cursors_end = noted.hw if prior.begin[0] <= noted.log_start else until
        record = msgspec.structs.replace(
            prior, cursors_end=cursors_end, leader_epoch=answer.head.leader_epoch, decided=False
        )
        self._entries(topic, record, answer, until)

    def _begin(self, topic: TopicView, number: int) -> QueueRecord:
        """Begin with the log's start, and with the copies of compaction from before it."""
        writer = self._writer
        head = writer.fetch(EntryRange(topic.name, topic.id, number)).head
        at = (head.offset, head.side)
        record = QueueRecord(
            number, at, at, head.last_epoch, head.leader_epoch, at, bytes(head.state)
        )
        if head.compacts and at[0] > 0:
            record = msgspec.structs.replace(record, copies=self._copies(topic, number, at[0]))
        return record

    def _ask(
        self, topic: TopicView, number: int, record: QueueRecord, until: LogPosition | None
    ) -> Future[FetchedEntries]:
        wanted = EntryRange(
            topic.name,
            topic.id,
            number,
            record.end,
            record.last_epoch,
            min(FETCH_BYTES, self._writer.options.segment_bytes),
            self._version,
            until,
        )
        return self._fetches.submit(self._writer.fetch, wanted)

    def _entries(
        self, topic: TopicView, record: QueueRecord, answer: FetchedEntries, until: LogPosition
    ) -> None:
        """Write the entries of an answer and all that follow, segment by segment."""
        writer = self._writer
        while answer.frames or answer.head.more:
            if not answer.frames:
                # They are staged at the leader, and its store shows them after its next turn.
                writer.pause(STAGED_WAIT_S)
                answer = self._ask(topic, record.queue, record, until).result()
                if answer.head.start != "here":
                    break
                continue
            record, answer = self._segment(topic, record, answer, until)
            writer.put(topic, record)
        if answer.head.start != "here":
            # Retention, or an unclean election, was faster: begin again, and say so.
            writer.note(_gap_text(topic, record, answer.head))
            again = self._begin(topic, record.queue)
            first = self._ask(topic, record.queue, again, None).result()
            end = (first.head.hw_offset, first.head.hw_side)
            self._entries(topic, msgspec.structs.replace(again, cursors_end=end), first, end)
            return
        writer.put(topic, msgspec.structs.replace(record, decided=answer.head.decided))

    def _segment(
        self, topic: TopicView, record: QueueRecord, answer: FetchedEntries, until: LogPosition
    ) -> tuple[QueueRecord, FetchedEntries]:
        """Write one segment file; return the record with it, and the answer that comes after it."""
        writer = self._writer
        backup, store = writer.id, writer.store
        name = segment_name(topic.id, record.queue, record.end, "entries")
        header = SegmentHead("entries", topic.id, record.queue, record.end)
        with store.create(f"{backup}/{name}") as file:
            segment = SegmentWriter(file, header)
            while True:
                head = answer.head
                end = (head.offset, head.side)
                record = msgspec.structs.replace(record, end=end, last_epoch=head.last_epoch)
                following = self._ask(topic, record.queue, record, until) if head.more else None
                content = bytes(answer.frames[0])
                segment.write(content, head.crc, head.count, head.messages, end)
                writer.count(len(content))
                if following is None:
                    answer = FetchedEntries(head, [])
                    break
                answer = following.result()
                full = segment.size >= writer.options.segment_bytes
                if not answer.frames or answer.head.start != "here" or full:
                    break
            segment.finish()
        made = segment.record(backup, name, record.last_epoch)
        return msgspec.structs.replace(record, segments=[*record.segments, made]), answer

    def _copies(self, topic: TopicView, number: int, stop: int) -> list[SegmentRecord]:
        """Write the survivors from before the log's start."""
        writer = self._writer
        backup, store = writer.id, writer.store
        name = segment_name(topic.id, number, (0, 0), "copies")
        at, tries, count = 0, 0, 0
        with store.create(f"{backup}/{name}") as file:
            segment = SegmentWriter(file, SegmentHead("copies", topic.id, number, (0, 0)))
            while at < stop:
                wanted = EntryRange(
                    topic.name, topic.id, number, (stop, 0), -1, FETCH_BYTES, copies=(at, stop)
                )
                answer = writer.fetch(wanted)
                if answer.head.copied < 0:
                    tries += 1
                    if tries > COPIES_TRIES:
                        text = f"queue {number} of {topic.name} is not compacted up to {stop}: wait"
                        raise Unavailable(text)
                    # The leader compacts meanwhile.
                    writer.pause(COPIES_WAIT_S)
                    continue
                at, tries = answer.head.copied, 0
                pairs = zip(answer.head.survivors, answer.frames, strict=True)
                content = b"".join(encode_copy(bits, bytes(frame)) for bits, frame in pairs)
                if content:
                    segment.write(content, crc32c(content), len(answer.frames), 0, (at, 0))
                    count += len(answer.frames)
                    writer.count(len(content))
            segment.finish()
        return [segment.record(backup, name, -1)]


def forbidden(topic: str) -> Forbidden:
    """Build the error for a topic that the user does not see."""
    return Forbidden(
        f"topic {topic!r} is hidden from this user, and a backup needs all that are chosen: ask an "
        "administrator for `logboom acl add user:NAME allow describe topic '*'`, and the same for "
        "`group '*'` and `subscription '*'`, whose retries and dead letters are topics too",
        verb="describe",
        kind="topic",
        name=topic,
    )


def _faults_text(base: Manifest, faults: Sequence[str]) -> str:
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return (
        f"backup {base.id} cannot be restored any more, because {faults[0]}{more} is missing or has "
        "another size; this backup copies again what is needed"
    )


def _gap_text(topic: TopicView, prior: QueueRecord, head: EntriesFetched) -> str:
    where = f"queue {prior.queue} of {topic.name}"
    if head.start == "trimmed":
        return (
            f"{where}: retention removed offsets {prior.end[0]} to {head.log_start} before they were "
            f"copied; its copy begins anew at {head.log_start}"
        )
    return (
        f"{where}: its log differs from what was copied before (an unclean election, or damage); its "
        f"copy begins anew at {head.log_start}"
    )


def new_id(taken: Iterable[str], now: float) -> str:
    """Return the id of a new backup: its time in UTC, or the second after the newest that there is.

    Backups are in the order of their ids, also if the clock went back, or if several were made
    within a second and some of them are removed by now.

    Args:
        taken: names of the folders at the destination; those that are no ids do not count.
        now: seconds since 1970.
    """
    at = int(now)
    for name in taken:
        with suppress(ValueError):
            made = datetime.strptime(name, ID_FORMAT).replace(tzinfo=UTC)
            at = max(at, int(made.timestamp()) + 1)
    return datetime.fromtimestamp(at, UTC).strftime(ID_FORMAT)
