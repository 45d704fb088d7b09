"""What waits in one queue: derived from the entries below the HW, the same on every replica (Q12).

An append only notes what an entry parks, releases or recalls; `apply` later turns what lies below
the HW into rows of family `parked`, in the same write as the position that it came to. A cut undoes
nothing of it. Batches stay in the log: the rows say where.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from logboom.nodes import parked_rows as rows
from logboom.nodes.keys import Position, queue_end, queue_key
from logboom.nodes.storage import Storage, WriteSet
from logboom.wire.batch import control_body, released_from
from logboom.wire.head import Attribute, BatchHead, Kind
from logboom.wire.parking import parked_body, recalled_body

APPLIED_AT_ONCE: Final = 4096
"""Entries that one turn applies to a queue."""


class _Note(NamedTuple):
    """One entry that parks a batch, or ends a parking."""

    at: Position
    kind: Kind
    """PARKED, RECALLED, or MESSAGES: released."""
    subject: Position
    """Where the parked batch stands."""
    due_ms: int
    size: int = 0
    """Bytes of a PARKED entry."""
    carried: tuple[Position, Position] | None = None
    """Of one that was parked before: where first, and where last."""


class Applied(NamedTuple):
    """What an `apply` did."""

    reach: Position
    """Everything before is applied."""
    more: bool
    """There is more below the HW."""
    changed: bool
    """Rows were staged."""
    ended: list[Position]
    """Where nothing is parked any more."""


class ParkedQueue:
    """The parked batches of one queue."""

    def __init__(self, topic_id: int, queue: int) -> None:
        self.ids = (topic_id, queue)
        self.count = 0
        """Batches that wait, below the HW."""
        self.size = 0
        """Bytes of their entries in the log."""
        self.recalled = 0
        """Recalls that are remembered."""
        self.cursor = rows.first_due(self.ids)
        """Key from which the leader of this epoch still has to look for what is due."""
        self.next_due_ms: int | None = None
        """Nothing at or behind the cursor is due before; None: nothing is there."""
        self._noted: deque[_Note] = deque()

    def load(self, storage: Storage) -> None:
        """Take up what the store holds.

        Raises:
            DataDamaged: the store cannot be read.
        """
        self.count, self.size, self.recalled = rows.counts(storage, self.ids)
        self.rewind()

    def rewind(self) -> None:
        """A leadership begins: nothing has been released in it."""
        self.cursor = rows.first_due(self.ids)
        self.next_due_ms = 0 if self.count else None

    @property
    def behind(self) -> bool:
        """Whether anything is noted that is not applied."""
        return bool(self._noted)

    # ── from the log ────────────────────────────────────────────────────────────────────────────

    def note(self, head: BatchHead, entry: bytes, at: Position) -> None:
        """An entry was appended at `at`; in log order.

        Raises:
            DamagedBatch: its body is none of its kind.
        """
        if not head.is_control:
            if head.has(Attribute.RELEASED):
                subject = released_from(entry, head)
                assert subject is not None
                self._noted.append(_Note(at, Kind.MESSAGES, Position(*subject), 0))
        elif head.kind == Kind.PARKED:
            parked = parked_body(control_body(entry, head))
            carried = None
            if parked.carried is not None:
                carried = Position(*parked.carried[0]), Position(*parked.carried[1])
            self._noted.append(_Note(at, Kind.PARKED, at, parked.due_ms, len(entry), carried))
        elif head.kind == Kind.RECALLED:
            subject = recalled_body(control_body(entry, head))
            self._noted.append(_Note(at, Kind.RECALLED, Position(*subject), 0))

    def apply(self, hw: Position, storage: Storage, writes: WriteSet) -> Applied:
        """Stage what the noted entries below `hw` say; once per turn, since what it stages cannot
        be read before the next.

        Raises:
            DataDamaged: the store cannot be read.
        """
        fresh: dict[Position, rows.Standing | None] = {}
        ended: list[Position] = []
        noted, done = self._noted, 0
        while noted and noted[0].at < hw and done < APPLIED_AT_ONCE:
            note = noted[0]
            left = note.subject if note.carried is None else note.carried[1]
            if left != note.at:
                standing = (
                    fresh[left] if left in fresh else rows.standing_at(storage, self.ids, left)
                )
                if standing is not None:
                    fresh[left] = None
                    self._end(note, left, standing, writes)
                ended.append(left)
            if note.kind == Kind.PARKED:
                self._park(note, fresh, writes)
            noted.popleft()
            done += 1
        if done:
            self._put_counts(writes)
        more = bool(noted) and noted[0].at < hw
        return Applied(noted[0].at if more else hw, more, done > 0, ended)

    def _put_counts(self, writes: WriteSet) -> None:
        rows.put_counts(writes, self.ids, rows.Counts(self.count, self.size, self.recalled))

    def _park(
        self, note: _Note, fresh: dict[Position, rows.Standing | None], writes: WriteSet
    ) -> None:
        first = note.at if note.carried is None else note.carried[0]
        standing = rows.Standing(note.due_ms, note.size, first)
        rows.put(writes, self.ids, note.at, standing)
        fresh[note.at] = standing
        self.count += 1
        self.size += note.size
        self.cursor = min(self.cursor, rows.due_key(self.ids, note.due_ms, note.at))
        if self.next_due_ms is None or note.due_ms < self.next_due_ms:
            self.next_due_ms = note.due_ms

    def _end(self, note: _Note, left: Position, standing: rows.Standing, writes: WriteSet) -> None:
        rows.remove(writes, self.ids, left, standing)
        self.count -= 1
        self.size -= standing.size
        if note.kind == Kind.RECALLED:
            rows.put_recalled(writes, self.ids, standing.first)
            self.recalled += 1

    # ── the log changes ─────────────────────────────────────────────────────────────────────────

    def cut(self, end: Position, writes: WriteSet, storage: Storage, *, below_hw: bool) -> None:
        """The log now ends at `end`.

        Below the HW only an unclean election or damage cuts. Then what was parked behind goes too;
        what had been parked before and released behind comes back with damage, since the same
        entries are fetched again, and is the loss of an unclean election.

        Raises:
            DataDamaged: the store cannot be read.
        """
        while self._noted and self._noted[-1].at >= end:
            self._noted.pop()
        if not below_hw or not (self.count or self.recalled):
            return
        for at, standing in rows.placed_from(storage, self.ids, end):
            rows.remove(writes, self.ids, at, standing)
            self.count -= 1
            self.size -= standing.size
        for key in rows.recalled_from(storage, self.ids, end):
            writes.delete("parked", key)
            self.recalled -= 1
        self._put_counts(writes)
        self.rewind()

    def reset(self, writes: WriteSet) -> None:
        """The log begins anew: all that is parked stands in it and comes again."""
        writes.delete_range("parked", queue_key(*self.ids), queue_end(*self.ids))
        self._noted.clear()
        self.count = self.size = self.recalled = 0
        self.rewind()

    def trim(self, start: Position, writes: WriteSet, storage: Storage) -> None:
        """Retention moved the log's start: forget recalls of what stood before.

        Raises:
            DataDamaged: the store cannot be read.
        """
        if not self.recalled:
            return
        gone = rows.recalled_before(storage, self.ids, start)
        for key in gone:
            writes.delete("parked", key)
        self.recalled -= len(gone)
        self._put_counts(writes)

    def limit(self, applied: Position, storage: Storage) -> int:
        """Offset that retention must not pass: of the oldest parked batch, or of what is not
        applied yet.

        Raises:
            DataDamaged: the store cannot be read.
        """
        if not self.count:
            return applied.offset
        first = rows.oldest(storage, self.ids)
        return applied.offset if first is None else min(first.offset, applied.offset)
