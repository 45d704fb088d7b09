"""What a dispatcher may do, as a second and simpler opinion: it is held against the true one.

One model follows one dispatcher from the event that it begins with. It knows who has what, by the
events and the deliveries alone. P10 and what belongs to it: a message is with one consumer at a
time and never comes again once it is acknowledged; a key is with one consumer at a time, in its
order; of exclusive and failover all of a queue counts as one key. Permits: granted = delivered +
left, at every step, and nothing is sent without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.offset_set import Span, offsets_of
from logboom.nodes.subscriptions.dispatch_events import (
    Ack,
    AckCumulative,
    AttachConsumer,
    Delivery,
    DetachConsumer,
    DispatchEffects,
    DispatchEvent,
    Entry,
    GrantPermits,
    LogAdvanced,
    Nack,
    SubscriptionConfig,
)
from logboom.nodes.subscriptions.dispatcher import Dispatcher
from logboom.wire.batch import open_batch
from tests.sim.judges.history import Queue
from tests.sim.judges.subscription_ledger import DISORDER
from tests.sim.world.trace import BrokenProperty

NEVER: Final = float("inf")
ORDERED: Final = ("exclusive", "failover")


class Seen(NamedTuple):
    """One message of a queue."""

    key: bytes
    """Those of one batch without a key have one key of their own together."""
    value: bytes


class SeenQueue:
    """All messages of a queue that any dispatcher has delivered from; the same for all."""

    def __init__(self) -> None:
        self.at: dict[int, Seen] = {}
        self._bases: set[int] = set()

    def learn(self, entry: Entry) -> None:
        """A batch was delivered, or a part of it."""
        if entry.base in self._bases:
            return
        self._bases.add(entry.base)
        batch = open_batch(entry.frame, entry.head)
        pairs = zip(batch.keys(), batch.values(), strict=True)
        for offset, (key, value) in enumerate(pairs, entry.base):
            name = b"batch %d" % entry.base if key is None else bytes(key)
            self.at[offset] = Seen(name, bytes(value or b""))


@dataclass(slots=True)
class _Held:
    """Messages that a consumer has, and what it may still be sent."""

    session: int
    due: dict[int, float] = field(default_factory=dict)
    """Offset → when it is taken back."""
    granted: int = 0
    granted_bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    ready: bool = False
    """It has asked since the last delivery."""


class DispatchModel:
    """Follows one dispatcher."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        """Nothing has happened to the dispatcher yet."""
        self.name = ""
        self.queue = Queue("", 0)
        self.kind = dispatcher.settings.kind
        self.told: dict[int, int] = dict(dispatcher.counts)
        """Offset → deliveries that came to nothing, as told last."""
        self._settings: SubscriptionConfig = dispatcher.settings
        self._dispatcher = dispatcher
        self._seen = SeenQueue()
        self._acks: AckSet = dispatcher.acks.copy()
        self._floor = self._acks.floor
        self._holders: dict[str, _Held] = {}
        self._late: dict[int, str] = {}
        """Offset → who had it until its time was over. It is taken back then, or soon after."""
        self._active = ""
        """Of failover: who is to get everything …"""
        self._active_from = NEVER
        """… from when on. What the one before has is taken back then, whether it is sent or not."""

    @property
    def where(self) -> str:
        """For a person; "": not known yet."""
        return f"{self.name} {self.queue}" if self.name else ""

    def serve(self, name: str, queue: Queue, seen: SeenQueue) -> None:
        """Say which subscription of which queue it is; before the first delivery."""
        self.name, self.queue, self._seen = name, queue, seen

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def took(self, event: DispatchEvent, effects: DispatchEffects, now: float) -> None:
        """The dispatcher took an event, and this followed; raises `BrokenProperty`."""
        refused = {offset for span in effects.refused for offset in range(*span)}
        match event:
            case AttachConsumer(name, session):
                self._attach(name, session)
            case DetachConsumer(name, session):
                self._detach(name, session)
            case GrantPermits(name, _, messages, size):
                held = self._holders[name]
                held.granted += messages
                held.granted_bytes += size
                held.ready = True
            case Ack(name, _, spans):
                self._ack(name, _offsets(spans), refused, effects.acked)
            case AckCumulative(name, _, last):
                # Another may have become active, and what this one had been taken back.
                due = {} if last in refused else self._holders[name].due
                offsets = [offset for offset in due if offset <= last] if last in due else [last]
                self._ack(name, offsets, refused, effects.acked)
            case Nack(name, _, spans):
                self._give_back(name, set(_offsets(spans)) - refused)
            case LogAdvanced(start, _):
                self._trim(start)
            case _:
                pass
        self._expire(now)
        for span in effects.acked:
            self._acks.add(*span)
        for name, active in effects.active:
            if active:
                self._active, self._active_from = name, now + self._settings.failover_delay_s
        if self._active_from <= now and self._others(self._active):
            self._rewind()
        for delivery in effects.deliveries:
            self._deliver(delivery, now)
        self._compare()

    def _attach(self, name: str, session: int) -> None:
        others = [other for other in self._holders if other != name]
        if self.kind == "exclusive" and others:
            self._broken("an exclusive subscription has one consumer", f"{name} beside {others}")
        self._holders[name] = _Held(session)

    def _detach(self, name: str, session: int) -> None:
        held = self._holders.get(name)
        if held is not None and held.session == session:
            del self._holders[name]

    def _ack(
        self, name: str, offsets: Iterable[int], refused: set[int], written: Sequence[Span]
    ) -> None:
        due = self._holders[name].due
        for offset in offsets:
            has = due.pop(offset, None) is not None or self._late.get(offset) == name
            if offset in refused or offset in self._acks:
                continue
            if not has:
                detail = f"{offset} by {name}, who does not hold it"
                self._broken("only what is held is acknowledged", detail)
            if not any(start <= offset < stop for start, stop in written):
                self._broken("acknowledgements are written down", f"{offset} by {name}")
            self._acks.add(offset, offset + 1)
            self._late.pop(offset, None)

    def _give_back(self, name: str, offsets: set[int]) -> None:
        due = self._holders[name].due
        given = [offset for offset in offsets if due.pop(offset, None) is not None]
        if given and self.kind in ORDERED:
            self._rewind()

    def _rewind(self) -> None:
        """Everything comes again, from the first message that is not acknowledged."""
        for held in self._holders.values():
            held.due.clear()

    def _trim(self, start: int) -> None:
        self._floor = max(self._floor, start)
        self._acks.raise_to(start)
        for held in self._holders.values():
            for offset in [each for each in held.due if each < start]:
                del held.due[offset]

    def _expire(self, now: float) -> None:
        for name, held in self._holders.items():
            late = [offset for offset, due in held.due.items() if due <= now]
            for offset in late:
                del held.due[offset]
                self._late[offset] = name
            if late and self.kind in ORDERED:
                for other, others in self._holders.items():
                    self._late.update(dict.fromkeys(others.due, other))
                self._rewind()

    # ── deliveries ──────────────────────────────────────────────────────────────────────────────

    def _deliver(self, delivery: Delivery, now: float) -> None:
        name = delivery.consumer
        held = self._holders.get(name)
        if held is None or held.session != delivery.session:
            self._broken("only who is attached gets messages", f"{name} {delivery.session}")
            return
        if self.kind == "failover" and (others := self._others(name)):
            detail = f"{name}, while {others} may still acknowledge"
            self._broken("one consumer is active at a time", detail)
        self._may_be_sent(name, held)
        due = now + self._settings.ack_timeout_s if self._settings.ack_timeout_s else NEVER
        count = size = 0
        for batch in delivery.batches:
            self._seen.learn(batch.entry)
            attempts = dict(batch.attempts)
            for offset in offsets_of(batch.bits, batch.entry.base):
                self._may_have(name, held, offset)
                self._count(offset, attempts.get(offset, 0))
                held.due[offset] = due
                self._late.pop(offset, None)
                count += 1
            size += len(batch.entry.frame)
        held.delivered += count
        held.delivered_bytes += size
        held.ready = False

    def _may_be_sent(self, name: str, held: _Held) -> None:
        if not held.ready:
            self._broken("who has not asked gets nothing", name)
        left = held.granted - held.delivered
        left_bytes = held.granted_bytes - held.delivered_bytes
        if left <= 0 or left_bytes <= 0:
            self._broken("who has no permits gets nothing", f"{name}: {left}, {left_bytes} bytes")
        held_by_all = sum(len(each.due) for each in self._holders.values())
        if len(held.due) >= self._settings.most_unacked:
            self._broken("a consumer holds as much as it may", f"{name}: {len(held.due)}")
        if held_by_all >= self._settings.most_unacked_all:
            self._broken("consumers hold as much as they may", f"{name}: {held_by_all} in all")

    def _others(self, name: str) -> list[str]:
        """Who else has messages."""
        return [other for other, held in self._holders.items() if held.due and other != name]

    def _may_have(self, name: str, held: _Held, offset: int) -> None:
        message = f"{offset} ({self._seen.at[offset].value!r}) to {name}"
        if offset in self._acks:
            self._broken("what is acknowledged does not come again", message)
        for other, others in self._holders.items():
            if offset in others.due:
                self._broken("a message is with one consumer", f"{message}, {other} has it")
        if self.kind == "shared":
            return
        ordered = self.kind in ORDERED
        key = self._seen.at[offset].key
        for other, others in self._holders.items():
            if other == name:
                continue
            for theirs in others.due:
                if ordered or self._seen.at[theirs].key == key:
                    self._broken("a key is with one consumer", f"{message}, {other} has {theirs}")
        low = max(self._floor, self._acks.floor)
        for lower in offsets_of(self._acks.missing(low, offset), low):
            seen = self._seen.at.get(lower)
            if lower not in held.due and seen is not None and (ordered or seen.key == key):
                self._broken(DISORDER, f"{message} before {lower}")

    def _count(self, offset: int, attempts: int) -> None:
        if attempts < self.told.get(offset, 0):
            detail = f"{offset}: {attempts} after {self.told[offset]}"
            self._broken("redeliveries are counted up", detail)
        self.told[offset] = attempts

    # ── the true one ────────────────────────────────────────────────────────────────────────────

    def _compare(self) -> None:
        """Permits are conserved."""
        consumers = self._dispatcher.consumers
        if consumers.keys() != self._holders.keys():
            detail = f"{sorted(consumers)}, and not {sorted(self._holders)}"
            self._broken("who came and did not go is attached", detail)
        for name, held in self._holders.items():
            permits = consumers[name].permits
            left = permits.left, permits.left_bytes
            expected = held.granted - held.delivered, held.granted_bytes - held.delivered_bytes
            if left != expected:
                detail = f"{name} has {left} left, and not {expected} (messages, bytes)"
                self._broken("permits are conserved", detail)

    def granted(self) -> dict[tuple[str, int], int]:
        """(consumer, session) → all permits that it gave."""
        return {(name, held.session): held.granted for name, held in self._holders.items()}

    def _broken(self, promise: str, detail: str) -> None:
        raise BrokenProperty(promise, f"{self.where} ({self.kind}): {detail}")


def _offsets(spans: Iterable[Span]) -> list[int]:
    return [offset for start, stop in spans for offset in range(start, stop)]
