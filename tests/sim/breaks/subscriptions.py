"""Rules of subscriptions, broken on purpose: `tests.sim.broken` says who must notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from logboom.nodes.subscriptions import desk as subscription_desk
from logboom.nodes.subscriptions.access import Access
from logboom.nodes.subscriptions.cursors import QueueCursors
from logboom.nodes.subscriptions.desk import Desk
from logboom.nodes.subscriptions.dispatch_lines import Lines
from logboom.nodes.subscriptions.dispatch_single import SingleDispatcher
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from tests.sim.breaks.queues import Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logboom.nodes.log.replica import Replica
    from logboom.nodes.replication.leading import Leadership
    from logboom.nodes.subscriptions.ack_set import AckSet
    from logboom.nodes.subscriptions.dispatch_consumers import Consumer
    from logboom.nodes.subscriptions.dispatch_events import Attach, Entry
    from logboom.nodes.subscriptions.permits import Permits
    from logboom.nodes.subscriptions.seats import Served
    from logboom.nodes.turn import Turn
    from logboom.wire.cursor_deltas import CursorDelta
    from logboom.wire.subscription_messages import Receive


def deliveries_need_no_lease(patch: Patch) -> None:
    """P10: a leader that nobody has heard of for long goes on delivering."""

    def may_take(self: Dispatcher, consumer: Consumer) -> bool:
        return consumer.ready and consumer.permits.open and not consumer.full and not self.full

    patch.setattr(Dispatcher, "may_take", may_take)


def acks_are_answered_at_once(patch: Patch) -> None:
    """P10: an acknowledgement is confirmed before it is replicated."""
    flush = Desk.flush

    def hasty(self: Desk, turn: Turn) -> None:
        unwritten = vars(self.answers)["_unwritten"]
        for _, _, address, message in unwritten:
            turn.answer(address, message)
        unwritten.clear()
        flush(self, turn)

    patch.setattr(Desk, "flush", hasty)


def _with_less(patch: Patch, **less: list[int]) -> None:
    delta = vars(subscription_desk)["_delta"]

    def shorter(served: Served) -> CursorDelta:
        whole: CursorDelta = delta(served)
        return msgspec.structs.replace(whole, **less)

    patch.setattr(subscription_desk, "_delta", shorter)


def acks_are_not_written_down(patch: Patch) -> None:
    """P10: acknowledgements stay in the leader's memory."""
    _with_less(patch, acked=[])


def counts_are_not_written_down(patch: Patch) -> None:
    """P10: counts of redeliveries stay in the leader's memory."""
    _with_less(patch, counts=[])


def the_floor_is_all_that_is_known(patch: Patch) -> None:
    """P10: a new leader knows the floor, and not what is acknowledged above it."""
    known = Access.known

    def less(self: Access, replica: Replica, name: str) -> tuple[AckSet, dict[int, int]]:
        acks, counts = known(self, replica, name)
        acks.above.clear()
        return acks, counts

    patch.setattr(Access, "known", less)


def new_leaders_serve_at_once(patch: Patch) -> None:
    """P10: a new leader serves before it has applied what earlier ones wrote down."""
    led = Access.led

    def hasty(self: Access, message: Receive) -> tuple[Replica, Leadership]:
        replica = vars(self)["_queues"].by_name.get((message.topic, message.queue))
        leading = replica.leading if replica is not None else None
        if leading is None:
            return led(self, message)
        end, leading.election_end = leading.election_end, replica.applied
        try:
            return led(self, message)
        finally:
            leading.election_end = end

    patch.setattr(Access, "led", hasty)
    patch.setattr(QueueCursors, "behind", property(lambda _self: False))


def permits_outlive_their_session(patch: Patch) -> None:
    """P10: who comes again has the permits of before."""
    attach, detach = vars(Dispatcher)["_attach"], vars(Dispatcher)["_detach"]
    left: dict[tuple[Dispatcher, str], Permits] = {}

    def go(self: Dispatcher, consumer: Consumer) -> None:
        left[self, consumer.name] = consumer.permits
        detach(self, consumer)

    def come(self: Dispatcher, event: Attach) -> None:
        attach(self, event)
        consumer = self.consumers[event.consumer]
        consumer.permits = left.pop((self, event.consumer), consumer.permits)

    patch.setattr(Dispatcher, "_attach", come)
    patch.setattr(Dispatcher, "_detach", go)


def batches_are_cut_to_the_permits(patch: Patch) -> None:
    """P10: of a batch only as much is sent as there are permits, and the rest is passed over."""
    send = vars(Dispatcher)["_send"]

    def cut(self: Dispatcher, consumer: Consumer, chosen: Sequence[tuple[Entry, int]]) -> None:
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
    """P10: a slot that moves is its new owner's at once, whatever the old one holds."""
    patch.setattr(Lines, "_drain", lambda _self, _consumer: None)


def what_is_postponed_holds_nothing_up(patch: Patch) -> None:
    """P10: what follows a message of its key goes on while that waits to come again."""
    patch.setattr(Lines, "postponed", lambda _self, _start, _bits: None)
    patch.setattr(Lines, "due", lambda _self, _start, _bits: None)


def anybody_is_exclusive(patch: Patch) -> None:
    """P10: a second exclusive consumer is let in."""

    def attached(self: SingleDispatcher, consumer: Consumer) -> None:
        vars(SingleDispatcher)["_choose"](self, consumer)

    patch.setattr(SingleDispatcher, "_attached", attached)


def the_next_one_does_not_wait(patch: Patch) -> None:
    """P10: of failover the next one is served while the one before may still acknowledge."""
    pump = vars(SingleDispatcher)["_pump"]

    def hasty(self: SingleDispatcher) -> None:
        vars(self).update(_begins_at=float("-inf"), _before=None)
        pump(self)

    patch.setattr(SingleDispatcher, "_pump", hasty)


def what_comes_again_is_not_judged(patch: Patch) -> None:
    """P10: what was read is delivered, acknowledged or not."""

    def judge(_self: Dispatcher, entry: Entry, only: int = -1, *, damaged: bool = False) -> int:
        return 0 if damaged else ((1 << entry.head.count) - 1) & only

    patch.setattr(Dispatcher, "_judge", judge)


def what_a_consumer_had_is_forgotten(patch: Patch) -> None:
    """P10: what a consumer held when it went comes to nobody."""

    def detach(self: Dispatcher, consumer: Consumer) -> None:
        self.unacked -= consumer.held.count
        consumer.held.clear()
        del self.consumers[consumer.name]
        vars(type(self))["_detached"](self, consumer)

    patch.setattr(Dispatcher, "_detach", detach)


def time_outs_come_to_nothing(patch: Patch) -> None:
    """P10: what is not acknowledged in time stays with its consumer."""
    patch.setattr(Dispatcher, "_overdue", lambda _self, _consumer, _spans: None)
