"""The subscriptions that this broker serves: their dispatchers, cursors and answers.

The changes of all dispatchers of a queue are written to its log once a turn, as one CURSOR_DELTA
entry, and the requests that caused them are answered when it is committed. All of this ends with
the leadership. The next leader starts with the cursors that it has derived from the log (Q12). A
leader without a lease delivers nothing, since another may have taken over, and the messages that it
considers unacknowledged may be acknowledged there (Q11).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from logboom.nodes.broker_context import BrokerContext
from logboom.nodes.log.keys import Position
from logboom.nodes.parking.release_scheduler import is_certain
from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.batch_match import MatchQueue
from logboom.nodes.replica.cursors import whole_delta
from logboom.nodes.replica.entry_reader import DamagedEntry
from logboom.nodes.replica.leadership import Leadership
from logboom.nodes.replica.offset_set import OffsetSet, Span
from logboom.nodes.replica.replica import QueueKey, Replica
from logboom.nodes.replica.request_errors import not_leader
from logboom.nodes.subscriptions.active_subscription import (
    ActiveSubscription,
    ConsumerSession,
    HeldReceive,
    make_dispatcher,
)
from logboom.nodes.subscriptions.dispatch_events import (
    Delivery,
    DetachConsumer,
    DispatchEvent,
    LogAdvanced,
    SubscriptionConfig,
    Tick,
)
from logboom.nodes.subscriptions.dispatcher import RETURN_UNITS, SLICE_UNITS
from logboom.nodes.subscriptions.entry_filter import DispatchFilter, EntryFilter
from logboom.nodes.subscriptions.entry_source import LogEntrySource
from logboom.nodes.subscriptions.pending_answers import PendingAnswers
from logboom.nodes.subscriptions.slot_reader import SlotReader
from logboom.nodes.subscriptions.topic_rates import TopicRateLimiters
from logboom.nodes.turn import BrokerTurn, Figures, HeldRequest, Service
from logboom.wire.actor import Note
from logboom.wire.cursor_deltas import (
    CursorDelta,
    encode_deltas,
    pack_counts,
    pack_spans,
)
from logboom.wire.errors import GroupError, LogboomError, Refused
from logboom.wire.head import ControlKind
from logboom.wire.subscription_messages import Delivered, Receive

WHOLE_EVERY: Final = 60.0
"""Minimum seconds between two complete writings of a cursor, unless it holds up enough bytes."""

WHOLE_BYTES: Final = 64 * 1024
"""Least bytes of the log for which a complete cursor is written earlier, …"""

WHOLE_SHARE: Final = 8
"""… and how many times its own size these have to be."""

TURN_UNITS: Final = 40_000
"""Units of work (`wire.filters.ScanBudget`) of all subscriptions with filters or slots in one turn:
some ten milliseconds."""
STEPPED_AT_ONCE: Final = 128
"""Subscriptions that are stepped in one turn."""
MOST_OF_USER: Final = 50_000
"""Consumers that a user has attached at a broker: each takes some 1.5 KB."""
OVER: Final = float("-inf")
"""When a consumer was heard that is not served any more."""
STALL_S: Final = 1.0
"""Seconds between two turns that count as a stall of this loop."""

SubscriptionKey = tuple[QueueKey, str]
"""A queue, and the name of a subscription."""


class _WholeRecord(NamedTuple):
    """The last complete writing of a cursor."""

    written_at: float
    """Monotonic time."""
    offset: int
    """Of its entry."""
    size: int
    """Bytes of its entry, which may contain other cursors of the queue too."""


class _Due(NamedTuple):
    """When a subscription is to be stepped."""

    when: float
    """Monotonic time."""
    number: int
    """Of two that are due at the same time, the one with the lower number is first."""
    place: SubscriptionKey


_NEVER: Final = _WholeRecord(float("-inf"), 0, 0)


class SubscriptionService(Service):
    """All subscriptions of the queues that this broker leads."""

    def __init__(
        self,
        context: BrokerContext,
        appended: Callable[[Replica], None],
        on_damage: Callable[[Replica, DamagedEntry], None],
        plug_ins: Sequence[DispatchFilter] = (),
    ) -> None:
        """Create the service.

        Args:
            appended: is called when a queue's log grew.
            on_damage: is called when an entry cannot be read.
            plug_ins: decide about every batch before it is delivered.
        """
        self._me = context.me
        self._queues = context.queues
        self._routes = context.routes
        self._lease = context.lease
        self._stats = context.stats
        self._rights = context.rights
        self._appended = appended
        self._on_damage = on_damage
        self._plug_ins = plug_ins
        self._notes: list[Note] = []
        """Faults of plug-ins that are not in a turn's effects yet."""
        self._rates = TopicRateLimiters(context.routes)
        self._attached = Counter[str]()
        """User → number of its consumers."""
        self._slot_reader = SlotReader()
        self._matching = MatchQueue()
        self.served: dict[SubscriptionKey, ActiveSubscription] = {}
        self._by_queue: dict[QueueKey, dict[str, ActiveSubscription]] = {}
        """The same, by queue."""
        self._ended: dict[SubscriptionKey, Position] = {}
        """Subscriptions that were ended, and the end of the entry that says so."""
        self._touched: dict[SubscriptionKey, ActiveSubscription] = {}
        """Subscriptions with changes to write."""
        self.answers = PendingAnswers(context)
        self._whole: dict[SubscriptionKey, _WholeRecord] = {}
        self._stepped = float("inf")
        """When `step` was called last."""
        self._agenda: list[_Due] = []
        """When subscriptions are to be stepped, as a heap; an entry that `_due_at` lacks is void."""
        self._due_at: dict[SubscriptionKey, _Due] = {}
        self._pushed = 0
        """Entries that this heap has had."""
        self._limited: dict[SubscriptionKey, ActiveSubscription] = {}
        """Those that wait for a rate, which others may change."""
        self._halted: dict[SubscriptionKey, ActiveSubscription] = {}
        """Those that wait for the lease."""
        self._learned: dict[str, None] = {}
        """Topics that have other rates since the last step."""

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Follow the rates of topics with the next step."""
        self._learned.update(dict.fromkeys(self._rates.learned(topics)))

    def figures(self, now: float) -> Figures:
        """Return how many subscriptions and consumers are served."""
        return {
            "subscriptions_served": len(self.served),
            "subscription_consumers": sum(len(each.sessions) for each in self.served.values()),
        }

    def held(self) -> Iterator[HeldRequest | None]:
        """Yield the requests for messages that wait."""
        for served in list(self.served.values()):
            yield None
            for name, consumer_session in list(served.sessions.items()):
                held = consumer_session.held
                if held is None or served.sessions.get(name) is not consumer_session:
                    yield None  # It is decided on with its next request.
                else:
                    waiting = _receive(served, name, consumer_session, held)
                    drop = partial(self._end_session, served, name)
                    yield HeldRequest(held.address, waiting, drop)

    def _end_session(self, served: ActiveSubscription, name: str) -> None:
        """Let a consumer get nothing more, and be detached by one of the next steps."""
        consumer_session = served.sessions[name]
        consumer_session.held = None
        consumer_session.heard = OVER
        served.dispatcher.unready(name)
        place = (served.replica.key, served.name)
        due = self._due_at.get(place)
        if due is None or due.when > OVER:
            self._push(place, OVER)

    # ── which there are ─────────────────────────────────────────────────────────────────────────

    def exists(self, replica: Replica, name: str) -> bool:
        """True if the log here says that a queue has a subscription of this name."""
        place = (replica.key, name)
        if place in self.served:
            return True
        ended = self._ended.get(place)
        if ended is not None:
            if replica.applied < ended:
                return False
            del self._ended[place]
        return name in replica.cursors.cursors

    def count(self, replica: Replica) -> int:
        """Return how many subscriptions a queue has, with those whose end is not applied yet."""
        return max(len(replica.cursors.cursors), len(self._by_queue.get(replica.key, ())))

    def names(self, replica: Replica) -> list[str]:
        """Return the names of all subscriptions of a queue."""
        names = set(self._by_queue.get(replica.key, ()))
        names |= {name for name in replica.cursors.cursors if self.exists(replica, name)}
        return sorted(names)

    def begin(
        self, replica: Replica, name: str, acks: AckSet, counts: dict[int, int], turn: BrokerTurn
    ) -> None:
        """Write a complete cursor: the subscription is created, or moved."""
        self._ended.pop((replica.key, name), None)
        self._append_whole(replica, [whole_delta(name, acks, counts)], turn)

    def end(self, replica: Replica, name: str, turn: BrokerTurn) -> None:
        """Write the end of a subscription."""
        after = self._append(replica, [CursorDelta(name, "ended")], turn)
        self._ended[replica.key, name] = after

    def serve(
        self,
        replica: Replica,
        leading: Leadership,
        name: str,
        settings: SubscriptionConfig,
        acks: AckSet,
        counts: dict[int, int],
        now: float,
    ) -> ActiveSubscription:
        """Serve a subscription from its cursor on, or with new settings.

        Raises:
            LogboomError: a setting is invalid.
        """
        source = LogEntrySource(replica, self._queues.storage, self._on_damage, self._slot_reader)
        plug_ins = [partial(each, replica.topic, name) for each in self._plug_ins]
        given = (settings.filter, plug_ins, self._stats, self._notes, self._matching)
        entry_filter = EntryFilter(*given)
        rates = (self._rates.get_limiter(replica, name),)
        dispatcher = make_dispatcher(settings, source, acks, counts, entry_filter, rates)
        served = ActiveSubscription(name, replica, leading, settings, dispatcher)
        before = self.served.get((replica.key, name))
        if before is not None:
            for each in list(before.sessions):
                self.drop_session(before, each)
            served.acked, served.counts = before.acked, before.counts
            dispatcher.returning = before.dispatcher.returning
        self.served[replica.key, name] = served
        self._by_queue.setdefault(replica.key, {})[name] = served
        served.take(dispatcher.handle(LogAdvanced(replica.start, replica.readable.offset), now))
        if served.changed:
            self._touched[replica.key, name] = served
        self.plan(served)
        return served

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def tell(
        self,
        served: ActiveSubscription,
        event: DispatchEvent,
        turn: BrokerTurn,
        *,
        due: bool = False,
    ) -> list[Span]:
        """Pass an event to a dispatcher and carry out the effects.

        Requests leave a slice of each turn to those that are `due`. Return the spans that it refused.

        Raises:
            LogboomError: the event was refused.
        """
        served.dispatcher.halted = not self._lease.holds(turn.mono)
        units = SLICE_UNITS
        if served.dispatcher.scans:
            # One that has nothing left of this turn goes on in the next.
            room = TURN_UNITS if due else TURN_UNITS - SLICE_UNITS
            units = max(0, min(units, room - turn.scanned))
        returned = max(0, RETURN_UNITS - turn.returned)
        effects = served.dispatcher.handle(event, turn.mono, units, returned)
        turn.scanned += served.dispatcher.spent
        turn.returned += served.dispatcher.returned
        for delivery in served.take(effects):
            self._send(served, delivery, turn)
        if served.changed:
            self._touched[served.replica.key, served.name] = served
        self.plan(served)
        return effects.refused

    def plan(self, served: ActiveSubscription) -> None:
        """Note when a subscription is to be stepped, which may be earlier than before."""
        place = (served.replica.key, served.name)
        if self.served.get(place) is not served:
            return
        for table, waits in (
            (self._limited, served.dispatcher.limited),
            (self._halted, served.dispatcher.halted),
        ):
            if waits:
                table[place] = served
            elif table:
                table.pop(place, None)
        when, known = served.deadline(), self._due_at.get(place)
        if when < (known.when if known is not None else float("inf")):
            self._push(place, when)

    def _push(self, place: SubscriptionKey, when: float) -> None:
        self._pushed += 1
        due = self._due_at[place] = _Due(when, self._pushed, place)
        heapq.heappush(self._agenda, due)
        if len(self._agenda) > 2 * len(self._due_at) + STEPPED_AT_ONCE:
            self._agenda = list(self._due_at.values())
            heapq.heapify(self._agenda)

    def _send(self, served: ActiveSubscription, delivery: Delivery, turn: BrokerTurn) -> None:
        consumer_session = served.sessions[delivery.consumer]
        held = consumer_session.held
        assert held is not None
        if self._rights.under_way:
            waiting = _receive(served, delivery.consumer, consumer_session, held)
            if not self._rights.allows(held.address, waiting, turn):
                # What it was to get goes to others once it is detached.
                self._end_session(served, delivery.consumer)
                return
        chosen: list[bytes] = []
        attempts: list[tuple[int, int]] = []
        for entry, bits, counted in delivery.batches:
            count = entry.head.count
            whole = bits == (1 << count) - 1
            chosen.append(b"" if whole else bits.to_bytes(-(-count // 8), "little"))
            attempts += counted
        counters = self._stats.counters
        counters["delivered_batches"] += len(delivery.batches)
        counters["delivered_messages"] += delivery.messages
        counters["messages_out"] += delivery.messages
        counters["redelivered"] += len(attempts)
        message = Delivered(held.number, chosen, attempts, consumer_session.active)
        frames = [batch.entry.frame for batch in delivery.batches]
        size = sum(map(len, frames))
        served.replica.sent_bytes += size
        counters["bytes_out"] += size
        turn.answer(held.address, message, frames)
        consumer_session.held = None

    def send_nothing(self, served: ActiveSubscription, name: str, turn: BrokerTurn) -> None:
        """Answer a held request without messages, since its time is over."""
        consumer_session = served.sessions[name]
        if consumer_session.held is not None:
            served.dispatcher.unready(name)
            turn.answer(
                consumer_session.held.address,
                Delivered(consumer_session.held.number, [], [], consumer_session.active),
            )
            consumer_session.held = None

    def keep_attached(self, message: Receive, user: str, now: float) -> None:
        """Count a consumer as heard whose Receive waits for the quota of its user (A6)."""
        replica = self._queues.by_name.get((message.topic, message.queue))
        if replica is None:
            return
        served = self.served.get((replica.key, message.subscription))
        consumer_session = served.sessions.get(message.consumer) if served is not None else None
        if consumer_session is None or consumer_session.heard == OVER:
            return
        if consumer_session.is_of(user, message.session):
            consumer_session.heard = now

    def attach(self, served: ActiveSubscription, name: str, consumer: ConsumerSession) -> None:
        """Keep the session of a consumer. Clients of a listener without keys have no bound.

        Raises:
            Refused: its user has too many.
        """
        user = consumer.user
        if user and self._attached[user] >= MOST_OF_USER:
            text = f"user {user} has attached {MOST_OF_USER:,} consumers at this broker"
            remedy = "close some, or use other users"
            raise Refused(f"{text}: {remedy}", "QUOTA_EXCEEDED", user=user, limit=MOST_OF_USER)
        self._attached[user] += 1
        served.sessions[name] = consumer

    def drop_session(self, served: ActiveSubscription, name: str) -> ConsumerSession | None:
        """Forget the session of a consumer, and return it."""
        consumer = served.sessions.pop(name, None)
        if consumer is not None:
            self._attached[consumer.user] -= 1
            if not self._attached[consumer.user]:
                del self._attached[consumer.user]
        return consumer

    def detach(
        self, served: ActiveSubscription, name: str, turn: BrokerTurn, error: LogboomError
    ) -> None:
        """Detach a consumer, and deliver the messages that it holds to others."""
        consumer_session = self.drop_session(served, name)
        if consumer_session is None:
            return
        if consumer_session.held is not None:
            turn.refuse(consumer_session.held.address, consumer_session.held.number, error)
        self.tell(served, DetachConsumer(name, consumer_session.session), turn)
        turn.returned += served.dispatcher.worked

    def close(self, served: ActiveSubscription, error: LogboomError, turn: BrokerTurn) -> None:
        """Stop serving a subscription, and send the error to its consumers."""
        place = (served.replica.key, served.name)
        if self.served.get(place) is served:
            del self.served[place]
            by_name = self._by_queue[place[0]]
            del by_name[served.name]
            self._rates.leave(*place)
            if not by_name:
                del self._by_queue[place[0]]
                self._rates.forget(place[0])
            for table in (self._due_at, self._limited, self._halted):
                table.pop(place, None)
        self._touched.pop(place, None)
        for name in list(served.sessions):
            consumer_session = self.drop_session(served, name)
            if consumer_session is not None and consumer_session.held is not None:
                turn.refuse(consumer_session.held.address, consumer_session.held.number, error)

    # ── the log ─────────────────────────────────────────────────────────────────────────────────

    def flush(self, turn: BrokerTurn) -> None:
        """Write the changes of this turn."""
        if self._notes:
            turn.out.notes += self._notes
            self._notes.clear()
        touched, self._touched = self._touched, {}
        deltas: dict[QueueKey, list[ActiveSubscription]] = {}
        for place, served in touched.items():
            if served.stale:
                continue
            if served.replica.damage is None and served.leading.enough_in_sync:
                deltas.setdefault(served.replica.key, []).append(served)
            else:
                self._touched[place] = served
        for changed in deltas.values():
            self._append(changed[0].replica, [_delta(served) for served in changed], turn)
        self.answers.written(turn, {key for key, _ in self._touched})

    def _append(self, replica: Replica, deltas: list[CursorDelta], turn: BrokerTurn) -> Position:
        body = encode_deltas(deltas)
        after = replica.append_control(
            ControlKind.CURSOR_DELTA, body, turn.now.wall_ms, turn.writes, self._queues.cache
        )
        self._queues.touch(replica)
        self._stats.count("cursor_deltas")
        self._stats.count("cursor_delta_bytes", len(body))
        self._appended(replica)
        return after

    def hw_moved(self, replica: Replica, turn: BrokerTurn) -> None:
        """Let dispatchers deliver more, and send the answers that are committed."""
        self.answers.hw_moved(replica, turn)
        for served in list(self._by_queue.get(replica.key, {}).values()):
            if not served.stale:
                self.tell(served, LogAdvanced(replica.start, replica.readable.offset), turn)

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def step(self, turn: BrokerTurn) -> None:
        """End sessions, holds and leaderships that are over, and step the dispatchers."""
        away, self._stepped = turn.mono - self._stepped, turn.mono
        if away > STALL_S:
            # Nobody could be heard during the stall, so it counts as nobody's silence (R13).
            for served in self.served.values():
                for consumer_session in served.sessions.values():
                    consumer_session.heard += away
        for key in self._queues.take_led_changes():
            for served in list(self._by_queue.get(key, {}).values()):
                if served.stale:
                    replica = served.replica
                    error = not_leader(self._routes, replica.topic, replica.queue, self._me)
                    self.close(served, error, turn)
        self._step_due(turn)
        names, self._learned = self._learned, {}
        for replica in [each for name in names for each in self._queues.held(name)]:
            everyone = list(self._by_queue.get(replica.key, {}).values())
            if everyone and self._rates.changed(replica):
                for served in everyone:
                    self.tell(served, Tick(), turn)
        self.answers.step(turn)

    def _step_due(self, turn: BrokerTurn) -> None:
        """Step the subscriptions that are due; those that were stepped last come last."""
        halted = list(self._halted) if self._lease.holds(turn.mono) else []
        late = [at for at, each in self._limited.items() if each.deadline() <= turn.mono]
        for place in [*halted, *late]:
            self._push(place, float("-inf"))
        found: list[_Due] = []
        while (due := self._next()) is not None and due.when <= turn.mono:
            if len(found) == STEPPED_AT_ONCE:
                break
            found.append(heapq.heappop(self._agenda))
            del self._due_at[due.place]
        # Consumers that come and go leave room to those that are due.
        turn.returned = min(turn.returned, RETURN_UNITS // 2)
        worked: list[SubscriptionKey] = []
        for when, _, place in found:
            served = self.served[place]
            if when > float("-inf") and served.deadline() > turn.mono:
                self.plan(served)
                continue
            before = turn.scanned + turn.returned
            self._step_one(served, turn)
            if turn.scanned + turn.returned > before and place in self._due_at:
                worked.append(place)
        for place in worked:
            # Those that had no room in this turn come first in the next.
            self._push(place, self._due_at[place].when)

    def _next(self) -> _Due | None:
        """Return who is due next, and drop the void entries before it."""
        while self._agenda and self._due_at.get(self._agenda[0].place) is not self._agenda[0]:
            heapq.heappop(self._agenda)
        return self._agenda[0] if self._agenda else None

    def _step_one(self, served: ActiveSubscription, turn: BrokerTurn) -> None:
        session = served.settings.session_ms / 1000
        for name, consumer_session in list(served.sessions.items()):
            if consumer_session.heard + session <= turn.mono:
                if turn.returned >= RETURN_UNITS:
                    continue
                self._stats.count("sessions_ended")
                self.detach(served, name, turn, unknown_consumer(name))
            elif consumer_session.held is not None and consumer_session.held.deadline <= turn.mono:
                self.send_nothing(served, name, turn)
        self.tell(served, Tick(), turn, due=True)

    def refresh(self, replica: Replica, turn: BrokerTurn) -> None:
        """Inform dispatchers of what retention removed, and write complete cursors where needed.

        A complete cursor is written if the log start has reached the last one, so that retention
        can go on.
        """
        for each in list(self._by_queue.get(replica.key, {}).values()):
            if each.dispatcher.acks.floor < replica.start and not each.stale:
                self.tell(each, LogAdvanced(replica.start, replica.readable.offset), turn)
        leading = replica.leading
        if leading is None or not is_certain(replica, leading):
            return
        deltas = []
        for name in self._due(replica, turn.mono):
            served = self.served.get((replica.key, name))
            if served is not None and not served.stale:
                acks, counts = served.dispatcher.acks, served.dispatcher.counts
                deltas.append(whole_delta(name, acks, counts))
            elif not replica.cursors.behind:
                deltas.append(replica.cursors.cursors[name].whole())
        if deltas:
            self._append_whole(replica, deltas, turn)

    def _due(self, replica: Replica, now: float) -> list[str]:
        """Return the subscriptions whose complete cursor is to be written.

        If what is held up is worth it, these are all of the queue, so that they come due together.
        A cursor grows by what is written to the log only, so its last size is a fair guess.
        """
        exists = [name for name in replica.cursors.cursors if self.exists(replica, name)]
        held: dict[str, _WholeRecord] = {}
        for name in exists:
            if replica.cursors.cursors[name].whole_at <= replica.start < replica.hw.offset:
                held[name] = self._whole.get((replica.key, name), _NEVER)
        if not held:
            return []
        worth = max(WHOLE_BYTES, WHOLE_SHARE * max(last.size for last in held.values()))
        if replica.size >= worth and not any(
            replica.cursors.cursors[name].whole_at < last.offset for name, last in held.items()
        ):
            return exists
        return [name for name, last in held.items() if now - last.written_at >= WHOLE_EVERY]

    def _append_whole(self, replica: Replica, deltas: list[CursorDelta], turn: BrokerTurn) -> None:
        offset, before = replica.end.offset, replica.appended_bytes
        self._append(replica, deltas, turn)
        last = _WholeRecord(turn.mono, offset, replica.appended_bytes - before)
        self._whole.update({(replica.key, delta.subscription): last for delta in deltas})

    def deadline(self) -> float:
        """Return when `step` is wanted next."""
        if self._learned or self._queues.has_led_changes:
            return float("-inf")
        due = self._next()
        when = min(self.answers.deadline(), due.when if due is not None else float("inf"))
        return min((when, *(served.deadline() for served in self._limited.values())))


def _delta(served: ActiveSubscription) -> CursorDelta:
    """Return the delta with the changes of a subscription, and clear them."""
    acked, counts, acks = served.acked, served.counts, served.dispatcher.acks
    served.acked, served.counts = OffsetSet(), {}
    # The floor says it of all below, however many spans these are.
    acked.discard(0, acks.floor)
    left = {offset: n for offset, n in counts.items() if offset not in acks}
    spans = pack_spans(acked.spans(), acks.floor)
    return CursorDelta(served.name, "acked", acks.floor, spans, pack_counts(left))


def _receive(
    served: ActiveSubscription, name: str, consumer_session: ConsumerSession, held: HeldReceive
) -> Receive:
    """Return the request that a consumer waits with, as far as rights depend on it."""
    where = (served.replica.topic, served.replica.queue, served.name, name)
    return Receive(held.number, 0, *where, consumer_session.session, 0, 0, 0, 0)


def unknown_consumer(name: str) -> GroupError:
    """UNKNOWN_CONSUMER: the consumer has to subscribe again."""
    text = f"consumer {name!r} is not attached in this session: subscribe again"
    return GroupError(text, "UNKNOWN_CONSUMER")
