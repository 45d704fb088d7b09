"""Restoring a backup: topics that take nothing else, their entries, groups, decisions, and the end.

Each step may be repeated, so an interrupted restore goes on where it was: every queue tells where
its log ends (see docs/SAFETY.md, K5).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final

import msgspec
from msgspec import Struct

from logboom.backup.backup_format import LogPosition, Manifest, QueueRecord, position_after
from logboom.backup.backup_reader import BackupReader, SurvivorCopy
from logboom.backup.restore_plan import (
    CutOffset,
    PlannedTopic,
    RestorePlan,
    decision_commands,
    group_commands,
    known_applications,
    lists_all,
    outstanding_decisions,
    undecided_aborts,
)
from logboom.client import Client
from logboom.client.admin_flows.backup_flows import EntriesToRestore
from logboom.client.admin_flows.open_transactions import OpenTransaction
from logboom.wire.backup_messages import ClusterSnapshot, EntriesRestored
from logboom.wire.batch import peek, split_entries
from logboom.wire.commands import FinishRestore, RestoredApplication
from logboom.wire.errors import DataDamaged, InvalidRequest, Unavailable

WORKERS: Final = 8
"""Queues that are restored at once."""
SEND_BYTES: Final = 4 * 1024 * 1024
"""Bytes of entries in one request, unless one is larger."""
NAMED_FAULTS: Final = 3
MOST_UNDECIDED: Final = 1 << 40
"""Batches that are listed: all."""
LIST_TRIES: Final = 600
"""How often undecided transactions are listed before a restore gives up."""
LIST_AGAIN_S: Final = 0.1
"""Seconds before undecided transactions are listed again."""
WHOLE_S: Final = 0.05
"""Seconds before a queue is asked again whether all its replicas have everything."""

ProgressCallback = Callable[[int], None]
"""Called with the bytes that are restored, from any thread."""


class RestoreReport(Struct, frozen=True):
    """What a restore has done."""

    backup: str
    topics: list[str]
    messages: int
    size: int
    """Bytes of entries."""
    groups: list[str]
    offsets_cut: list[CutOffset]
    transactions_aborted: int
    """Transactions that were undecided at the cut."""
    resumed: bool
    notes: list[str]


class _Stopped(Exception):
    """Another queue failed, or the restore was interrupted."""


class Restore:
    """One run of `restore`."""

    def __init__(
        self,
        client: Client,
        reader: BackupReader,
        manifest: Manifest,
        state: ClusterSnapshot,
        plan: RestorePlan,
        on_progress: ProgressCallback = lambda done: None,
        workers: int = WORKERS,
    ) -> None:
        self._client = client
        self._reader = reader
        self._manifest = manifest
        self._state = state
        self._plan = plan
        self._on_progress = on_progress
        self._workers = workers
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._done = 0
        self._ids: dict[int, int] = {}
        """Topic id in the backup → topic id here, of what is not finished yet."""
        self._waiting: dict[tuple[int, int], int] = {}
        """(topic id here, queue) → batches of it that wait for a decision."""

    def run(self) -> RestoreReport:
        """Restore everything that the plan names; if it was begun before, go on.

        Raises:
            DataDamaged: a file of the backup is damaged or missing, and named. The topics go on
                being restored.
            LogboomError: the cluster or the store cannot be used.
        """
        admin, plan = self._client.admin, self._plan
        admin.restore(plan.counters)
        left = [topic for topic in plan.topics if not topic.finished]
        for topic in left:
            value = admin.restore(topic.command).value
            assert isinstance(value, int)
            self._ids[topic.record.id] = value
        self._restore_all(left)
        commands, cut = group_commands(plan, self._state, self._ids)
        for command in commands:
            admin.restore(command)
        aborted = self._decide()
        self._set_settings()
        for topic in left:
            topic_id = self._ids[topic.record.id]
            admin.restore(FinishRestore(topic.command.name, topic_id, plan.backup))
        return RestoreReport(
            self._manifest.id,
            [topic.command.name for topic in plan.topics],
            plan.messages,
            plan.size,
            plan.groups,
            cut,
            aborted,
            plan.resumed,
            plan.notes,
        )

    def _set_settings(self) -> None:
        """Set the settings and the default quota of the cut."""
        admin, plan = self._client.admin, self._plan
        for scope in sorted({each.scope for each in plan.settings}):
            values = {each.name: each.value for each in plan.settings if each.scope == scope}
            admin.alter_settings(values, scope)
        if plan.default_quota is not None:
            admin.set_default_quota(**msgspec.structs.asdict(plan.default_quota))

    # ── queues ──────────────────────────────────────────────────────────────────────────────────

    def _restore_all(self, topics: Iterable[PlannedTopic]) -> None:
        queues = [(topic, queue) for topic in topics for queue in topic.record.queues]
        with ThreadPoolExecutor(self._workers, "restore") as pool:
            futures = [pool.submit(self._restore, *each) for each in queues]
            try:
                _await(futures)
            # Ctrl-C too: the other queues end at their next request.
            except BaseException:
                self._stop.set()
                for future in futures:
                    future.cancel()
                raise

    def _restore(self, topic: PlannedTopic, queue: QueueRecord) -> None:
        """Restore one queue, and wait until all its in-sync replicas have it.

        Raises:
            LogboomError: it cannot be read or written.
        """
        end = self._send(topic, queue)
        if end.offset == 0 and end.side == 0 and queue.begin != (0, 0):
            end = self._send(topic, queue, at=queue.begin, state=queue.state)
        self._count(self._size_before(queue, (end.offset, end.side)))
        if end.lacks >= 0:
            self._restore_copies(topic, queue, end)
        while (end.offset, end.side) != queue.end:
            at = (end.offset, end.side)
            if not queue.begin <= at < queue.end or end.log_start != queue.begin[0]:
                raise InvalidRequest(
                    f"queue {queue.queue} of {topic.command.name} is at {at}, and the backup has "
                    f"{queue.begin} to {queue.end}: give up this restore (--abandon) and repeat it"
                )
            end = self._append(topic, queue, at)
        while not end.whole:
            # An answer tells what was whole when its request came, so the first question is at once.
            end = self._send(topic, queue)
            if (end.offset, end.side) != queue.end or end.lacks >= 0:
                # A broker that had less leads now: go on from there.
                self._restore(topic, queue)
                return
            if not end.whole:
                self._pause(WHOLE_S)
        if end.last_epoch != queue.last_epoch:
            text = f"queue {queue.queue} of {topic.command.name} is not what the backup has"
            raise DataDamaged(f"{text}: give up this restore (--abandon) and repeat it")
        with self._lock:
            self._waiting[self._ids[topic.record.id], queue.queue] = end.undecided

    def _append(
        self, topic: PlannedTopic, queue: QueueRecord, begin: LogPosition
    ) -> EntriesRestored:
        """Append from a position on, up to the end or to where the leader has another end."""
        end: EntriesRestored | None = None
        for block in self._reader.entries(topic.record.id, queue, begin):
            at = block.begin
            for content, count, after in _split(block.content, block.entries, at, block.end):
                end = self._send(topic, queue, at=at, content=content, count=count)
                if (end.offset, end.side) != after:
                    return end
                at = after
                self._count(len(content))
        if end is None:
            raise DataDamaged(f"the backup has no entries of {topic.record.name} from {begin} on")
        return end

    def _restore_copies(
        self, topic: PlannedTopic, queue: QueueRecord, end: EntriesRestored
    ) -> None:
        """Send the copies of compaction from before the log's start."""
        lacks, start = end.lacks, end.log_start
        page: list[SurvivorCopy] = []
        size = 0
        for copy in self._reader.copies(topic.record.id, queue):
            head = peek(copy.batch)
            if head.base_offset + head.count <= lacks:
                continue
            if page and size + len(copy.batch) > SEND_BYTES // 4:
                lacks = self._send_copies(topic, queue, lacks, head.base_offset, page)
                page, size = [], 0
            page.append(copy)
            size += len(copy.batch)
        lacks = self._send_copies(topic, queue, lacks, start, page)
        if lacks < start:
            # A page without copies completes them.
            self._send_copies(topic, queue, lacks, start, [])

    def _send_copies(
        self,
        topic: PlannedTopic,
        queue: QueueRecord,
        lacks: int,
        copied: int,
        page: list[SurvivorCopy],
    ) -> int:
        content = b"".join(bytes(each.batch) for each in page)
        end = self._send(
            topic,
            queue,
            at=(lacks, 0),
            content=content,
            survivors=[each.bits for each in page],
            copied=copied,
        )
        self._count(len(content))
        return end.log_start if end.lacks < 0 else end.lacks

    def _send(
        self,
        topic: PlannedTopic,
        queue: QueueRecord,
        at: LogPosition = (0, 0),
        content: bytes = b"",
        count: int = 0,
        state: bytes = b"",
        survivors: list[bytes] | None = None,
        copied: int = -1,
    ) -> EntriesRestored:
        if self._stop.is_set():
            raise _Stopped
        return self._client.admin.restore_entries(
            EntriesToRestore(
                topic.command.name,
                self._ids[topic.record.id],
                queue.queue,
                self._plan.backup,
                at,
                content,
                count,
                state,
                survivors,
                copied,
            )
        )

    @staticmethod
    def _size_before(queue: QueueRecord, end: LogPosition) -> int:
        """Return the bytes of files that a former try has restored."""
        return sum(record.size for record in queue.segments if record.end <= end)

    def _count(self, size: int) -> None:
        with self._lock:
            self._done += size
            done = self._done
        self._on_progress(min(done, self._plan.size))

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _Stopped

    # ── decisions ───────────────────────────────────────────────────────────────────────────────

    def _decide(self) -> int:
        """Add the decisions of the cut, and abort what was undecided; return how many were."""
        admin, plan = self._client.admin, self._plan
        decisions = outstanding_decisions(self._state, self._ids)
        applications = [] if plan.beside else known_applications(self._state)
        undecided = undecided_aborts(self._list_undecided(), set(self._ids.values()), decisions)
        aborted = {(each.app_id, each.sequence, each.attempt) for each in undecided}
        if not plan.beside:
            # Here no part of them can be committed any more; elsewhere they may be others'.
            applications += [
                RestoredApplication(app_id, 0, -1, [(sequence, attempt)])
                for app_id, sequence, attempt in sorted(aborted)
            ]
        for command in decision_commands(plan.backup, applications, [*decisions, *undecided]):
            admin.restore(command)
        return len(aborted)

    def _list_undecided(self) -> list[OpenTransaction]:
        """Return all undecided transactions, once those of the restored queues are complete.

        Raises:
            Unavailable: a broker does not list what it must have.
        """
        for _ in range(LIST_TRIES):
            found = self._client.admin.transactions(most=MOST_UNDECIDED).transactions
            if lists_all(found, self._waiting):
                return found
            # Another broker leads since, and learns from its log what is parked.
            self._pause(LIST_AGAIN_S)
        raise Unavailable(
            "the undecided transactions of the restored queues are not known yet: give the same "
            "command again"
        )


def _split(
    content: bytes, entries: int, begin: LogPosition, end: LogPosition
) -> Iterator[tuple[bytes, int, LogPosition]]:
    """Yield (entries, their number, position after them) of a block, each small enough to send."""
    if len(content) <= SEND_BYTES:
        yield content, entries, end
        return
    parts: list[memoryview] = []
    size, at = 0, begin
    for entry in split_entries(content):
        if parts and size + len(entry) > SEND_BYTES:
            yield b"".join(parts), len(parts), at
            parts, size = [], 0
        at = position_after(at, peek(entry).count)
        parts.append(entry)
        size += len(entry)
    if parts:
        yield b"".join(parts), len(parts), at


def _await(futures: list[Future[None]]) -> None:
    """Wait for all queues, or for the first that fails.

    Raises:
        LogboomError: that of the first queue that failed.
    """
    left = set(futures)
    while left:
        # A wait without an end could not be interrupted by Ctrl-C on every platform.
        done, left = wait(left, timeout=0.5, return_when=FIRST_EXCEPTION)
        for each in done:
            error = each.exception()
            if error is not None and not isinstance(error, _Stopped):
                raise error


def abandon_restore(client: Client, backup: str) -> list[str]:
    """Delete the topics that are being restored from a backup; return their names."""
    gone = [each.name for each in client.admin.read_state().topics if each.restoring == backup]
    for name in gone:
        client.admin.delete_topic(name)
    return gone


def check_files(reader: BackupReader, plan: RestorePlan) -> None:
    """Compare the sizes of all files that a restore reads, before anything is changed.

    Raises:
        DataDamaged: some are missing or have other sizes; the first ones are named.
    """
    sizes: dict[str, dict[str, int]] = {}
    faults: list[str] = []
    for topic in plan.topics:
        for queue in topic.record.queues:
            for record in (*queue.copies, *queue.segments):
                if record.backup not in sizes:
                    sizes[record.backup] = reader.store.files(record.backup)
                found = sizes[record.backup].get(record.file)
                name = reader.store.describe(f"{record.backup}/{record.file}")
                if found is None:
                    faults.append(f"{name} is missing")
                elif found != record.size:
                    what = "truncated" if found < record.size else "damaged"
                    faults.append(f"{name} is {what}: {found} bytes instead of {record.size}")
    if faults:
        more = f" (and {len(faults) - NAMED_FAULTS} more)" if len(faults) > NAMED_FAULTS else ""
        raise DataDamaged(
            f"{'; '.join(faults[:NAMED_FAULTS])}{more}: `logboom backup verify` checks everything, "
            "and an earlier backup may be whole"
        )


def free_bytes(client: Client) -> dict[str, int]:
    """Return the free bytes of each live broker's disk."""
    found: dict[str, int] = {}
    for each in client.admin.stats():
        free = each.counters.get("free_bytes")
        if each.role == "broker" and isinstance(free, int):
            found[each.node] = free
    return found


__all__ = ["Restore", "RestoreReport", "abandon_restore", "check_files", "free_bytes"]
