"""What waits in one queue: derived from the entries below the HW, the same on every replica (Q12).

An append only notes what an entry parks, releases, recalls or decides; `apply` later turns what
lies below the HW into rows of family `parked`, in the same write as the position that it came to. A
cut undoes nothing of it. Batches stay in the log: the rows say where.

A DECIDED entry drops what its decision ends and does not list. What it lists is released right
behind, maybe over several turns: until all of that lies below the HW, readers see nothing from the
entry on.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from logboom.nodes.disk.storage import Storage, WriteSet
from logboom.nodes.log.keys import Position, queue_end, queue_key
from logboom.nodes.parked import rows
from logboom.nodes.transactions import decided_rows
from logboom.nodes.transactions.decided_rows import Open, Progress, Waits
from logboom.wire.batch import control_body, control_view, peek, released_from
from logboom.wire.head import Attribute, BatchHead, Kind
from logboom.wire.parking import parked_body, recalled_body
from logboom.wire.transactions import Decided, decided_body

APPLIED_AT_ONCE: Final = 4096
"""Entries that one turn applies to a queue."""
DROPPED_AT_ONCE: Final = 1024
"""Batches that one turn drops for a decision; it may end any number of them."""


class _Note(NamedTuple):
    """One entry that parks a batch, or ends a parking."""

    at: Position
    kind: Kind
    """PARKED, RECALLED, DECIDED, or MESSAGES: released."""
    subject: Position
    """Where the parked batch stands."""
    due_ms: int
    size: int = 0
    """Bytes of a PARKED entry."""
    carried: tuple[Position, Position] | None = None
    """Of one that was parked before: where first, and where last."""
    waits: Waits | None = None
    """Of a PARKED entry: whose decision it waits for; None: for its time."""
    decided: Decided | None = None
    """What a DECIDED entry holds."""


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
    decided: bool
    """Decisions were carried out: readers may see more."""


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
        self.undecided = 0
        """Batches that wait for a decision, below the HW."""
        self.done = 0
        """Number of the last decision that was carried out, below the HW."""
        self.release: Open | None = None
        """A release that has begun and is not complete, below the HW."""
        self._reached = Progress()
        """What was written down of these three."""
        self._noted: deque[_Note] = deque()
        self._releases: deque[Position] = deque()
        """Where the noted DECIDED entries stand that release something."""

    def load(self, storage: Storage) -> None:
        """Take up what the store holds.

        Raises:
            DataDamaged: the store cannot be read.
        """
        self.count, self.size, self.recalled = rows.counts(storage, self.ids)
        self._reached = decided_rows.progress(storage, self.ids)
        self.undecided, self.done, self.release = self._reached
        self.rewind()

    def rewind(self) -> None:
        """A leadership begins: nothing has been released in it."""
        self.cursor = rows.first_due(self.ids)
        self.next_due_ms = 0 if self.count else None

    @property
    def behind(self) -> bool:
        """Whether anything is noted that is not applied."""
        return bool(self._noted)

    @property
    def releases(self) -> bool:
        """Whether a release is under way, as far as the log goes."""
        return self.release is not None or bool(self._releases)

    def readable(self, hw: Position) -> Position:
        """How far readers see: the HW, or where a release begins that is not complete below it."""
        if self.release is not None:
            return min(hw, self.release.at)
        return min(hw, self._releases[0]) if self._releases else hw

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
            parked = parked_body(control_view(entry))
            carried = waits = None
            if parked.carried is not None:
                carried = Position(*parked.carried[0]), Position(*parked.carried[1])
            if parked.transaction is not None:
                waits = Waits(parked.transaction, peek(parked.batch).count)
            note = _Note(at, Kind.PARKED, at, parked.due_ms, len(entry), carried, waits)
            self._noted.append(note)
        elif head.kind == Kind.RECALLED:
            subject = recalled_body(control_body(entry, head))
            self._noted.append(_Note(at, Kind.RECALLED, Position(*subject), 0))
        elif head.kind == Kind.DECIDED:
            decided = decided_body(control_body(entry, head))
            self._noted.append(_Note(at, Kind.DECIDED, at, 0, decided=decided))
            if decided.places:
                self._releases.append(at)

    def apply(self, hw: Position, storage: Storage, writes: WriteSet) -> Applied:
        """Stage what the noted entries below `hw` say; once per turn, since what it stages cannot
        be read before the next.

        Raises:
            DataDamaged: the store cannot be read.
        """
        fresh: dict[Position, rows.Standing | None] = {}
        ended: list[Position] = []
        noted, done, before = self._noted, 0, self.done
        while noted and noted[0].at < hw and done < APPLIED_AT_ONCE:
            note = noted[0]
            if note.decided is not None:
                if done:
                    break  # what it ends must be in the store
                if not self._drop(note.decided, fresh, ended, storage, writes):
                    break  # the entry is applied once all that it drops is gone
                self._decide(note.decided, note.at, storage, writes)
            else:
                self._settle(note, fresh, ended, storage, writes)
            noted.popleft()
            done += 1
        changed = done > 0 or bool(ended)
        if changed:
            self._put_counts(writes)
        more = bool(noted) and noted[0].at < hw
        reach = noted[0].at if more else hw
        return Applied(reach, more, changed, ended, self.done > before)

    def _settle(
        self,
        note: _Note,
        fresh: dict[Position, rows.Standing | None],
        ended: list[Position],
        storage: Storage,
        writes: WriteSet,
    ) -> None:
        """An entry that parks a batch, or ends a parking, or both."""
        left = note.subject if note.carried is None else note.carried[1]
        if left != note.at:
            standing = fresh[left] if left in fresh else rows.standing_at(storage, self.ids, left)
            if standing is not None:
                fresh[left] = None
                self._end(left, standing, writes)
                if note.kind == Kind.RECALLED:
                    rows.put_recalled(writes, self.ids, standing.first)
                    self.recalled += 1
            ended.append(left)
            if self.release is not None and note.kind == Kind.MESSAGES:
                self._released(self.release, left)
        if note.kind == Kind.PARKED:
            self._park(note, fresh, writes)

    def _drop(
        self,
        decided: Decided,
        fresh: dict[Position, rows.Standing | None],
        ended: list[Position],
        storage: Storage,
        writes: WriteSet,
    ) -> bool:
        """Drop what a decision ends and does not list (T1); False: there is more than one turn drops.

        What is dropped has no rows any more: the next turn, or the next process, goes on.
        """
        listed = {Position(*place) for place in decided.places}
        dropped = 0
        for place in decided_rows.ended_by(storage, self.ids, decided):
            if place in listed:
                continue
            if dropped == DROPPED_AT_ONCE:
                return False
            standing = rows.standing_at(storage, self.ids, place)
            if standing is not None:
                self._end(place, standing, writes)
                fresh[place] = None
                ended.append(place)
                dropped += 1
        return True

    def _decide(self, decided: Decided, at: Position, storage: Storage, writes: WriteSet) -> None:
        """A decision whose drops are done."""
        if decided.places:
            self._releases.popleft()
        before = decided_rows.closed(storage, self.ids, decided.app_id)
        decided_rows.put_closed(writes, self.ids, before, decided)
        if decided.places:
            places = tuple(Position(*place) for place in decided.places)
            self.release = Open(decided.number, at, places)
        else:
            self.done = max(self.done, decided.number)

    def _released(self, release: Open, place: Position) -> None:
        """A batch was released: that of the decision under way, or one whose time has come."""
        if place not in release.left:
            return
        if release.left[0] == place:
            left = release.left[1:]
        else:
            left = tuple(other for other in release.left if other != place)
        self.release = release._replace(left=left) if left else None
        if not left:
            self.done = max(self.done, release.number)

    def _put_counts(self, writes: WriteSet) -> None:
        rows.put_counts(writes, self.ids, rows.Counts(self.count, self.size, self.recalled))
        reached = Progress(self.undecided, self.done, self.release)
        if reached != self._reached:
            decided_rows.put_progress(writes, self.ids, reached)
            self._reached = reached

    def _park(
        self, note: _Note, fresh: dict[Position, rows.Standing | None], writes: WriteSet
    ) -> None:
        first = note.at if note.carried is None else note.carried[0]
        standing = rows.Standing(note.due_ms, note.size, first, note.waits)
        rows.put(writes, self.ids, note.at, standing)
        fresh[note.at] = standing
        self.count += 1
        self.size += note.size
        if note.waits is not None:
            self.undecided += 1
            return
        self.cursor = min(self.cursor, rows.due_key(self.ids, note.due_ms, note.at))
        if self.next_due_ms is None or note.due_ms < self.next_due_ms:
            self.next_due_ms = note.due_ms

    def _end(self, left: Position, standing: rows.Standing, writes: WriteSet) -> None:
        rows.remove(writes, self.ids, left, standing)
        self.count -= 1
        self.size -= standing.size
        self.undecided -= standing.waits is not None

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
        while self._releases and self._releases[-1] >= end:
            self._releases.pop()
        if not below_hw or not (self.count or self.recalled or self.done or self.release):
            return
        # Decisions are carried out again where the log has lost them, which ends what is left.
        self.done = 0
        if self.release is not None and self.release.at >= end:
            self.release = None
        for at, standing in rows.placed_from(storage, self.ids, end):
            self._end(at, standing, writes)
        for key in rows.recalled_from(storage, self.ids, end):
            writes.delete("parked", key)
            self.recalled -= 1
        self._put_counts(writes)
        self.rewind()

    def reset(self, writes: WriteSet) -> None:
        """The log begins anew: all that is parked stands in it and comes again."""
        writes.delete_range("parked", queue_key(*self.ids), queue_end(*self.ids))
        self._noted.clear()
        self._releases.clear()
        self.count = self.size = self.recalled = self.undecided = self.done = 0
        self.release = None
        self._reached = Progress()
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
