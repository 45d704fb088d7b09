"""The state of one queue's compaction, for readers that want only the latest message of each key.

Every replica derives it from committed entries on its own (Q12): which messages survive, and copies
of those that retention has removed from the log. The next leader therefore has them as well. A
replica whose log starts again after messages that others have copies of fetches these copies, and
does not join the ISR before it has them all.
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.log.keys import Position, queue_end, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica import compaction_rows
from logboom.nodes.replica.compaction_rows import CompactionCheckpoint, offset_key
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS
from logboom.wire.columns import Columns, open_steps
from logboom.wire.compression import STEP_BYTES
from logboom.wire.errors import DataDamaged
from logboom.wire.head import BatchHead
from logboom.wire.view import DELETE_RETENTION_MS


class OpenedBatch:
    """A batch that is opened in steps, and then read in several turns."""

    __slots__ = ("_steps", "base", "columns", "cost")

    def __init__(self, head: BatchHead, batch: bytes) -> None:
        self.base: Final = head.base_offset
        self.cost: Final = 1 + (head.count >> 9) + (min(head.plain_length, STEP_BYTES) >> 12)
        """What a step costs, in messages that the pass processes."""
        self.columns: Columns | None = None
        """None: not open yet."""
        self._steps = open_steps(head, batch)

    def open(self, units: int) -> int:
        """Open it, as far as the units allow; return what it has cost.

        Raises:
            DamagedBatch: the body is malformed.
        """
        spent = 0
        while self.columns is None and spent < units:
            spent += self.cost
            try:
                next(self._steps)
            except StopIteration as ended:
                self.columns = ended.value
        return spent


class CompactionState:
    """The progress of one queue's compaction."""

    def __init__(self, topic_id: int, queue: int) -> None:
        self.ids = (topic_id, queue)
        self.on = False
        """True if the topic is compacted, as far as this broker knows."""
        self.reach = 0
        """Everything before this offset is compacted: the horizon. While it is below the log's
        start, the pass goes through the copies again."""
        self.lacks: int | None = None
        """Copies from this offset up to the log's start have yet to be fetched; None: none."""
        self.at: Position | None = None
        """Where the entry that contains `reach` begins, once it was searched for."""
        self.opened: OpenedBatch | None = None
        """The batch that the last step did not finish."""
        self.kept = 0
        """Survivors of the log before this offset have been copied, for retention. It begins at the
        log's start again when the process does."""
        self.copying: OpenedBatch | None = None
        """The batch of which some survivors have been copied."""
        self.keeps_tombstones_ms = DELETE_RETENTION_MS
        """How long a tombstone is kept after the log (`delete_retention_ms` of the topic)."""
        self._staged: WriteSet | None = None

    def load(self, storage: Storage, log_start: int) -> None:
        """Resume at the stored checkpoint.

        If it cannot be read, start from the beginning: processing a message twice changes nothing.
        """
        try:
            found = compaction_rows.checkpoint(storage, self.ids)
        except DataDamaged:
            found = CompactionCheckpoint(0, 0 if log_start else None)
        if found is not None:
            self.on = True
            self.reach, self.lacks = found

    def horizon(self, log_start: int) -> int:
        """The offset below which a reader sees only survivors."""
        return max(self.reach, log_start) if self.on else 0

    # ── staging ─────────────────────────────────────────────────────────────────────────────────

    def may_stage(self, writes: WriteSet) -> bool:
        """Return True if nothing was staged in this turn.

        What was staged is not visible yet, and a second change would undo the first.
        """
        return self._staged is not writes

    def stage(self, writes: WriteSet) -> None:
        """Stage the checkpoint together with the changes."""
        self._staged = writes
        compaction_rows.put_checkpoint(
            writes, self.ids, CompactionCheckpoint(self.reach, self.lacks)
        )

    def _begin_again(self) -> None:
        self.at = self.opened = self.copying = None
        self.kept = 0

    def _wipe(self, writes: WriteSet) -> None:
        self._staged = writes
        self._begin_again()
        writes.delete_range("compact", queue_key(*self.ids), queue_end(*self.ids))

    def begin(self, writes: WriteSet, log_start: int, *, leads: bool) -> None:
        """Begin to compact, because the topic is compacted from now on or its log starts again.

        A leader has everything there is. A follower may follow a leader that has compacted before.
        """
        self._wipe(writes)
        self.on, self.reach = True, log_start
        self.lacks = 0 if log_start and not leads else None
        self.stage(writes)

    def end(self, writes: WriteSet) -> None:
        """End compaction of the topic: messages that only the copies held are gone."""
        self._wipe(writes)
        self.on, self.reach, self.lacks = False, 0, None

    def reset(self, writes: WriteSet, log_start: int) -> None:
        """Follow the log, which starts again at `log_start`."""
        if self.on:
            self.begin(writes, log_start, leads=False)

    def cut(self, end: Position, writes: WriteSet, storage: Storage, log_start: int) -> None:
        """Follow a truncation of the log to `end`.

        Only an unclean election or damage truncates below the HW.
        """
        self._begin_again()
        if self.on and end.offset < self.reach:
            self.rebuild(writes, storage, log_start)

    def rebuild(self, writes: WriteSet, storage: Storage, log_start: int) -> None:
        """Derive everything again: first from the copies, then from the log, which lacks those.

        Raises:
            DataDamaged: the surviving part of the copies cannot be read.
        """
        if self.lacks is not None:
            self.begin(writes, log_start, leads=False)
            return
        number, within = log_start >> BLOCK_BITS, log_start & (BLOCK - 1)
        kept = (
            compaction_rows.CompactionRows(storage, self.ids).block(number) & ((1 << within) - 1)
            if within
            else 0
        )
        self._begin_again()
        first, last = queue_key(*self.ids, b"k"), queue_key(*self.ids, b"l")
        writes.delete_range("compact", first, last)
        first, last = offset_key(self.ids, b"b", number), queue_key(*self.ids, b"c")
        writes.delete_range("compact", first, last)
        compaction_rows.put_block(writes, self.ids, number, kept)
        for letter, behind in ((b"m", b"n"), (b"n", b"o")):
            first, last = offset_key(self.ids, letter, log_start), queue_key(*self.ids, behind)
            writes.delete_range("compact", first, last)
        self.reach = 0
        self.stage(writes)

    def settle(self, writes: WriteSet) -> None:
        """Declare the copies of this replica complete, because it leads."""
        if self.lacks is not None:
            self.lacks = None
            self.stage(writes)
