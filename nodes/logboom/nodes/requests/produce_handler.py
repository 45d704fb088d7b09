"""The handler of PRODUCE: it checks, deduplicates, stamps and appends batches.

A producer is answered once its batch is as safe as it requested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.quotas.stored_bytes import StoredBytes
from logboom.nodes.replica.leadership import Leadership, PendingProduce
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replica.request_errors import (
    check_restored,
    check_topic,
    no_lease,
    not_leader,
)
from logboom.nodes.requests.copy_checks import CopyChecker
from logboom.nodes.requests.producer_shares import ProducerShares
from logboom.nodes.requests.transaction_checks import check_open, check_transaction
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.batch import validate_batch
from logboom.wire.compression import Codec
from logboom.wire.errors import (
    Forbidden,
    InvalidRequest,
    LogboomError,
    NotEnoughReplicas,
    Unavailable,
)
from logboom.wire.features import IDS_OF_USERS
from logboom.wire.head import MAX_PRODUCED_COUNT, BatchHead
from logboom.wire.internal_topics import message_limit
from logboom.wire.message_sizes import find_oversized
from logboom.wire.messages import FRAME_ROOM_BYTES, Acks, Produce, Produced
from logboom.wire.names import is_reserved
from logboom.wire.parking import AT_ONCE, check_due
from logboom.wire.user_marks import is_id_of_user


class ProduceHandler(Service):
    """The handler of PRODUCE, with the producers that wait for their answers."""

    def __init__(
        self,
        context: BrokerContext,
        copies: CopyChecker,
        producers: ProducerShares,
        refusal: Callable[[Replica], LogboomError],
        appended: Callable[[Replica], None],
    ) -> None:
        """Create the handler.

        Args:
            context: what all parts of the broker share.
            copies: checks what is sent to topics of retries and dead letters.
            producers: bounds the producers of each user.
            refusal: builds the answer to a producer of a damaged queue.
            appended: called when a queue's log grew.
        """
        self._copies = copies
        self._producers = producers
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._lease = context.lease
        self._space = context.space
        queues = context.queues
        self._stored = StoredBytes(
            context.routes, lambda: ((replica.topic, replica.size) for replica in queues)
        )
        self._stats = context.stats
        self._max_plain_bytes = context.config.max_request_bytes + 2 * FRAME_ROOM_BYTES
        """What an uncompressed batch may have in a frame that this broker receives."""
        self._refusal = refusal
        self._appended = appended

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of PRODUCE."""
        return {Produce: self.produce}

    def produce(self, peer: PeerSession, message: Produce, turn: BrokerTurn) -> None:
        """Append a batch, and answer once it is as safe as requested."""
        try:
            self._produce(peer, message, turn)
        except LogboomError as error:
            self._stats.count("produce_refusals")
            turn.refuse(peer.address, message.id, error)

    def _produce(self, peer: PeerSession, message: Produce, turn: BrokerTurn) -> None:
        address, batches = peer.address, turn.batches
        replica = self._queues.by_name.get((message.topic, message.queue))
        leading = replica.leading if replica is not None else None
        if replica is None or leading is None:
            raise not_leader(self._routes, message.topic, message.queue, self._me, message.topic_id)
        check_topic(replica, message.topic_id)
        check_restored(replica)
        if replica.damage is not None:
            # A good copy may return at any moment, so the producer keeps its batch until then.
            raise Unavailable(self._refusal(replica).text)
        if len(batches) != 1:
            text = f"PRODUCE carries one batch, not {len(batches)}"
            raise InvalidRequest(text, "MALFORMED")
        batch = batches[0]
        head = validate_batch(batch, stamped=False)
        if head.is_control:
            raise InvalidRequest("producers send messages, not control entries", "MALFORMED")
        self._check_producer(peer, message, head)
        if message.due_ms != AT_ONCE:
            check_due(message.due_ms, turn.now.wall_ms)
        transaction = message.transaction
        if transaction is not None:
            check_transaction(transaction, message)
        topic = self._routes.topics[message.topic]
        config = topic.config
        if head.count > MAX_PRODUCED_COUNT or head.plain_length > self._max_plain_bytes:
            raise self._too_much(head)
        if head.plain_length > config.max_message_bytes:
            limit = message_limit(topic)
            opens: Callable[[int], None] = _ignore
            if head.codec is not Codec.NONE:
                opens = turn.opened.begin(peer.user or address)
            oversized = find_oversized(batch, head, limit, opens)
            if oversized is not None:
                raise _too_large(oversized, limit)
        if is_reserved(message.topic):
            self._copies.check(peer, message, batch, head, turn)
        self.check_acks(message.acks, leading, turn.mono)
        if head.producer_id >= 0:
            original = replica.windows.find(head)
            if original is not None:
                self._stats.count("duplicates")
                side = original.side if original.parked else -1
                waiting = PendingProduce(
                    original.after,
                    address,
                    message.id,
                    original.offset,
                    original.append_time_ms,
                    turn.mono + message.timeout_ms / 1000,
                    side,
                )
                self.wait(replica, leading, waiting, message.acks, turn)
                return
        if self._space.check(turn.mono):
            raise self._space.refusal()
        if topic.owner:
            self._stored.check(topic.owner, len(batch), turn.mono)
        queues = self._queues
        if transaction is not None:
            check_open(queues.storage, replica, transaction)
        if peer.user and head.producer_id >= 0:
            self._producers.use(peer.user, head.producer_id, replica, leading, turn)
        wall_ms, side = turn.now.wall_ms, -1
        if message.due_ms == AT_ONCE and transaction is None:
            done = replica.append_batch(batch, head, wall_ms, turn.writes, queues.cache)
        else:
            side = replica.end.side
            done = replica.append_parked(
                batch, message.due_ms, wall_ms, turn.writes, queues.cache, transaction
            )
            self._stats.count("parked_batches")
        queues.touch(replica)
        self._space.wrote(len(batch))
        counters = self._stats.counters
        counters["produced_batches"] += 1
        counters["produced_messages"] += head.count
        counters["produced_bytes"] += len(batch)
        waiting = PendingProduce(
            done.after,
            address,
            message.id,
            done.base_offset,
            done.append_time_ms,
            turn.mono + message.timeout_ms / 1000,
            side,
        )
        self.wait(replica, leading, waiting, message.acks, turn)
        self._appended(replica)

    def _check_producer(self, peer: PeerSession, message: Produce, head: BatchHead) -> None:
        """Check that the producer id is one of the user who sends (A6).

        Raises:
            Forbidden: it is not; below its features level that is counted alone.
        """
        if not peer.user or head.producer_id < 0 or is_id_of_user(peer.user, head.producer_id):
            return
        self._stats.count("foreign_producer_ids")
        if self._routes.features >= IDS_OF_USERS:
            raise Forbidden(
                f"producer id {head.producer_id} was not given to user {peer.user!r}: restart the "
                "program, so that it takes others; none may be older than the upgrade to this release",
                verb="write",
                kind="topic",
                name=message.topic,
            )

    def _too_much(self, head: BatchHead) -> InvalidRequest:
        """Return the refusal of a batch for what it opens to; nothing of it has been opened."""
        if head.count > MAX_PRODUCED_COUNT:
            limit = MAX_PRODUCED_COUNT
            text = f"a batch of {head.count} messages; a broker takes {limit}: send smaller batches"
        else:
            limit = self._max_plain_bytes
            text = (
                f"a batch that opens to {head.plain_length} bytes; this broker takes {limit}: send "
                "smaller batches (max_batch_bytes), or raise max_request_bytes of the brokers"
            )
        return InvalidRequest(text, "TOO_LARGE", limit=limit)

    def check_acks(self, acks: Acks, leading: Leadership, now: float) -> None:
        """Check that a batch can become as safe as requested.

        Raises:
            NotEnoughReplicas: for acks=all.
            Unavailable: no lease, for the others.
        """
        if acks == "all":
            if len(leading.isr) < leading.required:
                raise NotEnoughReplicas(
                    f"{len(leading.isr)} of {leading.required} copies are in sync: start the "
                    "brokers that are down, or lower the topic's min_in_sync",
                    isr=list(leading.isr),
                )
        elif not self._lease.holds(now):
            raise no_lease("acks=leader and acks=none are")

    def wait(
        self,
        replica: Replica,
        leading: Leadership,
        waiting: PendingProduce,
        acks: Acks,
        turn: BrokerTurn,
    ) -> None:
        """Answer when the requested acks are reached; for a duplicate, those of its original (Q9)."""
        if not waiting.number:
            return
        if acks == "none":
            _answer(waiting, turn)
            return
        line, safe = leading.waiting_all, replica.hw
        if acks == "leader":
            line, safe = leading.waiting_leader, replica.synced
        if waiting.after <= safe:
            _answer(waiting, turn)
        elif line and waiting.after < line[-1].after:
            leading.late.append((acks, waiting))
        else:
            line.append(waiting)

    def end_moved(self, replica: Replica, turn: BrokerTurn) -> None:
        """Answer the producers whose batches are on the leader's disk."""
        leading = replica.leading
        if leading is not None:
            _answer_up_to(leading.waiting_leader, replica.synced, turn)
            if leading.late:
                self._answer_late(replica, leading, turn)

    def hw_moved(self, replica: Replica, turn: BrokerTurn) -> None:
        """Answer the producers whose batches are committed."""
        leading = replica.leading
        if leading is not None:
            _answer_up_to(leading.waiting_all, replica.hw, turn)
            if leading.late:
                self._answer_late(replica, leading, turn)

    def _answer_late(self, replica: Replica, leading: Leadership, turn: BrokerTurn) -> None:
        late, leading.late = leading.late, []
        for acks, waiting in late:
            safe = replica.hw if acks == "all" else replica.synced
            if waiting.after <= safe:
                _answer(waiting, turn)
            elif waiting.deadline > turn.mono:
                leading.late.append((acks, waiting))

    def expire(self, leading: Leadership, now: float) -> None:
        """Forget producers that no longer wait, because their own deadline ended the request."""
        for line in (leading.waiting_all, leading.waiting_leader):
            while line and line[0].deadline <= now:
                line.popleft()

    def lost(self, replica: Replica, leading: Leadership, turn: BrokerTurn) -> None:
        """Send waiting producers to the next leader, because the leadership ended."""
        self._producers.lost(replica, leading)
        waiting = [*leading.waiting_all, *leading.waiting_leader, *(w for _, w in leading.late)]
        if not waiting:
            return
        error = not_leader(self._routes, replica.topic, replica.queue, me=self._me)
        for each in waiting:
            turn.refuse(each.address, each.number, error)


def _answer(waiting: PendingProduce, turn: BrokerTurn) -> None:
    if waiting.reply is not None:
        turn.answer(waiting.address, waiting.reply)
        return
    place = (waiting.base_offset, waiting.append_time_ms, waiting.side)
    turn.answer(waiting.address, Produced(waiting.number, *place))


def _answer_up_to(line: deque[PendingProduce], safe: Position, turn: BrokerTurn) -> None:
    while line and line[0].after <= safe:
        _answer(line.popleft(), turn)


def _ignore(_size: int) -> None:
    return


def _too_large(size: int, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"a message of {size} bytes; the topic takes at most "
        f"{limit}: send smaller ones, or raise max_message_bytes",
        "TOO_LARGE",
        limit=limit,
    )
