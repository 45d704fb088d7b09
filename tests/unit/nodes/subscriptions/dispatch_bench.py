"""A dispatcher on a bench: a log in memory, consumers that are played, and what must always hold.

After every event: nothing acknowledged is sent, nothing is held twice, permits are conserved, and of
key-shared no key is at two consumers and none is overtaken.
"""

from __future__ import annotations

from collections.abc import Sequence

from logboom.nodes.replica.ack_set import AckSet
from logboom.nodes.replica.offset_set import Span, offsets_of
from logboom.nodes.subscriptions.active_subscription import make_dispatcher
from logboom.nodes.subscriptions.attached_consumer import DispatchRateLimiter
from logboom.nodes.subscriptions.dispatch_events import (
    Ack,
    AckCumulative,
    AttachConsumer,
    DetachConsumer,
    DispatchEffects,
    DispatchEvent,
    Entry,
    GrantPermits,
    LogAdvanced,
    Nack,
    SubscriptionConfig,
    Tick,
)
from logboom.nodes.subscriptions.dispatcher import RETURN_UNITS, SLICE_UNITS
from logboom.nodes.subscriptions.entry_filter import EntryFilter
from logboom.nodes.subscriptions.key_ranges import Range
from logboom.nodes.subscriptions.slot_reader import SlotReader
from logboom.wire.batch import encode_batch, encode_control, peek, stamp
from logboom.wire.errors import LogboomError
from logboom.wire.filters import ScanBudget
from logboom.wire.hashing import slot_of
from logboom.wire.head import ControlKind

SIZE = 1 << 20
"""Bytes that a grant gives with its messages."""


class Log:
    """A queue's log in memory."""

    def __init__(self, queue: int = 0) -> None:
        self.queue = queue
        self.entries: list[Entry] = []
        self.keys: list[bytes | None] = []
        """By offset."""
        self.reads = 0
        self.broken = False
        """Nothing can be read now."""
        self.slot_reader = SlotReader()

    @property
    def end(self) -> int:
        """Behind the last message."""
        return len(self.keys)

    def append(
        self, keys: Sequence[bytes | None], tags: Sequence[str | None] | None = None
    ) -> None:
        """A batch with these keys."""
        plain = encode_batch(
            [b"%d" % (self.end + n) for n in range(len(keys))], keys=keys, tags=tags, now_ms=5
        )
        self._put(stamp(plain, self.end, 1, 5))
        self.keys += keys

    def control(self, kind: ControlKind) -> None:
        """An entry that takes no offset."""
        self._put(stamp(encode_control(kind, b"x"), self.end, 1, 5))

    def damage(self) -> None:
        """The last batch has a body that does not hold together, under a good checksum."""
        entry = self.entries[-1]
        self.entries[-1] = Entry(entry.head, bytes(entry.frame[:96]) + b"\xff" * (entry.size - 96))

    def _put(self, frame: bytes) -> None:
        self.entries.append(Entry(peek(frame), frame))

    def slots(self, entry: Entry, budget: ScanBudget) -> Sequence[int] | None:
        """See `dispatch_events.EntrySource`."""
        return self.slot_reader.read("queue", entry, budget)

    def read(self, offset: int, messages: int, size: int, batches: int) -> Sequence[Entry]:
        """See `dispatch_events.EntrySource`."""
        self.reads += 1
        found: list[Entry] = []
        if self.broken:
            return found
        for entry in self.entries:
            if entry.next <= offset and (entry.head.count or entry.base < offset):
                continue
            if batches <= 0 or messages <= 0:
                break
            if any(each.head.count for each in found) and size < entry.size:
                break
            found.append(entry)
            size -= entry.size
            batches -= entry.head.count > 0
            messages -= entry.head.count
        return found


class Bench:
    """A dispatcher, its log, and what its consumers have."""

    def __init__(
        self,
        settings: SubscriptionConfig,
        entry_filter: EntryFilter | None = None,
        rates: Sequence[DispatchRateLimiter] = (),
        queue: int = 0,
    ) -> None:
        self.log = Log(queue)
        self.settings = settings
        self.entry_filter = entry_filter
        self.acked = AckSet()
        """What was to be written down."""
        self.counts: dict[int, int] = {}
        self.now = 100.0
        self.sessions = 0
        self.held: dict[str, set[int]] = {}
        self.session: dict[str, int] = {}
        self.got: dict[str, list[int]] = {}
        """All that a consumer was ever sent, in order."""
        self.attempts: dict[int, int] = {}
        """Offset → what its last delivery said of earlier ones."""
        self.sent: dict[str, int] = {}
        self.granted: dict[str, int] = {}
        self.active: dict[str, bool] = {}
        self.auto_ready = True
        self.units = SLICE_UNITS
        """What passing over messages may cost in one event, …"""
        self.return_units = RETURN_UNITS
        """… and what comes again without being asked for."""
        self.dispatcher = make_dispatcher(settings, self.log, AckSet(), {}, entry_filter, rates)

    def fail_over(self) -> None:
        """Another leader begins with what was written down; consumers attach again."""
        counts = {o: n for o, n in self.counts.items() if o not in self.acked}
        args = (self.settings, self.log, self.acked.copy(), counts, self.entry_filter)
        self.dispatcher = make_dispatcher(*args)
        self.held.clear()
        self.session.clear()
        self.tell(LogAdvanced(0, self.log.end))

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def tell(self, event: DispatchEvent) -> DispatchEffects:
        """One event, its effects, and a look at everything."""
        effects = self.dispatcher.handle(event, self.now, self.units, self.return_units)
        for start, stop in effects.acked:
            self.acked.add(start, stop)
            for held in self.held.values():
                held.difference_update(range(start, stop))
        self.counts.update(effects.counts)
        self.active.update(effects.active)
        self._sync_held()
        for delivery in effects.deliveries:
            assert self.session[delivery.consumer] == delivery.session
            offsets: list[int] = []
            for batch in delivery.batches:
                assert batch.bits
                offsets += offsets_of(batch.bits, batch.entry.base)
                for offset in offsets_of(batch.bits, batch.entry.base):
                    self.attempts[offset] = dict(batch.attempts).get(offset, 0)
            assert len(offsets) == delivery.messages
            self._delivered(delivery.consumer, offsets)
        self._check()
        return effects

    def _sync_held(self) -> None:
        """What the dispatcher took back is held no longer."""
        for name, consumer in self.dispatcher.consumers.items():
            if name in self.held:
                self.held[name] = {o for o in self.held[name] if o in consumer.held}

    def _delivered(self, name: str, offsets: list[int]) -> None:
        elsewhere = {o for other, held in self.held.items() if other != name for o in held}
        for offset in offsets:
            assert offset not in self.acked, "an acknowledged message was sent"
            assert offset not in elsewhere, "a message is at two consumers"
            assert offset < self.dispatcher.end
            if self.settings.kind == "key_shared":
                self._check_key(name, offset)
            self.held[name].add(offset)
        self.got[name] += offsets
        self.sent[name] += len(offsets)

    def _check_key(self, name: str, offset: int) -> None:
        key = self.log.keys[offset]
        if key is None:
            return
        for other, held in self.held.items():
            assert other == name or key not in {self.log.keys[o] for o in held}, "key at two"
        for earlier in range(self.acked.floor, offset):
            if self.log.keys[earlier] == key and earlier not in self.acked:
                assert earlier in self.held[name], "a message was overtaken by one of its key"

    def _check(self) -> None:
        for name, consumer in self.dispatcher.consumers.items():
            permits = consumer.permits
            assert permits.granted == permits.delivered + permits.left
            assert (permits.granted, permits.delivered) == (self.granted[name], self.sent[name])
            assert set(offsets_of(consumer.held)) == self.held[name]
        assert self.dispatcher.unacked == sum(map(len, self.held.values()))
        assert self.dispatcher.acks.floor == self.acked.floor
        assert list(self.dispatcher.acks.spans()) == list(self.acked.spans())

    # ── consumers ───────────────────────────────────────────────────────────────────────────────

    def attach(
        self, name: str, permits: int = 0, priority: int = 0, ranges: Sequence[Range] | None = None
    ) -> None:
        """A consumer comes, or comes again."""
        self.sessions += 1
        given = None if ranges is None else tuple(ranges)
        before = self.held.pop(name, set()), self.session.get(name), self.sent.get(name, 0)
        self.held[name], self.session[name], self.sent[name] = set(), self.sessions, 0
        granted, self.granted[name] = self.granted.get(name, 0), 0
        self.got.setdefault(name, [])
        try:
            self.tell(AttachConsumer(name, self.sessions, priority, given))
        except LogboomError:
            del self.held[name], self.session[name]
            if name in self.dispatcher.consumers and before[1] is not None:
                self.held[name], self.session[name], self.sent[name] = (
                    before[0],
                    before[1],
                    before[2],
                )
                self.granted[name] = granted
            raise
        if permits:
            self.grant(name, permits)

    def detach(self, name: str) -> None:
        """A consumer goes."""
        session = self.session.pop(name)
        self.held.pop(name)
        self.tell(DetachConsumer(name, session))

    def grant(self, name: str, messages: int, *, blocked: bool = False, size: int = SIZE) -> None:
        """More permits."""
        self.granted[name] += messages
        self.tell(GrantPermits(name, self.session[name], messages, size, blocked))

    def ack(self, name: str, *offsets: int) -> list[Span]:
        """Single messages are done; what was refused."""
        spans = tuple((offset, offset + 1) for offset in offsets)
        return self.tell(Ack(name, self.session[name], spans)).refused

    def ack_to(self, name: str, offset: int) -> list[Span]:
        """All up to an offset are done; what was refused."""
        return self.tell(AckCumulative(name, self.session[name], offset)).refused

    def nack(self, name: str, *offsets: int, delay_s: float = 0.0) -> list[Span]:
        """Single messages are to come again; what was refused."""
        spans = tuple((offset, offset + 1) for offset in offsets)
        return self.tell(Nack(name, self.session[name], spans, delay_s)).refused

    def append(self, *keys: bytes | None, tags: Sequence[str | None] | None = None) -> None:
        """A batch that can be read at once."""
        self.log.append(keys or [None], tags)
        self.tell(LogAdvanced(0, self.log.end))

    def wait(self, seconds: float) -> None:
        """Time passes, with a turn whenever the dispatcher wants one."""
        until = self.now + seconds
        for _ in range(1_000):
            wanted = self.dispatcher.deadline()
            if wanted > until:
                break
            self.now = max(self.now, wanted)
            self.tell(Tick())
        self.now = until
        self.tell(Tick())

    def finish_alone(self) -> None:
        """All consumers but one leave, and that one acknowledges all that comes, with units enough."""
        for name in list(self.session)[1:]:
            self.detach(name)
        if not self.session:
            self.attach("last")
        self.units = SLICE_UNITS
        self.finish()

    def finish(self) -> None:
        """Everybody acknowledges all that comes, until there is nothing left."""
        for _ in range(1_000):
            if self.acked.floor == self.log.end:
                return
            for name in list(self.held):
                self.ack(name, *sorted(self.held[name]))
                self.grant(name, 50)
            self.wait(2.0)
        raise AssertionError(f"{self.acked.floor} of {self.log.end} were acknowledged in the end")


def slots(*keys: bytes) -> list[int]:
    """Slots of keys."""
    return [slot_of(key) for key in keys]
