"""The parked batches of one queue, derived from the entries below the HW.

They are equal on all replicas (Q12). An append only notes what an entry parks, releases, recalls or
decides. Later, `apply` turns what is below the HW into rows of the family `parked`, in the same
write as the position that it reached. Truncating the log therefore undoes none of it. The batches
themselves stay in the log, and the rows say where they are.

A DECIDED entry drops the batches that its decision ends and does not list. The batches that it
lists are released right after it, possibly over several turns. Until all of them are below the HW,
readers see nothing from the DECIDED entry on.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from logboom.nodes.log.keys import Position, queue_end, queue_key
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.nodes.replica import decision_rows, parked_rows
from logboom.nodes.replica.decision_rows import DecisionProgress, DecisionWait, OpenRelease
from logboom.wire.batch import control_body, control_view, peek, released_from
from logboom.wire.head import Attribute, BatchHead, ControlKind
from logboom.wire.parking import parked_body, recalled_body
from logboom.wire.transactions import DecidedBody, decided_body

APPLIED_AT_ONCE: Final = 4096
"""Entries that one turn applies to a queue."""
DROPPED_AT_ONCE: Final = 1024
"""Batches that one turn drops for a decision. One decision may end any number of them."""


class _ParkedChange(NamedTuple):
    """One entry that parks a batch or ends a parking."""

    at: Position
    kind: ControlKind
    """PARKED, RECALLED, DECIDED, or MESSAGES for a release."""
    subject: Position
    """Position of the parked batch."""
    due_ms: int
    size: int = 0
    """Size of a PARKED entry."""
    carried: tuple[Position, Position] | None = None
    """For a relocated batch: where it was first parked, and where it was last."""
    waits: DecisionWait | None = None
    """For a PARKED entry: the decision that it waits for. None if it waits for its due time."""
    decided: DecidedBody | None = None
    """Content of a DECIDED entry."""


class ApplyResult(NamedTuple):
    """Result of one call of `apply`."""

    reach: Position
    """Everything before this position is applied."""
    more: bool
    """There is more to apply below the HW."""
    changed: bool
    """Rows were staged."""
    ended: list[Position]
    """Positions at which nothing is parked any longer."""
    decided: bool
    """Decisions were carried out, so readers may see more."""


class ParkedQueue:
    """The parked batches of one queue."""

    def __init__(self, topic_id: int, queue: int) -> None:
        self.ids = (topic_id, queue)
        self.count = 0
        """Parked batches below the HW."""
        self.size = 0
        """Bytes of their entries in the log."""
        self.recalled = 0
        """Number of recalls that are remembered."""
        self.cursor = parked_rows.first_due(self.ids)
        """Key from which the leader of this epoch still has to search for due batches."""
        self.next_due_ms: int | None = None
        """No batch at or after the cursor is due before this time. None if there is no batch."""
        self.undecided = 0
        """Batches below the HW that wait for a decision."""
        self.done = 0
        """Number of the last decision that was carried out below the HW."""
        self.release: OpenRelease | None = None
        """A release that has begun and is not complete below the HW."""
        self._reached = DecisionProgress()
        """The last three values as last written."""
        self._noted: deque[_ParkedChange] = deque()
        self._releases: deque[Position] = deque()
        """Positions of the noted DECIDED entries that release something."""

    def load(self, storage: Storage) -> None:
        """Load the state from the store.

        Raises:
            DataDamaged: the store cannot be read.
        """
        self.count, self.size, self.recalled = parked_rows.counts(storage, self.ids)
        self._reached = decision_rows.progress(storage, self.ids)
        self.undecided, self.done, self.release = self._reached
        self.rewind()

    def rewind(self) -> None:
        """Start again at the first due time: in this leadership nothing has been released yet."""
        self.cursor = parked_rows.first_due(self.ids)
        self.next_due_ms = 0 if self.count else None

    @property
    def behind(self) -> bool:
        """True if something is noted and not yet applied."""
        return bool(self._noted)

    @property
    def releases(self) -> bool:
        """True if the log contains a release that is not complete."""
        return self.release is not None or bool(self._releases)

    def readable(self, hw: Position) -> Position:
        """Return the end of what readers may see.

        This is the HW, or the start of a release that is not complete below it.
        """
        if self.release is not None:
            return min(hw, self.release.at)
        return min(hw, self._releases[0]) if self._releases else hw

    # ── from the log ────────────────────────────────────────────────────────────────────────────

    def note(self, head: BatchHead, entry: bytes, at: Position) -> None:
        """Note an entry that was appended at `at`. Call this in log order.

        Raises:
            DamagedBatch: the body of the entry is invalid.
        """
        if not head.is_control:
            if head.has(Attribute.RELEASED):
                subject = released_from(entry, head)
                assert subject is not None
                self._noted.append(_ParkedChange(at, ControlKind.MESSAGES, Position(*subject), 0))
        elif head.kind == ControlKind.PARKED:
            parked = parked_body(control_view(entry))
            carried = waits = None
            if parked.carried is not None:
                carried = Position(*parked.carried[0]), Position(*parked.carried[1])
            if parked.transaction is not None:
                waits = DecisionWait(parked.transaction, peek(parked.batch).count)
            note = _ParkedChange(
                at, ControlKind.PARKED, at, parked.due_ms, len(entry), carried, waits
            )
            self._noted.append(note)
        elif head.kind == ControlKind.RECALLED:
            subject = recalled_body(control_body(entry, head))
            self._noted.append(_ParkedChange(at, ControlKind.RECALLED, Position(*subject), 0))
        elif head.kind == ControlKind.DECIDED:
            decided = decided_body(control_body(entry, head))
            self._noted.append(_ParkedChange(at, ControlKind.DECIDED, at, 0, decided=decided))
            if decided.places:
                self._releases.append(at)

    def apply(self, hw: Position, storage: Storage, writes: WriteSet) -> ApplyResult:
        """Stage what the noted entries below `hw` change.

        Call this once per turn, since staged rows cannot be read before the next turn.

        Raises:
            DataDamaged: the store cannot be read.
        """
        fresh: dict[Position, parked_rows.ParkedRow | None] = {}
        ended: list[Position] = []
        noted, done, before = self._noted, 0, self.done
        while noted and noted[0].at < hw and done < APPLIED_AT_ONCE:
            note = noted[0]
            if note.decided is not None:
                if done:
                    break  # the batches that it ends must be in the store
                if not self._drop(note.decided, fresh, ended, storage, writes):
                    break  # the entry is applied after all of its drops
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
        return ApplyResult(reach, more, changed, ended, self.done > before)

    def _settle(
        self,
        note: _ParkedChange,
        fresh: dict[Position, parked_rows.ParkedRow | None],
        ended: list[Position],
        storage: Storage,
        writes: WriteSet,
    ) -> None:
        """Apply an entry that parks a batch, ends a parking, or does both."""
        left = note.subject if note.carried is None else note.carried[1]
        if left != note.at:
            row = fresh[left] if left in fresh else parked_rows.find_row(storage, self.ids, left)
            if row is not None:
                fresh[left] = None
                self._end(left, row, writes)
                if note.kind == ControlKind.RECALLED:
                    parked_rows.put_recalled(writes, self.ids, row.first)
                    self.recalled += 1
            ended.append(left)
            if self.release is not None and note.kind == ControlKind.MESSAGES:
                self._released(self.release, left)
        if note.kind == ControlKind.PARKED:
            self._park(note, fresh, writes)

    def _drop(
        self,
        decided: DecidedBody,
        fresh: dict[Position, parked_rows.ParkedRow | None],
        ended: list[Position],
        storage: Storage,
        writes: WriteSet,
    ) -> bool:
        """Drop the batches that a decision ends and does not list (T1).

        Return False if more remain than one turn may drop.

        Dropped batches have no rows any longer, so the next turn, or the next process, continues
        with the rest.
        """
        listed = {Position(*place) for place in decided.places}
        dropped = 0
        for place in decision_rows.ended_by(storage, self.ids, decided):
            if place in listed:
                continue
            if dropped == DROPPED_AT_ONCE:
                return False
            row = parked_rows.find_row(storage, self.ids, place)
            if row is not None:
                self._end(place, row, writes)
                fresh[place] = None
                ended.append(place)
                dropped += 1
        return True

    def _decide(
        self, decided: DecidedBody, at: Position, storage: Storage, writes: WriteSet
    ) -> None:
        """Record a decision after all of its drops."""
        if decided.places:
            self._releases.popleft()
        before = decision_rows.closed(storage, self.ids, decided.app_id)
        decision_rows.put_closed(writes, self.ids, before, decided)
        if decided.places:
            places = tuple(Position(*place) for place in decided.places)
            self.release = OpenRelease(decided.number, at, places)
        else:
            self.done = max(self.done, decided.number)

    def _released(self, release: OpenRelease, place: Position) -> None:
        """Record the release of a batch: of the decision in progress, or of one that became due."""
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
        parked_rows.put_counts(
            writes, self.ids, parked_rows.ParkedCounts(self.count, self.size, self.recalled)
        )
        reached = DecisionProgress(self.undecided, self.done, self.release)
        if reached != self._reached:
            decision_rows.put_progress(writes, self.ids, reached)
            self._reached = reached

    def _park(
        self,
        note: _ParkedChange,
        fresh: dict[Position, parked_rows.ParkedRow | None],
        writes: WriteSet,
    ) -> None:
        first = note.at if note.carried is None else note.carried[0]
        row = parked_rows.ParkedRow(note.due_ms, note.size, first, note.waits)
        parked_rows.put_parked(writes, self.ids, note.at, row)
        fresh[note.at] = row
        self.count += 1
        self.size += note.size
        if note.waits is not None:
            self.undecided += 1
            return
        self.cursor = min(self.cursor, parked_rows.due_key(self.ids, note.due_ms, note.at))
        if self.next_due_ms is None or note.due_ms < self.next_due_ms:
            self.next_due_ms = note.due_ms

    def _end(self, left: Position, row: parked_rows.ParkedRow, writes: WriteSet) -> None:
        parked_rows.remove(writes, self.ids, left, row)
        self.count -= 1
        self.size -= row.size
        self.undecided -= row.waits is not None

    # ── the log changes ─────────────────────────────────────────────────────────────────────────

    def cut(self, end: Position, writes: WriteSet, storage: Storage, *, below_hw: bool) -> None:
        """Follow a truncation of the log to `end`.

        Only an unclean election or damage truncates below the HW. In that case the batches parked
        after `end` are removed too. A batch that was parked before `end` and released after it is
        restored after damage, since the same entries are fetched again. After an unclean election
        its release is lost.

        Raises:
            DataDamaged: the store cannot be read.
        """
        while self._noted and self._noted[-1].at >= end:
            self._noted.pop()
        while self._releases and self._releases[-1] >= end:
            self._releases.pop()
        if not below_hw or not (self.count or self.recalled or self.done or self.release):
            return
        # Decisions that the log has lost are carried out again, which ends what remains.
        self.done = 0
        if self.release is not None and self.release.at >= end:
            self.release = None
        for at, row in parked_rows.placed_from(storage, self.ids, end):
            self._end(at, row, writes)
        for key in parked_rows.recalled_from(storage, self.ids, end):
            writes.delete("parked", key)
            self.recalled -= 1
        self._put_counts(writes)
        self.rewind()

    def reset(self, writes: WriteSet) -> None:
        """Remove all parked batches. The log starts again, and they return with it."""
        writes.delete_range("parked", queue_key(*self.ids), queue_end(*self.ids))
        self._noted.clear()
        self._releases.clear()
        self.count = self.size = self.recalled = self.undecided = self.done = 0
        self.release = None
        self._reached = DecisionProgress()
        self.rewind()

    def trim(self, start: Position, writes: WriteSet, storage: Storage) -> None:
        """Follow retention to a new log start, and forget the recalls of positions before it.

        Raises:
            DataDamaged: the store cannot be read.
        """
        if not self.recalled:
            return
        gone = parked_rows.recalled_before(storage, self.ids, start)
        for key in gone:
            writes.delete("parked", key)
        self.recalled -= len(gone)
        self._put_counts(writes)

    def limit(self, applied: Position, storage: Storage) -> int:
        """Return the offset that retention must not pass.

        It is that of the oldest parked batch, or of the first entry that is not applied.

        Raises:
            DataDamaged: the store cannot be read.
        """
        if not self.count:
            return applied.offset
        first = parked_rows.oldest_parked(storage, self.ids)
        return applied.offset if first is None else min(first.offset, applied.offset)
