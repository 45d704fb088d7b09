"""FETCHENTRIES: entries of a queue as stored, for a backup.

Nothing is remembered between two requests. A backup that says from where it goes on is compared
with the log, as a follower is (Q4). The leader answers only while it holds its lease and once its
HW has reached its end at election, so that everything acknowledged before the request is below the
HW that it tells (see docs/SAFETY.md, K1).
"""

from __future__ import annotations

from typing import Final

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction.survivor_copies import read_copy_page
from logboom.nodes.log.keys import LAST_SIDE, Position, log_key
from logboom.nodes.replica.entry_reader import DamagedEntry, entries
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replica.request_errors import catching_up, no_lease
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.backup_messages import EntriesFetched, FetchEntries, FetchStart
from logboom.wire.batch import control_view
from logboom.wire.errors import DataDamaged, InvalidRequest, LogboomError
from logboom.wire.head import KIND_AT, ControlKind
from logboom.wire.transactions import decided_body
from logboom.wire.validation import crc32c

MOST_BYTES: Final = 4 * 1024 * 1024
"""Bytes of entries in one answer. The last one may exceed the limit. To read more would hold up
producers: it is one step of the broker's loop."""
MOST_ENTRIES: Final = 1_000
"""Entries in one answer, for the same reason: small ones take 5 µs each to read and check."""


class BackupHandler(Service):
    """Serves FETCHENTRIES."""

    def __init__(self, context: BrokerContext, repair: ReplicaRepair) -> None:
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._lease = context.lease
        self._stats = context.stats
        self._repair = repair

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of FETCHENTRIES."""
        return {FetchEntries: self.fetch}

    def fetch(self, peer: PeerSession, message: FetchEntries, turn: BrokerTurn) -> None:
        """Answer with entries, with copies of compaction, or with where the log begins."""
        replica: Replica | None = None
        try:
            replica = self._find(message, turn)
            if message.copies is not None:
                answer, frames = self._copies(replica, message, message.copies)
            else:
                answer, frames = self._entries(replica, message)
        except LogboomError as error:
            refusal: LogboomError = error
            if replica is not None and isinstance(error, DataDamaged):
                found = error
                if not isinstance(found, DamagedEntry):
                    found = DamagedEntry(error.text, Position(replica.start))
                self._repair.found(replica, found)
                refusal = self._repair.refusal(replica)
            turn.refuse(peer.address, message.id, refusal)
            return
        size = sum(map(len, frames))
        turn.read += size
        self._stats.count("backup_bytes", size)
        turn.answer(peer.address, answer, frames)

    def _find(self, message: FetchEntries, turn: BrokerTurn) -> Replica:
        """Find the replica, which knows where its queue ends (Q8, Q11).

        Raises:
            LogboomError: it is not led here, or its HW is not certain yet.
        """
        replica, leading = find_led_replica(self._queues, self._routes, self._me, message)
        if not self._lease.holds(turn.mono):
            raise no_lease("backups are")
        if self._repair.may_move(replica):
            raise self._repair.refusal(replica)
        if replica.hw < leading.election_end:
            raise catching_up(replica)
        return replica

    def _entries(
        self, replica: Replica, message: FetchEntries
    ) -> tuple[EntriesFetched, list[bytes]]:
        at = Position(message.offset, message.side)
        start: FetchStart = "here"
        if at.offset < 0 or at.offset < replica.start:
            start = "trimmed"
        elif not self._holds(replica, at, message.last_epoch):
            start = "diverged"
        if start != "here":
            return self._begun(replica, message, start), []
        limit = replica.hw if message.until is None else min(replica.hw, Position(*message.until))
        room = min(message.max_bytes, MOST_BYTES)
        found: list[bytes] = []
        size = messages = 0
        decided = False
        if room > 0 and at < limit:
            for entry, after in entries(replica, self._queues.storage, at, limit):
                if found and size + len(entry) > room:
                    break
                decided = _is_later(entry, message.version)
                if decided:
                    break
                found.append(entry)
                size += len(entry)
                messages += after.offset - at.offset
                at = after
                if size >= room or len(found) >= MOST_ENTRIES:
                    break
        frame = b"".join(found)
        answer = self._answer(replica, message, start, at, replica.epochs.before(at))
        answer.more = at < limit and not decided
        answer.decided = decided
        answer.count, answer.messages = len(found), messages
        answer.crc = crc32c(frame)
        return answer, [frame] if found else []

    def _holds(self, replica: Replica, at: Position, last_epoch: int) -> bool:
        """Return True if an entry begins, or the HW is, at a position that the same history precedes.

        The position may be invented, and must not be taken for damage.
        """
        if at > replica.hw or not 0 <= at.side <= LAST_SIDE:
            return False
        if replica.epochs.before(at) != last_epoch:
            return False
        if at in (Position(replica.start), replica.hw) or at in replica.tail:
            return True
        if at >= replica.written:
            return False
        first, last = log_key(*replica.key, *at), log_key(*replica.key, *replica.written)
        found = self._queues.storage.scan("log", first, last, values_checked_by_caller=True)
        key, _ = next(found, (b"", b""))
        return key == first

    def _begun(self, replica: Replica, message: FetchEntries, start: FetchStart) -> EntriesFetched:
        """Build the answer that tells where the log begins, with the state as of there."""
        at = Position(replica.start)
        answer = self._answer(replica, message, start, at, replica.epochs.before(at))
        answer.state = replica.snapshot(at)
        answer.more = at < replica.hw
        return answer

    def _copies(
        self, replica: Replica, message: FetchEntries, span: tuple[int, int]
    ) -> tuple[EntriesFetched, list[bytes]]:
        at = Position(message.offset, message.side)
        answer = self._answer(replica, message, "here", at, message.last_epoch)
        if not 0 <= span[0] <= span[1] <= replica.hw.offset:
            raise InvalidRequest(f"copies of offsets {span[0]} to {span[1]}: there are none")
        if span[0] == span[1]:
            answer.copied = span[1]
            return answer, []
        room = max(1, min(message.max_bytes, MOST_BYTES))
        page = read_copy_page(replica, self._queues.storage, span, room)
        if page is None:
            answer.more = True
            return answer, []
        answer.survivors, answer.copied = page.bits, page.next_offset
        answer.more = page.next_offset < span[1]
        return answer, page.frames

    @staticmethod
    def _answer(
        replica: Replica, message: FetchEntries, start: FetchStart, at: Position, last_epoch: int
    ) -> EntriesFetched:
        assert replica.leading is not None
        return EntriesFetched(
            message.id,
            start,
            at.offset,
            at.side,
            last_epoch,
            replica.leading.epoch,
            *replica.hw,
            replica.start,
            more=False,
            compacts=replica.compaction.on,
            log_bytes=replica.size,
        )


def _is_later(entry: bytes, version: int) -> bool:
    """Return True if an entry carries out a decision of a greater number; version -1: never."""
    if version < 0 or entry[KIND_AT] != ControlKind.DECIDED:
        return False
    return decided_body(control_view(entry)).number > version
