"""The handler of PULL, OFFSETS, OFFSETFORTIME and FINDKEY: the reads of one queue.

Readers see only what is committed. Of a transaction that is being released they see nothing before
all of it is, unless they ask for it. A pull at or beyond the HW is held and never corrected, unless
this broker is certain of the true end (Q8). A pull with a filter continues from turn to turn (see
`scan_scheduler`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction.compacted_reader import read_survivors as collect_survivors
from logboom.nodes.replica.byte_distance import UNKNOWN, offset_ahead
from logboom.nodes.replica.entry_reader import DamagedEntry, read_batches, readable_end
from logboom.nodes.replica.pull_filter import sieve_of
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.request_errors import (
    catching_up,
    check_restored,
    check_topic,
    no_lease,
    not_leader,
)
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.requests.held_shares import HeldShares
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.requests.owner_epochs import OwnerEpochs, stale_owner
from logboom.nodes.requests.postponed_pulls import PostponedPull, PostponedPulls
from logboom.nodes.requests.read_replica_selector import ReadReplicaSelector
from logboom.nodes.requests.scan_scheduler import Scan, ScanScheduler
from logboom.nodes.turn import BrokerTurn, Figures, Handler, HeldRequest, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import (
    DamagedBatch,
    DataDamaged,
    InvalidRequest,
    LogboomError,
    Unavailable,
)
from logboom.wire.features import OWNERS_PROVEN
from logboom.wire.frames import Frame
from logboom.wire.messages import (
    LONGEST_HOLD_MS,
    FindKey,
    FindKeyResult,
    OffsetForTime,
    OffsetForTimeResult,
    Offsets,
    OffsetsResult,
    Pull,
    Pulled,
    PullStatus,
)
from logboom.wire.owner_proofs import OwnerProver

MOST_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of batches in one answer, whatever is requested; one batch is always sent."""
TURN_BYTES: Final = 32 * 1024 * 1024
"""Bytes that one turn reads; further pulls wait for the next turn."""
BATCH_BYTES: Final = 32 * 1024
"""Bytes for which a batch counts at least: to find and to check a small one takes 5 µs."""
MAX_UNSENT_BYTES: Final = 32 * 1024 * 1024
"""Bytes of unread answers up to which a peer may request more; for a peer that never reads, nothing
is read from disk."""
MOST_KEYS: Final = 1_000
FIND_KEY_BYTES: Final = 1024 * 1024
"""Opened bytes that a search for a key counts for, as it costs as much time."""
WAKES: Final = 200
"""Holds that one turn looks at, as their queues have grown, and as many whose time is up."""


class _Wake(NamedTuple):
    """What is to be done with the holds of one queue."""

    holds: int
    """The first so many have not been looked at yet."""
    anew: bool
    """True if they are served like new requests, since the queue's role has changed."""


class PullHandler(Service):
    """The handler of reads of all queues, and their holds."""

    def __init__(
        self,
        context: BrokerContext,
        repair: ReplicaRepair,
        prover: OwnerProver,
        on_compaction: Callable[[Replica, DataDamaged, BrokerTurn], None],
    ) -> None:
        """Create the handler; `on_compaction` is called when compaction's data could not be read."""
        shares = HeldShares(context.acceptor.peer)
        self.holds: Holds[QueueKey, Pull] = Holds(shares)
        self.postponed = PostponedPulls(shares)
        self._woken: dict[QueueKey, _Wake] = {}
        """Queues whose holds are to be looked at, a bounded number in each turn."""
        self._serving: PeerAddress | None = None
        """The peer whose postponed pull is being served."""
        self._slow = ReadReplicaSelector(context.config, context.groups)
        self.scan_scheduler = ScanScheduler(
            context, repair, self._slow, self._checked, self._serve, self.holds, shares
        )
        self._owners = OwnerEpochs()
        self._prover = prover
        self._session_at = context.acceptor.peer
        self._config = context.config
        self._queues = context.queues
        self._routes = context.routes
        self._lease = context.lease
        self._stats = context.stats
        self._hold_times = context.stats.histograms["hold"]
        self._recheck = context.acceptor.recheck
        self._rights = context.rights
        self._repair = repair
        self._on_compaction = on_compaction

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of what readers ask."""
        return {
            Pull: self.pull,
            Offsets: self.offsets,
            OffsetForTime: self.offset_for_time,
            FindKey: self.find_key,
        }

    def figures(self, now: float) -> Figures:
        """Return how many pulls wait, and for what."""
        return {
            "holds": len(self.holds),
            "pulls_postponed": len(self.postponed),
            "scans": len(self.scan_scheduler),
            "cache_bytes": self._queues.cache.size,
        }

    def _readable(self, topic: str, queue: int, meant: int = 0) -> Replica:
        """Find the replica that may answer reads below its HW."""
        replica = self._queues.by_name.get((topic, queue))
        if replica is not None:
            check_restored(replica)
            if replica.leading is not None:
                return replica
            if self._config.follower_reads and replica.role == "follower":
                return replica
        raise not_leader(self._routes, topic, queue, self._config.id, meant)

    def _checked(self, message: Pull) -> Replica:
        """Find the replica that may answer a pull."""
        replica = self._readable(message.topic, message.queue, message.topic_id)
        check_topic(replica, message.topic_id)
        if message.compacted and replica.leading is None and replica.compaction.lacks is not None:
            raise not_leader(
                self._routes, message.topic, message.queue, self._config.id, message.topic_id
            )
        return replica

    def held(self) -> Iterator[HeldRequest]:
        """Yield the pulls that wait.

        A scan that ends without an answer becomes a hold, so the holds come last. A hold is checked
        before it becomes a scan.
        """
        yield from self.scan_scheduler.held()
        yield from self.holds.held()

    # ── pulls ───────────────────────────────────────────────────────────────────────────────────

    def pull(self, peer: PeerSession, message: Pull, turn: BrokerTurn) -> None:
        """Answer a pull now, hold it, or postpone it to another turn."""
        self._pull(peer.address, message, turn)

    def _pull(self, address: PeerAddress, message: Pull, turn: BrokerTurn) -> None:
        try:
            if turn.unsent_bytes.get(address, 0) >= MAX_UNSENT_BYTES:
                text = f"{MAX_UNSENT_BYTES >> 20} MiB of answers wait to be read: read them, then go on"
                raise Unavailable(text, "BUSY")
            replica = self._checked(message)
            sieve = sieve_of(message)
            if message.group and self._owners.admit(
                replica.key,
                message.group,
                message.owner_epoch,
                partial(self._owns, address, message, replica.key),
            ):
                self._turn_out(replica, message.group, message.owner_epoch, turn)
            wait = min(max(0, message.wait_ms), LONGEST_HOLD_MS) / 1000
            asked = message.offset
            if message.compacted and self._serve_survivors(address, message, replica, turn):
                return
            moved = message.offset > asked
            if (
                sieve is not None
                and replica.start <= message.offset < readable_end(replica, message).offset
            ):
                hold = self.holds.checked(Hold(address, message, turn.mono + wait, moved))
                self.scan_scheduler.begin(hold, replica.key, sieve, turn)
            elif not self._serve(address, message, replica, turn):
                if wait == 0:
                    self._nothing(address, message, replica, turn, moved=moved)
                else:
                    hold = Hold(address, message, turn.mono + wait, moved, since=turn.mono)
                    self.holds.add(replica.key, message.id, self.holds.checked(hold))
        except LogboomError as error:
            turn.refuse(address, message.id, error)

    def _owns(self, address: PeerAddress, message: Pull, key: QueueKey) -> bool:
        """Return True if the owner epoch of a pull is its user's, and not invented (G7)."""
        epoch = message.owner_epoch
        if message.owner_proof:
            session = self._session_at(address)
            user = "" if session is None else session.user
            return self._prover.proves(message.owner_proof, user, message.group, *key, epoch)
        # Members and coordinators of the release before have no proofs. Epochs are versions of the
        # metadata: one above that which this broker knows cannot be believed.
        return self._routes.features < OWNERS_PROVEN and epoch <= self._routes.version

    def _turn_out(self, replica: Replica, group: str, epoch: int, turn: BrokerTurn) -> None:
        """End the pulls of a group's earlier owners, because a newer one has appeared."""

        def older(message: Pull) -> bool:
            return message.group == group and message.owner_epoch < epoch

        ended: list[Hold[Pull] | Scan] = [*self.holds.take_if(replica.key, older)]
        ended += self.scan_scheduler.take_if(replica.key, older)
        for each in ended:
            turn.refuse(each.address, each.message.id, stale_owner(group, epoch))

    def _serve(
        self, address: PeerAddress, message: Pull, replica: Replica, turn: BrokerTurn
    ) -> bool:
        """Answer a pull if possible; False if nothing is committed yet."""
        offset, end = message.offset, readable_end(replica, message).offset
        if offset < replica.start:
            self._answer(address, message, replica, "OFFSET_ILLEGAL", replica.start, turn)
            return True
        if offset >= end:
            if offset > replica.end.offset and self._knows_the_end(replica, turn.mono):
                self._answer(address, message, replica, "OFFSET_ILLEGAL", end, turn)
                return True
            return False
        if turn.read >= TURN_BYTES or (self.postponed and self._serving is None):
            self._postpone(address, message, turn)
        else:
            self._read(address, message, replica, turn)
        return True

    def _serve_survivors(
        self, address: PeerAddress, message: Pull, replica: Replica, turn: BrokerTurn
    ) -> bool:
        """Answer a reader below the horizon with survivors.

        False means that there are none from its position on; it was then moved on to where the log
        is read as it is.
        """
        limit = readable_end(replica, message)
        stop = min(replica.compaction.horizon(replica.start), limit.offset)
        if message.offset >= stop:
            return False
        if turn.read >= TURN_BYTES or (self.postponed and self._serving is None):
            self._postpone(address, message, turn)
            return True
        most = min(message.max_bytes, MOST_BYTES)
        storage = self._queues.storage
        try:
            found = collect_survivors(
                replica, storage, message.offset, stop, limit, most, message.max_messages
            )
        except DataDamaged as error:
            self._on_compaction(replica, error, turn)
            if replica.damage is not None:
                raise self._repair.refusal(replica) from None
            text = f"what compaction keeps of queue {replica.queue} is made anew: ask again"
            raise Unavailable(text) from None
        self._count(replica, found.batches, found.messages, turn)
        message.offset = found.next_offset
        if not found.batches and found.next_offset >= stop:
            return False
        status: PullStatus = "FOUND" if found.batches else "NO_MATCHED_MESSAGE"
        answer = Pulled(message.id, status, found.next_offset, replica.start, limit.offset)
        answer.survivors = found.bits or None
        turn.answer(address, answer, found.batches)
        return True

    def _postpone(self, address: PeerAddress, message: Pull, turn: BrokerTurn) -> None:
        """Postpone a pull to another turn, unless its peer does not read what it is sent."""
        waiting = PostponedPull(address, message, turn.mono + message.timeout_ms / 1000)
        if not self.postponed.add(waiting):
            text = "too many pulls wait at this broker: wait for answers, then go on"
            turn.refuse(address, message.id, Unavailable(text, "BUSY"))

    def _serve_postponed(self, turn: BrokerTurn) -> None:
        """Serve as many postponed pulls as the turn has room for."""
        while self.postponed and turn.read < TURN_BYTES:
            address, message, deadline, _ = self.postponed.take()
            before = turn.read
            error = self._recheck(address, message)
            if error is not None:
                turn.refuse(address, message.id, error)
            elif turn.mono < deadline:
                self._serving = address
                self._pull(address, message, turn)
                self._serving = None
            self.postponed.done(address, turn.read - before)

    def _read(
        self, address: PeerAddress, message: Pull, replica: Replica, turn: BrokerTurn
    ) -> None:
        """Read what a pull requests, and answer."""
        end = readable_end(replica, message)
        try:
            found = read_batches(
                replica,
                self._queues.storage,
                message.offset,
                min(message.max_bytes, MOST_BYTES),
                message.max_messages,
                end,
            )
        except DamagedEntry as error:
            self._repair.found(replica, error)
            turn.refuse(address, message.id, self._repair.refusal(replica))
            return
        self._count(replica, found.batches, found.messages, turn)
        suggested = self._slow.suggest(replica, message.group, found.next_offset)
        # Without a batch, the store does not show staged entries yet: ask again.
        status: PullStatus = "FOUND" if found.batches else "NO_MATCHED_MESSAGE"
        turn.answer(
            address,
            Pulled(message.id, status, found.next_offset, replica.start, end.offset, suggested),
            found.batches,
        )

    def _count(
        self, replica: Replica, batches: Sequence[Frame], messages: int, turn: BrokerTurn
    ) -> None:
        """Count what an answer holds."""
        sent_bytes = sum(map(len, batches))
        turn.read += max(sent_bytes, BATCH_BYTES * len(batches))
        replica.sent_bytes += sent_bytes
        counters = self._stats.counters
        counters["pulled_batches"] += len(batches)
        counters["pulled_messages"] += messages
        counters["messages_out"] += messages
        counters["bytes_out"] += sent_bytes

    def _knows_the_end(self, replica: Replica, now: float) -> bool:
        """Return True if a reader beyond our end is certainly wrong.

        Only a leader that holds its lease, and whose HW has reached its end at election, can tell
        (Q8).
        """
        leading = replica.leading
        return (
            leading is not None
            and replica.knows(leading.election_end)
            and self._lease.holds(now)
            and not self._repair.may_move(replica)
        )

    def _nothing(
        self,
        address: PeerAddress,
        message: Pull,
        replica: Replica,
        turn: BrokerTurn,
        *,
        moved: bool = False,
    ) -> None:
        status: PullStatus = "NO_MATCHED_MESSAGE" if moved else "NO_NEW_MESSAGE"
        self._answer(address, message, replica, status, message.offset, turn)

    @staticmethod
    def _answer(
        address: PeerAddress,
        message: Pull,
        replica: Replica,
        status: PullStatus,
        next_offset: int,
        turn: BrokerTurn,
    ) -> None:
        end = readable_end(replica, message).offset
        turn.answer(address, Pulled(message.id, status, next_offset, replica.start, end))

    def serve(self, turn: BrokerTurn) -> None:
        """Serve postponed pulls, go on waking holds, and let filtered pulls continue."""
        self._serve_postponed(turn)
        for key in list(self._woken):
            self._wake(key, turn)
        self.scan_scheduler.step(turn)

    def deadline(self) -> float:
        """Return when a hold expires; at once while a pull is postponed or a scan is in progress."""
        at_work = len(self.scan_scheduler) or len(self.postponed) or self._woken
        return float("-inf") if at_work else self.holds.deadline()

    # ── holds ───────────────────────────────────────────────────────────────────────────────────

    def hw_moved(self, replica: Replica, turn: BrokerTurn) -> None:
        """Wake the holds of a queue whose HW moved, or whose release is complete."""
        self._look_again(replica.key, turn, anew=False)

    def _look_again(self, key: QueueKey, turn: BrokerTurn, *, anew: bool) -> None:
        """Look at the holds of a queue: in this turn, or if they are many, also in later ones."""
        count = self.holds.count_of(key)
        if count:
            known = self._woken.get(key)
            self._woken[key] = _Wake(count, anew=anew or (known is not None and known.anew))
            self._wake(key, turn)

    def _wake(self, key: QueueKey, turn: BrokerTurn) -> None:
        """Look at the first holds of a queue that are to be looked at."""
        left, anew = self._woken[key]
        room = min(left, WAKES - turn.woken)
        if room <= 0:
            return
        turn.woken += room
        if room == left:
            del self._woken[key]
        else:
            self._woken[key] = _Wake(left - room, anew)
        replica = self._queues.replicas.get(key)
        for hold in self.holds.take_first(key, room):
            if not self._rights.allows(hold.address, hold.message, turn):
                continue
            if anew or replica is None:
                self._pull(hold.address, hold.message, turn)
            else:
                self._wake_one(hold, replica, turn)

    def _wake_one(self, hold: Hold[Pull], replica: Replica, turn: BrokerTurn) -> None:
        message = hold.message
        sieve = sieve_of(message)
        end = readable_end(replica, message).offset
        self._hold_times.add(turn.mono - hold.since)
        # (A reader of a compacted topic waits at the HW, where nothing is compacted yet.)
        if sieve is not None and replica.start <= message.offset < end:
            # It keeps waiting while only batches without a match are appended.
            self.scan_scheduler.begin(hold, replica.key, sieve, turn, woken=True)
        elif not self._serve(hold.address, message, replica, turn):
            self.holds.add(replica.key, message.id, hold._replace(since=turn.mono))

    def step(self, turn: BrokerTurn) -> None:
        """Answer the holds that have expired, a bounded number in one turn."""
        for key, hold in self.holds.expired(turn.mono, WAKES):
            replica = self._queues.replicas.get(key)
            if replica is not None and self._rights.allows(hold.address, hold.message, turn):
                self._hold_times.add(turn.mono - hold.since)
                self._nothing(hold.address, hold.message, replica, turn, moved=hold.moved)

    def role_changed(self, replica: Replica, turn: BrokerTurn) -> None:
        """End the holds of a queue whose role has changed, so that they ask its leader."""
        self._owners.forget(replica.key)
        self._look_again(replica.key, turn, anew=True)

    # ── offsets, times, keys ────────────────────────────────────────────────────────────────────

    def _ended(self, topic: str, queue: int, now: float, meant: int) -> Replica:
        """Find the replica that may tell where its queue ends (Q8, Q11)."""
        replica = self._queues.by_name.get((topic, queue))
        if replica is None or replica.leading is None:
            raise not_leader(self._routes, topic, queue, self._config.id, meant)
        check_restored(replica)
        if not self._lease.holds(now):
            raise no_lease("end offsets are")
        if self._repair.may_move(replica):
            raise self._repair.refusal(replica)
        if not replica.knows(replica.leading.election_end):
            raise catching_up(replica)
        return replica

    def offsets(self, peer: PeerSession, message: Offsets, turn: BrokerTurn) -> None:
        """Answer with first offset and end of queues that this broker leads."""
        try:
            found = [
                self._ended(message.topic, queue, turn.mono, message.topic_id)
                for queue in message.queues
            ]
            for replica in found:
                check_topic(replica, message.topic_id)
            ahead = self._ahead(found, message, turn)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)
            return
        pairs = [(replica.start, replica.readable.offset) for replica in found]
        horizons = [
            replica.compaction.horizon(replica.start) if replica.compaction.on else -1
            for replica in found
        ]
        turn.answer(peer.address, OffsetsResult(message.id, pairs, horizons, ahead))

    def _ahead(
        self, found: Sequence[Replica], message: Offsets, turn: BrokerTurn
    ) -> tuple[int, int]:
        """Return how far `max_bytes` go from the offset that was named; UNKNOWN if none was."""
        if message.begin < 0:
            return UNKNOWN
        if len(found) != 1 or message.max_bytes < 1:
            raise InvalidRequest("name one queue, an offset in it, and at least one byte")
        (replica,) = found
        with self._index_of(replica, turn):
            return offset_ahead(replica, self._queues.storage, message.begin, message.max_bytes)

    @contextmanager
    def _index_of(self, replica: Replica, turn: BrokerTurn) -> Iterator[None]:
        """Guard a lookup in a queue's index, and rebuild the index if it cannot be read.

        If it is the log that is damaged, rebuilding the index finds that too.
        """
        try:
            yield
        except (DataDamaged, DamagedBatch) as error:
            self._stats.count("index_rebuilds")
            replica.index.reset(turn.writes, replica.start)
            self._queues.hw_moved(replica)
            text = f"the index of queue {replica.queue} of {replica.topic!r} is damaged"
            raise Unavailable(f"{text} and made anew ({error.text}): ask again") from None

    def end_of(self, topic: str, queue: int, topic_id: int, turn: BrokerTurn) -> int:
        """Return the end of a queue, as `offsets` does.

        Raises:
            LogboomError: this broker must not tell it now.
        """
        replica = self._ended(topic, queue, turn.mono, topic_id)
        check_topic(replica, topic_id)
        return replica.readable.offset

    def offset_at(
        self,
        topic: str,
        queue: int,
        topic_id: int,
        timestamp_ms: int,
        whose: Hashable,
        turn: BrokerTurn,
    ) -> tuple[int, int]:
        """Return the offset and the time that `offset_for_time` returns, for a user or connection.

        Raises:
            LogboomError: this broker must not tell it now; BUSY, if this turn has read enough.
        """
        replica = self._ended(topic, queue, turn.mono, topic_id)
        check_topic(replica, topic_id)
        opens = turn.opened.begin(whose)
        with self._index_of(replica, turn):
            return replica.index.offset_for_time(
                timestamp_ms, replica.start, replica.readable, turn.writes, opens
            )

    def offset_for_time(self, peer: PeerSession, message: OffsetForTime, turn: BrokerTurn) -> None:
        """Answer with the first message at or after a message time."""
        try:
            offset, time_ms = self.offset_at(
                message.topic,
                message.queue,
                message.topic_id,
                message.timestamp_ms,
                peer.user or peer.address,
                turn,
            )
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)
            return
        turn.answer(peer.address, OffsetForTimeResult(message.id, offset, time_ms))

    def find_key(self, peer: PeerSession, message: FindKey, turn: BrokerTurn) -> None:
        """Answer with batches that may hold a key."""
        try:
            replica = self._readable(message.topic, message.queue)
            end = replica.readable.offset
            turn.opened.begin(peer.user or peer.address)(FIND_KEY_BYTES)
            with self._index_of(replica, turn):
                offsets, reach = replica.index.find_key(
                    message.key_hash,
                    min(message.before, end),
                    min(max(1, message.limit), MOST_KEYS),
                    replica.start,
                )
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)
            return
        turn.answer(peer.address, FindKeyResult(message.id, offsets, min(reach, end)))
