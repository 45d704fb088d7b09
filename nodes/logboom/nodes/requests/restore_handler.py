"""RESTOREENTRIES: entries of a backup, appended to a queue whose topic is being restored.

The leader takes them as a follower takes those of its leader: each exactly at the end, its checksum
verified (Q5). They keep their epochs, which are below those of all leaders here. What lies at a
position of a queue that is being restored therefore follows from the backup alone, so that brokers
that lead one after the other never differ (see docs/SAFETY.md, K5).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.compaction.survivor_copies import stage_copy_page
from logboom.nodes.log.keys import Position
from logboom.nodes.replica.leadership import Leadership, PendingProduce
from logboom.nodes.replica.replica import Replica, ReplicaSnapshot
from logboom.nodes.replica.request_errors import check_topic, not_leader
from logboom.nodes.replication.replicate_handler import ReplicateHandler
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.backup_messages import EntriesRestored, RestoreEntries
from logboom.wire.base import UNDECODABLE
from logboom.wire.batch import split_entries
from logboom.wire.errors import (
    DamagedBatch,
    DataDamaged,
    InvalidRequest,
    LogboomError,
    Unavailable,
)
from logboom.wire.frames import Frame
from logboom.wire.validation import crc32c


class RestoreHandler(Service):
    """Serves RESTOREENTRIES."""

    def __init__(
        self,
        context: BrokerContext,
        produce_handler: ProduceHandler,
        replicate_handler: ReplicateHandler,
    ) -> None:
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._space = context.space
        self._stats = context.stats
        self._produce_handler = produce_handler
        self._replicate_handler = replicate_handler

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of RESTOREENTRIES."""
        return {RestoreEntries: self.restore}

    def restore(self, peer: PeerSession, message: RestoreEntries, turn: BrokerTurn) -> None:
        """Append what continues the log, and answer with its end once that is committed."""
        try:
            replica, leading = self._find(message)
            if _continues(replica, message):
                self._take(replica, message, turn)
        except (DamagedBatch, DataDamaged) as error:
            # What was appended before the fault is the backup's, and stays.
            refusal = InvalidRequest(f"the entries are damaged: {error.text}", "MALFORMED")
            turn.refuse(peer.address, message.id, refusal)
            return
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)
            return
        reply = EntriesRestored(
            message.id,
            *replica.end,
            replica.epochs.before(replica.end),
            replica.start,
            -1 if replica.compaction.lacks is None else replica.compaction.lacks,
            whole := _is_whole(replica, leading),
            replica.parked.undecided if whole else 0,
        )
        waiting = PendingProduce(
            replica.end,
            peer.address,
            message.id,
            0,
            0,
            turn.mono + message.timeout_ms / 1000,
            reply=reply,
        )
        self._produce_handler.wait(replica, leading, waiting, "all", turn)

    def _find(self, message: RestoreEntries) -> tuple[Replica, Leadership]:
        """Find the replica, which must be led here and be restored from this backup.

        Raises:
            LogboomError: it is not, or cannot take anything now.
        """
        replica = self._queues.by_name.get((message.topic, message.queue))
        leading = replica.leading if replica is not None else None
        if replica is None or leading is None:
            raise not_leader(self._routes, message.topic, message.queue, self._me, message.topic_id)
        check_topic(replica, message.topic_id)
        if replica.restoring != message.backup or not message.backup:
            raise InvalidRequest(
                f"topic {message.topic!r} is not being restored from {message.backup!r}: begin the "
                "restore again",
            )
        if replica.damage is not None:
            raise Unavailable(f"queue {replica.queue} of {replica.topic!r} is damaged here: wait")
        return replica, leading

    def _take(self, replica: Replica, message: RestoreEntries, turn: BrokerTurn) -> None:
        """Append what a request brings.

        Raises:
            DamagedBatch, DataDamaged, InvalidRequest: it is damaged or does not continue the log.
            Unavailable: DISK_FULL.
        """
        frames = turn.batches
        content = bytes(frames[0]) if len(frames) == 1 else b""
        if len(frames) > 1 or crc32c(content) != message.crc:
            raise DamagedBatch("the frame's checksum is wrong")
        if self._space.check(turn.mono):
            raise self._space.refusal()
        if message.state:
            self._begin(replica, message, turn)
        if message.survivors is not None:
            self._take_copies(replica, message, message.survivors, content, turn)
        else:
            self._append(replica, message.count, content, turn)
        self._space.wrote(len(content))
        self._stats.count("restored_bytes", len(content))

    def _begin(self, replica: Replica, message: RestoreEntries, turn: BrokerTurn) -> None:
        """Let an empty log begin where that of the backup does."""
        try:
            state = msgspec.msgpack.decode(message.state, type=ReplicaSnapshot)
        except UNDECODABLE as error:
            raise DamagedBatch(f"its state cannot be read: {error}") from None
        if (state.offset, state.side) != (message.offset, message.side) or state.side:
            raise DamagedBatch("its state is that of another position")
        replica.reset(message.state, turn.writes)
        self._changed(replica, turn)

    def _append(self, replica: Replica, count: int, content: bytes, turn: BrokerTurn) -> None:
        done = 0
        try:
            for entry in split_entries(content):
                replica.append_entry(bytes(entry), turn.writes, self._queues.cache)
                done += 1
        finally:
            if done:
                self._queues.touch(replica)
                self._queues.recount(replica)
                self._replicate_handler.appended(replica)
                self._stats.count("restored_entries", done)
        if done != count:
            raise DamagedBatch(f"{done} entries instead of {count}")

    def _take_copies(
        self,
        replica: Replica,
        message: RestoreEntries,
        survivors: Sequence[bytes],
        content: bytes,
        turn: BrokerTurn,
    ) -> None:
        """Stage copies of batches from before the log; a follower fetches them from here."""
        compaction = replica.compaction
        if compaction.lacks is None:
            return  # They came before, or the topic is not compacted any more.
        if not compaction.may_stage(turn.writes):
            raise Unavailable("the queue's copies are being written: try again")
        frames: list[Frame] = list(split_entries(content))
        before = compaction.lacks
        stage_copy_page(
            replica,
            self._queues.storage,
            turn.writes,
            frames,
            survivors,
            message.copied,
            turn.now.wall_ms,
        )
        if frames and compaction.lacks is None:
            # What is staged cannot be read before the next turn, and followers would be told that
            # there is no more: only a page without copies completes them.
            compaction.lacks = max(before, replica.start - 1)
            compaction.stage(turn.writes)
        self._queues.touch(replica)
        # Followers that wait for copies are served as soon as there are all.
        self._replicate_handler.appended(replica)

    def _changed(self, replica: Replica, turn: BrokerTurn) -> None:
        """Compare the positions of all followers again: the log begins elsewhere."""
        self._queues.touch(replica)
        self._replicate_handler.role_changed(replica, turn)
        self._queues.recount(replica)


def _continues(replica: Replica, message: RestoreEntries) -> bool:
    """Return True if a request brings something that comes next.

    Else a former try has brought it, or a leader before this one had more: the answer tells where
    to go on.
    """
    at = Position(message.offset, message.side)
    if message.state:
        return replica.end == Position(0) and at > replica.end
    if message.survivors is not None:
        lacks = replica.compaction.lacks
        return lacks is not None and at.offset == lacks
    return message.count > 0 and at == replica.end


def _is_whole(replica: Replica, leading: Leadership) -> bool:
    """Return True if everything is on the disks of all in-sync replicas, copies included.

    And if what is parked is known: it follows from the log, several turns later.
    """
    if replica.compaction.lacks is not None or replica.hw != replica.end:
        return False
    if replica.applied < replica.hw:
        return False
    followers = [leading.followers.get(each) for each in leading.isr if each != leading.me]
    return all(
        each is not None
        and each.position is not None
        and each.position >= replica.end
        and not each.lacks
        for each in followers
    )
