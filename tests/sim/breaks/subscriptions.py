"""Rules of subscriptions, broken on purpose: `tests.sim.broken` says who must notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from logboom.client.subscriptions import attachments
from logboom.client.subscriptions.subscribed_queue import SubscribedQueue
from logboom.nodes.replica.cursors import QueueCursors
from logboom.nodes.subscriptions import subscription_service as subscription_desk
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from logboom.nodes.subscriptions.key_shared_backlog import KeySharedBacklog
from logboom.nodes.subscriptions.pending_answers import PendingAnswers
from logboom.nodes.subscriptions.single_active_dispatcher import SingleActiveDispatcher
from logboom.nodes.subscriptions.subscription_handler import (
    SubscriptionHandler,
    SubscriptionLookup,
)
from logboom.nodes.subscriptions.subscription_service import SubscriptionService
from tests.sim.breaks.queues import Patch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from logboom.nodes.replica.ack_set import AckSet
    from logboom.nodes.replica.leadership import Leadership
    from logboom.nodes.replica.offset_set import OffsetSet
    from logboom.nodes.replica.replica import Replica
    from logboom.nodes.subscriptions.active_subscription import ActiveSubscription
    from logboom.nodes.subscriptions.attached_consumer import AttachedConsumer, Permits
    from logboom.nodes.subscriptions.dispatch_events import AttachConsumer, Entry
    from logboom.nodes.turn import BrokerTurn
    from logboom.wire.cursor_deltas import CursorDelta
    from logboom.wire.subscription_messages import Receive, Span, Start


def refused_acks_count_as_confirmed(patch: Patch) -> None:
    """P10: a flush confirms acknowledgements that a leader has refused."""
    confirm = SubscribedQueue.confirm

    def content(
        self: SubscribedQueue, offsets: Iterable[int], up_to: int, _refused: list[Span]
    ) -> None:
        confirm(self, offsets, up_to, [])

    patch.setattr(SubscribedQueue, "confirm", content)


def answers_outlive_their_leadership(patch: Patch) -> None:
    """P10: an acknowledgement that comes as a leadership ends is confirmed, and written nowhere."""

    def written(self: PendingAnswers, turn: BrokerTurn, _unwritten: object = ()) -> None:
        answers, vars(self)["_unwritten"] = vars(self)["_unwritten"], []
        for _, _, address, message in answers:
            turn.answer(address, message)

    patch.setattr(PendingAnswers, "written", written)


def a_consumer_says_what_is_new(patch: Patch) -> None:
    """P10: a consumer that starts anew begins added queues as it would a new subscription."""

    def begin(
        _known: Collection[int], unknown: Collection[int], start: Start
    ) -> list[tuple[int, Start]]:
        return [(queue, start) for queue in unknown]

    patch.setattr(attachments, "beginnings", begin)


def a_name_is_anybodys(patch: Patch) -> None:
    """P10: two processes of one consumer's name take it from each other."""
    patch.setattr(
        SubscriptionHandler, "_contest", lambda _self, _peer, _replica, _message, _turn: None
    )


def deliveries_need_no_lease(patch: Patch) -> None:
    """P10: a leader whose lease has expired still delivers."""

    def may_take(self: Dispatcher, consumer: AttachedConsumer) -> bool:
        return consumer.ready and consumer.permits.open and not consumer.full and not self.full

    patch.setattr(Dispatcher, "may_take", may_take)


def acks_are_answered_at_once(patch: Patch) -> None:
    """P10: an acknowledgement is confirmed before it is replicated."""
    flush = SubscriptionService.flush

    def hasty(self: SubscriptionService, turn: BrokerTurn) -> None:
        unwritten = vars(self.answers)["_unwritten"]
        for _, _, address, message in unwritten:
            turn.answer(address, message)
        unwritten.clear()
        flush(self, turn)

    patch.setattr(SubscriptionService, "flush", hasty)


def _with_less(patch: Patch, **less: int | list[int]) -> None:
    delta = vars(subscription_desk)["_delta"]

    def shorter(served: ActiveSubscription) -> CursorDelta:
        whole: CursorDelta = delta(served)
        return msgspec.structs.replace(whole, **less)

    patch.setattr(subscription_desk, "_delta", shorter)


def acks_are_not_written_down(patch: Patch) -> None:
    """P10: acknowledgements stay in the leader's memory."""
    _with_less(patch, floor=0, acked=[])


def counts_are_not_written_down(patch: Patch) -> None:
    """P10: counts of redeliveries stay in the leader's memory."""
    _with_less(patch, counts=[])


def the_floor_is_all_that_is_known(patch: Patch) -> None:
    """P10: a new leader knows the floor, and no acknowledgements above it."""
    known = SubscriptionLookup.known

    def less(
        self: SubscriptionLookup, replica: Replica, name: str
    ) -> tuple[AckSet, dict[int, int]]:
        acks, counts = known(self, replica, name)
        acks.above.clear()
        return acks, counts

    patch.setattr(SubscriptionLookup, "known", less)


def new_leaders_serve_at_once(patch: Patch) -> None:
    """P10: a new leader serves before it has applied the entries of earlier leaders."""
    led = SubscriptionLookup.led

    def hasty(self: SubscriptionLookup, message: Receive) -> tuple[Replica, Leadership]:
        replica = vars(self)["_queues"].by_name.get((message.topic, message.queue))
        leading = replica.leading if replica is not None else None
        if leading is None:
            return led(self, message)
        end, leading.election_end = leading.election_end, replica.applied
        try:
            return led(self, message)
        finally:
            leading.election_end = end

    patch.setattr(SubscriptionLookup, "led", hasty)
    patch.setattr(QueueCursors, "behind", property(lambda _self: False))


def permits_outlive_their_session(patch: Patch) -> None:
    """P10: a consumer that attaches again keeps its earlier permits."""
    attach, detach = vars(Dispatcher)["_attach"], vars(Dispatcher)["_detach"]
    left: dict[tuple[Dispatcher, str], Permits] = {}

    def go(self: Dispatcher, consumer: AttachedConsumer) -> None:
        left[self, consumer.name] = consumer.permits
        detach(self, consumer)

    def come(self: Dispatcher, event: AttachConsumer) -> None:
        attach(self, event)
        consumer = self.consumers[event.consumer]
        consumer.permits = left.pop((self, event.consumer), consumer.permits)

    patch.setattr(Dispatcher, "_attach", come)
    patch.setattr(Dispatcher, "_detach", go)


def batches_are_cut_to_the_permits(patch: Patch) -> None:
    """P10: a batch is cut to the permits, and its rest is skipped."""
    send = vars(Dispatcher)["_send"]

    def cut(
        self: Dispatcher, consumer: AttachedConsumer, chosen: Sequence[tuple[Entry, int]]
    ) -> None:
        left, part = consumer.permits.left, []
        for entry, bits in chosen:
            while bits.bit_count() > left:
                bits &= ~(1 << (bits.bit_length() - 1))
            left -= bits.bit_count()
            if bits:
                part.append((entry, bits))
        send(self, consumer, part)

    patch.setattr(Dispatcher, "_send", cut)


def moving_slots_are_not_drained(patch: Patch) -> None:
    """P10: a slot that moves belongs to its new owner at once, whatever the old one holds."""
    moved = vars(KeySharedBacklog)["_moved"]

    def heedless(self: KeySharedBacklog, _holders: object, waiting: list[OffsetSet]) -> OffsetSet:
        uncovered: OffsetSet = moved(self, (), waiting)
        return uncovered

    patch.setattr(KeySharedBacklog, "_moved", heedless)


def what_comes_back_holds_nothing_up(patch: Patch) -> None:
    """P10: messages are sent while earlier ones of a consumer that has gone are yet to be given back."""
    prepare = vars(Dispatcher)["_prepare"]

    def hasty(self: Dispatcher) -> bool:
        prepare(self)
        return True

    patch.setattr(Dispatcher, "_prepare", hasty)


def what_is_postponed_holds_nothing_up(patch: Patch) -> None:
    """P10: later messages of a key are delivered while an earlier one waits for redelivery."""
    patch.setattr(KeySharedBacklog, "postponed", lambda _self, _start, _bits: None)
    patch.setattr(KeySharedBacklog, "due", lambda _self, _start, _bits: None)


def anybody_is_exclusive(patch: Patch) -> None:
    """P10: a second exclusive consumer is admitted."""

    def attached(self: SingleActiveDispatcher, consumer: AttachedConsumer) -> None:
        vars(SingleActiveDispatcher)["_choose"](self, consumer)

    patch.setattr(SingleActiveDispatcher, "_attached", attached)


def the_next_one_does_not_wait(patch: Patch) -> None:
    """P10: the next failover consumer is served while the previous one may still acknowledge."""
    pump = vars(SingleActiveDispatcher)["_pump"]

    def hasty(self: SingleActiveDispatcher) -> None:
        vars(self).update(_begins_at=float("-inf"), _before=None)
        pump(self)

    patch.setattr(SingleActiveDispatcher, "_pump", hasty)


def what_comes_again_is_not_judged(patch: Patch) -> None:
    """P10: every message that is read is delivered, acknowledged or not."""

    def judge(_self: Dispatcher, entry: Entry, only: int = -1, *, damaged: bool = False) -> int:
        return 0 if damaged else ((1 << entry.head.count) - 1) & only

    patch.setattr(Dispatcher, "_judge", judge)


def what_a_consumer_had_is_forgotten(patch: Patch) -> None:
    """P10: messages that a detached consumer held are not redelivered."""

    def detach(self: Dispatcher, consumer: AttachedConsumer) -> None:
        self.unacked -= consumer.held.count
        consumer.held.clear()
        del self.consumers[consumer.name]
        vars(type(self))["_detached"](self, consumer)

    patch.setattr(Dispatcher, "_detach", detach)


def time_outs_come_to_nothing(patch: Patch) -> None:
    """P10: messages that were not acknowledged in time stay with their consumer."""
    patch.setattr(Dispatcher, "_overdue", lambda _self, _consumer, _start, _bits: None)


def whole_cursors_keep_to_the_clock(patch: Patch) -> None:
    """Q12: a whole cursor is written once a minute at most, whatever it holds up."""
    patch.setattr(subscription_desk, "WHOLE_BYTES", 1 << 60)


def whole_cursors_wait_for_a_pause(patch: Patch) -> None:
    """Q12: no whole cursor is written while acknowledgements are under way."""
    due = vars(SubscriptionService)["_due"]

    def hesitant(self: SubscriptionService, replica: Replica, now: float) -> list[str]:
        names: list[str] = [] if replica.cursors.behind else due(self, replica, now)
        return names

    patch.setattr(SubscriptionService, "_due", hesitant)
