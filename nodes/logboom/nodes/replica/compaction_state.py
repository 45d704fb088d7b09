"""What compaction knows of one queue: for a reader who wants the latest of each key and no more.

Every replica derives it by itself from what lies below the HW (Q12): which messages survive, and,
of those that retention took out of the log, a copy. So whoever leads next has them as well. A
replica whose log begins anew behind messages that others have copies of fetches these copies, and
does not join the ISR before it has them all.
"""

from __future__ import annotations

from logboom.nodes.log.keys import Position, queue_end, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica import compaction_rows
from logboom.nodes.replica.compaction_rows import CompactionCheckpoint, offset_key
from logboom.nodes.replica.offset_set import BLOCK, BLOCK_BITS
from logboom.wire.columns import Columns
from logboom.wire.errors import DataDamaged


class CompactionState:
    """How far one queue's compaction has come."""

    def __init__(self, topic_id: int, queue: int) -> None:
        self.ids = (topic_id, queue)
        self.on = False
        """Whether the topic is compacted, as far as this broker knows."""
        self.reach = 0
        """Everything before this offset is compacted: the horizon. Below the log's start, the
        copies are being gone through again."""
        self.lacks: int | None = None
        """Copies from this offset up to the log's start have yet to be fetched; None: none."""
        self.at: Position | None = None
        """Where the entry begins that holds `reach`, once it was looked for."""
        self.opened: tuple[int, Columns] | None = None
        """The batch that the last step did not finish, by its first offset."""
        self._staged: WriteSet | None = None

    def load(self, storage: Storage, log_start: int) -> None:
        """Take up where the store says that it stands; if that cannot be read, go through
        everything again: what is taken in twice changes nothing."""
        try:
            found = compaction_rows.checkpoint(storage, self.ids)
        except DataDamaged:
            found = CompactionCheckpoint(0, 0 if log_start else None)
        if found is not None:
            self.on = True
            self.reach, self.lacks = found

    def horizon(self, log_start: int) -> int:
        """Below it a reader sees survivors alone."""
        return max(self.reach, log_start) if self.on else 0

    # ── staging ─────────────────────────────────────────────────────────────────────────────────

    def may_stage(self, writes: WriteSet) -> bool:
        """Whether nothing was staged in this turn: what was is not visible yet, and a second
        change would undo the first."""
        return self._staged is not writes

    def stage(self, writes: WriteSet) -> None:
        """Stage where it stands, along with what changed."""
        self._staged = writes
        compaction_rows.put_checkpoint(
            writes, self.ids, CompactionCheckpoint(self.reach, self.lacks)
        )

    def _wipe(self, writes: WriteSet) -> None:
        self._staged = writes
        self.at = self.opened = None
        writes.delete_range("compact", queue_key(*self.ids), queue_end(*self.ids))

    def begin(self, writes: WriteSet, log_start: int, *, leads: bool) -> None:
        """The topic is compacted from now on, or its log begins anew.

        Who leads has what there is. Another may follow one that compacted for a while already.
        """
        self._wipe(writes)
        self.on, self.reach = True, log_start
        self.lacks = 0 if log_start and not leads else None
        self.stage(writes)

    def end(self, writes: WriteSet) -> None:
        """The topic is not compacted any more: what only the copies held is gone."""
        self._wipe(writes)
        self.on, self.reach, self.lacks = False, 0, None

    def reset(self, writes: WriteSet, log_start: int) -> None:
        """The log begins anew at `log_start`."""
        if self.on:
            self.begin(writes, log_start, leads=False)

    def cut(self, end: Position, writes: WriteSet, storage: Storage, log_start: int) -> None:
        """The log now ends at `end`. Below the HW only an unclean election or damage cuts."""
        self.at = self.opened = None
        if self.on and end.offset < self.reach:
            self.rebuild(writes, storage, log_start)

    def rebuild(self, writes: WriteSet, storage: Storage, log_start: int) -> None:
        """Derive everything anew: from the copies, which no log holds, and then from the log.

        Raises:
            DataDamaged: what survives of the copies cannot be read.
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
        self.at = self.opened = None
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
        """What this replica holds is the queue now: it leads."""
        if self.lacks is not None:
            self.lacks = None
            self.stage(writes)
