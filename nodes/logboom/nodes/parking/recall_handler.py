"""RECALL at a leader: takes a parked batch back before it is released."""

from __future__ import annotations

from collections.abc import Callable

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import LAST_SIDE, Position
from logboom.nodes.parking.release_scheduler import parked_entry
from logboom.nodes.replica import parked_rows
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leader_lookup import find_led_replica
from logboom.nodes.replica.leadership import Leadership, PendingProduce
from logboom.nodes.replica.replica import Replica
from logboom.nodes.replication.replica_repair import ReplicaRepair
from logboom.nodes.requests.produce_handler import ProduceHandler
from logboom.nodes.turn import BrokerTurn, Handler, Service
from logboom.wire.acceptor import PeerSession
from logboom.wire.access_requirements import Requirement
from logboom.wire.batch import control_body, peek
from logboom.wire.errors import InvalidRequest, LogboomError, Unavailable
from logboom.wire.features import IDS_OF_USERS
from logboom.wire.head import ControlKind
from logboom.wire.parking import Recall, Recalled, encode_recalled, parked_body
from logboom.wire.user_marks import is_id_of_user


class RecallHandler(Service):
    """Serves RECALL, and answers once the recall is committed."""

    def __init__(
        self,
        context: BrokerContext,
        produce_handler: ProduceHandler,
        repair: ReplicaRepair,
        appended: Callable[[Replica], None],
    ) -> None:
        """Create a handler; `appended` is called when a queue's log grew."""
        self._acceptor = context.acceptor
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._stats = context.stats
        self._produce_handler = produce_handler
        self._repair = repair
        self._appended = appended

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of RECALL."""
        return {Recall: self.recall}

    def recall(self, peer: PeerSession, message: Recall, turn: BrokerTurn) -> None:
        """Append a RECALLED entry, and answer once it is committed."""
        try:
            self._recall(peer, message, turn)
        except LogboomError as error:
            turn.refuse(peer.address, message.id, error)

    def _recall(self, peer: PeerSession, message: Recall, turn: BrokerTurn) -> None:
        address = peer.address
        replica, leading = find_led_replica(self._queues, self._routes, self._me, message)
        if replica.damage is not None:
            raise Unavailable(self._repair.refusal(replica).text)
        at = Position(message.offset, message.side)
        place = self._place(replica, leading, at)
        self._check_time(place, replica)
        if place is None:
            turn.answer(address, Recalled(message.id, self._was_recalled(replica, at)))
            return
        self._check_sender(peer, message, replica, place)
        self._produce_handler.check_acks("all", leading, turn.mono)
        after = replica.append_control(
            ControlKind.RECALLED,
            encode_recalled(*place),
            turn.now.wall_ms,
            turn.writes,
            self._queues.cache,
        )
        self._queues.touch(replica)
        leading.recalling.add(place)
        self._stats.count("recalls")
        deadline = turn.mono + message.timeout_ms / 1000
        waiting = PendingProduce(
            after, address, message.id, 0, 0, deadline, reply=Recalled(message.id, True)
        )
        self._produce_handler.wait(replica, leading, waiting, "all", turn)
        self._appended(replica)

    def _place(self, replica: Replica, leading: Leadership, at: Position) -> Position | None:
        """Return the current position of the batch that was first parked at `at`.

        None if it is no longer parked.

        Raises:
            InvalidRequest: the log does not reach this position.
            Unavailable: the answer is not certain yet.
        """
        if at >= replica.end or min(at) < 0 or at.side > LAST_SIDE:
            text = f"nothing is parked at {at.offset}.{at.side} of {replica.topic}/{replica.queue}"
            raise InvalidRequest(f"{text}: give the position that the send was answered with")
        # An earlier leader may have released a batch that is still parked here.
        if at >= replica.applied or replica.applied < leading.election_end:
            raise Unavailable(
                "the parked batches of this queue are not in sync yet: try again", "BUSY"
            )
        place = parked_rows.place_of(self._queues.storage, replica.parked.ids, at)
        if place in leading.relocating:
            raise Unavailable("this parked batch is being relocated: try again", "BUSY")
        # The release may be lost with this leadership, and an earlier recall may hold then.
        if place in leading.releasing:
            raise Unavailable("this parked batch is being released: try again", "BUSY")
        return place

    def _check_time(self, place: Position | None, replica: Replica) -> None:
        """Check that the batch waits for a time.

        Raises:
            InvalidRequest: it waits for a decision.
        """
        ids, storage = replica.parked.ids, self._queues.storage
        row = parked_rows.find_row(storage, ids, place) if place is not None else None
        if row is not None and row.waits is not None:
            text = "this batch waits for the decision on its transaction: abort that instead"
            raise InvalidRequest(text)

    def _check_sender(
        self, peer: PeerSession, message: Recall, replica: Replica, place: Position
    ) -> None:
        """Check that a user has sent the batch, or may manage the topic (A6).

        Raises:
            LogboomError: neither, or the batch cannot be read.
        """
        if not peer.user or self._routes.features < IDS_OF_USERS:
            return
        try:
            entry = parked_entry(replica, self._queues, place)
        except DamagedEntry as error:
            self._repair.found(replica, error)
            raise Unavailable(self._repair.refusal(replica).text) from None
        sent = peek(parked_body(control_body(entry)).batch)
        if is_id_of_user(peer.user, sent.producer_id):
            return
        needed = Requirement("manage", "topic", replica.topic)
        lack = self._acceptor.authorizer.lack(peer, message, needed)
        if lack is not None:
            raise lack

    def _was_recalled(self, replica: Replica, at: Position) -> bool:
        return parked_rows.was_recalled(self._queues.storage, replica.parked.ids, at)
