"""What producers and readers saw, held against the promises of docs/RELIABILITY.md.

Payloads are unique: `<producer>/<number>`, numbers growing per producer. Offsets, values and order
are checked as things happen; what the disks hold is compared at the end.

Not every producer was promised everything. What was sent with acks=leader or none may be lost; none
is stored at most once, in any order. With acks=leader it is in order, but may be there twice: a
leader that never had the batch before it refuses it, so it is sent under a new producer epoch; if
leadership then goes back to one that has it after all, both stay. With acks=all what came before
is on every disk that may lead, and this cannot be. In topics with retention the oldest may be
gone, without a gap from the log's start on, and never more than the topic allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logboom.nodes.log.keys import position_of
from logboom.wire.batch import open_batch, validate_batch
from logboom.wire.errors import DamagedBatch
from tests.sim.judges.logs import (
    ALIKE,
    GAPS,
    LOST,
    OUTCOMES,
    UNSTABLE,
    WHOLE,
    Log,
    Stored,
    Stream,
)
from tests.sim.world.trace import BrokenProperty, Trace

ORDERED: Final = ("all", "leader")
"""Acks with which a producer's order is kept; with none nobody would notice a gap."""


class Queue(NamedTuple):
    """One queue of one topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


@dataclass(slots=True)
class _Known:
    """What is known of one queue from answers."""

    at: dict[int, bytes] = field(default_factory=dict)
    """Offset → value, acknowledged or read."""
    acked: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    """Behind the greatest offset that was acknowledged, read or answered as the end (HW)."""
    seen: int = 0
    """The same of what was read or answered."""
    told: set[int] = field(default_factory=set)
    """Ends that answers named."""


class History:
    """Everything that clients saw in one run."""

    def __init__(self, trace: Trace, now: Callable[[], float] = lambda: 0.0) -> None:
        """`now`: true seconds."""
        self._trace = trace
        self._now = now
        self._sent_at: dict[bytes, float] = {}
        self.slowest: dict[Queue, float] = {}
        """Longest that a message of a queue took to be acknowledged with acks=all, in seconds."""
        self.kept_bytes: dict[str, int] = {}
        """Topics with retention, and the bytes that each of their queues keeps at least."""
        self.starts: Mapping[Queue, int] = {}
        """Of their queues, the greatest start of its log that any replica was seen with."""
        self.on_ack: Callable[[Queue, int, bytes], None] = lambda _queue, _offset, _value: None
        """Told of each message that acks=all was given for, as the client is."""
        self.loose: dict[bytes, str] = {}
        """Producers that send with other acks than all."""
        self._queues: dict[Queue, _Known] = {}
        self.sent: dict[bytes, Queue] = {}
        self.acked: dict[bytes, tuple[Queue, int]] = {}
        self.failed: dict[bytes, str] = {}
        self.waits: dict[bytes, int] = {}
        """Values sent with a delay, and when they are due, true ms: they come in no order."""
        self.released: dict[bytes, float] = {}
        """Of these, when each was first read, in true seconds."""
        self.releases: bool = False
        """Releases of transactions hold readers up: what is acknowledged behind one that has begun
        is seen a little later."""
        self._positions: dict[tuple[str, Queue], int] = {}

    def _of(self, queue: Queue) -> _Known:
        return self._queues.setdefault(queue, _Known())

    # -- producers --------------------------------------------------------------------------

    def send(self, queue: Queue, value: bytes) -> None:
        """A producer sends a value."""
        assert value not in self.sent, "payloads are unique"
        self.sent[value] = queue
        self._sent_at[value] = self._now()

    def ack(self, value: bytes, queue: Queue, offset: int) -> None:
        """A producer was told that its value is stored at an offset."""
        if value in self.acked or value in self.failed:
            raise BrokenProperty(OUTCOMES, f"{value!r} has two")
        if self.sent.get(value) != queue:
            raise BrokenProperty("acks name what was sent", f"{value!r} acked in {queue}")
        self.acked[value] = (queue, offset)
        if self._acks(value) != "all":
            self._trace.count("acked loosely")
            return
        self._place(queue, offset, value, "acknowledged")
        self._of(queue).acked[offset] = value
        took = self._now() - self._sent_at[value]
        self.slowest[queue] = max(took, self.slowest.get(queue, 0.0))
        self.on_ack(queue, offset, value)
        self._trace.count("acked")

    def _acks(self, value: bytes) -> str:
        return self.loose.get(value.partition(b"/")[0], "all")

    def park(self, value: bytes, queue: Queue) -> None:
        """A producer was told that its value waits."""
        if value in self.acked:
            raise BrokenProperty(OUTCOMES, f"{value!r} has two")
        self.acked[value] = (queue, -1)
        self._trace.count("parked")

    def promise_nothing(self, queue: Queue, value: bytes) -> None:
        """A value is sent that may be published or not, and in no order: somebody else judges."""
        self.send(queue, value)
        self.waits[value] = 0
        self.acked[value] = (queue, -1)

    def fail(self, value: bytes, why: str) -> None:
        """A producer was told that a send failed: it may or may not be stored."""
        self.failed[value] = why
        self._trace.count("failed sends")

    def unanswered(self) -> list[bytes]:
        """Sends without an outcome."""
        return [v for v in self.sent if v not in self.acked and v not in self.failed]

    # -- readers ----------------------------------------------------------------------------

    def read(self, reader: str, queue: Queue, messages: Sequence[tuple[int, bytes]]) -> None:
        """A reader was given messages; it reads every offset once, in order, from 0."""
        place = self._positions.get((reader, queue), 0)
        for offset, value in messages:
            if offset != place:
                raise BrokenProperty(
                    "readers see every offset once, in order",
                    f"{reader} got {queue} offset {offset}, expected {place}",
                )
            if value not in self.sent:
                raise BrokenProperty("reads were sent", f"{value!r} at {queue} {offset}")
            self._place(queue, offset, value, "read")
            if value in self.waits:
                self.released.setdefault(value, self._now())
            place += 1
        self._positions[reader, queue] = place
        self._trace.count("read", len(messages))

    def place(self, reader: str, queue: Queue) -> int:
        """The next offset of a reader."""
        return self._positions.get((reader, queue), 0)

    def known_end(self, queue: Queue) -> int:
        """Behind all that was acknowledged, read or told: all that readers have to come to."""
        return self._of(queue).end

    def least_end(self, queue: Queue) -> int:
        """What every end offset asked for from now on must reach."""
        return self._of(queue).seen if self.releases else self._of(queue).end

    def tell(self, queue: Queue, end: int) -> None:
        """An answer named the end of what can be read."""
        if self.releases:
            self._of(queue).told.add(end)

    def told(self, queue: Queue) -> set[int]:
        """All ends that answers named."""
        return self._of(queue).told

    def end(self, who: str, queue: Queue, offset: int, asked_at: int) -> None:
        """A leader answered an end offset; `asked_at` was `least_end` when it was asked (Q8)."""
        if offset < asked_at:
            raise BrokenProperty(
                "end offsets never go back", f"{who} was told {offset} of {queue} after {asked_at}"
            )
        self.tell(queue, offset)
        known = self._of(queue)
        known.end = max(known.end, offset)
        known.seen = max(known.seen, offset)

    def illegal(self, reader: str, queue: Queue, offset: int, told: int) -> None:
        """A reader was told that its offset does not exist, and which is the nearest.

        That is legal only where retention has removed it: up to where some replica's log began.
        """
        if queue.topic not in self.kept_bytes or told <= offset:
            raise BrokenProperty(
                "a fail-over never rewinds a reader", f"{reader} at {queue} {offset} told {told}"
            )
        if told > (start := self.starts.get(queue, 0)):
            raise BrokenProperty(
                "readers are sent ahead by retention alone",
                f"{reader} at {queue} {offset} goes on at {told}, no log began behind {start}",
            )
        known = self._of(queue)
        known.end = max(known.end, told)
        known.seen = max(known.seen, told)
        self._positions[reader, queue] = max(told, self.place(reader, queue))
        self._trace.count("readers behind retention")

    def _place(self, queue: Queue, offset: int, value: bytes, how: str) -> None:
        known = self._of(queue)
        known.end = max(known.end, offset + 1)
        if how == "read":
            known.seen = max(known.seen, offset + 1)
        other = known.at.setdefault(offset, value)
        if other != value:
            raise BrokenProperty(
                "one value per offset", f"{queue} {offset}: {other!r}, now {how} {value!r}"
            )

    # -- the end ----------------------------------------------------------------------------

    def compare(self, queue: Queue, logs: Mapping[str, Mapping[bytes, bytes]]) -> None:
        """Hold the replicas' logs (log key → entry) against each other and against all seen."""
        names = sorted(logs)
        for name in names[1:]:
            if logs[name] != logs[names[0]]:
                raise BrokenProperty(
                    ALIKE,
                    f"{queue}: {names[0]} and {name} differ {_difference(logs[names[0]], logs[name])}",
                )
        start, values = values_of(queue, logs[names[0]])
        self._removed(queue, start, sum(map(len, logs[names[0]].values())))
        rows = [
            Stored(offset, *self._named(queue, value), 1)
            for offset, value in enumerate(values, start)
        ]
        log = Log(queue, rows, start)
        known = self._of(queue)
        for offset, value in sorted(known.at.items()):
            name = LOST if offset in known.acked else UNSTABLE
            if offset >= start:
                for detail in log.differing(offset, *self._named(queue, value), 1):
                    raise BrokenProperty(name, detail)

        def was_sent(row: Stored) -> bool:
            return self.sent.get(values[row.offset - start]) == queue

        def may_repeat(row: Stored) -> bool:
            loose = self._acks(values[row.offset - start]) == "leader"
            self._trace.count("doubled loosely", loose)
            return loose

        log.check(_broken, was_sent, may_repeat)

    def _named(self, queue: Queue, value: bytes) -> tuple[Stream, int]:
        """The stream of a value, and its number there; what has no order is a stream of its own."""
        producer, _, number = value.partition(b"/")
        if value in self.waits or self._acks(value) not in ORDERED or not number.isdigit():
            return Stream(repr(value), queue.number), 0
        return Stream(producer.decode(), queue.number), int(number)

    def _removed(self, queue: Queue, start: int, left_bytes: int) -> None:
        """What retention may have removed."""
        if start and left_bytes < self.kept_bytes.get(queue.topic, left_bytes + 1):
            raise BrokenProperty(
                "retention keeps what it should",
                f"{queue} begins at {start} and holds {left_bytes} bytes",
            )
        if start:
            self._trace.count("queues trimmed")


def _broken(name: str, detail: str, count: int = 1) -> None:
    raise BrokenProperty(name, detail)


def values_of(queue: Queue, log: Mapping[bytes, bytes]) -> tuple[int, list[bytes]]:
    """(log start, values from there on) of a log whose entries must be whole and without a gap."""
    keys = sorted(log)
    start = position_of(keys[0]).offset if keys else 0
    values: list[bytes] = []
    for key in keys:
        try:
            head = validate_batch(log[key])
        except DamagedBatch as error:
            raise BrokenProperty(WHOLE, f"{queue} {position_of(key)}: {error}") from error
        end = start + len(values)
        if position_of(key).offset != end or head.base_offset != end:
            raise BrokenProperty(
                GAPS,
                f"{queue}: entry at {position_of(key)} with base {head.base_offset} "
                f"follows offset {end}",
            )
        if not head.is_control:
            values += [bytes(value or b"") for value in open_batch(log[key], head).values()]
    return start, values


def _difference(one: Mapping[bytes, bytes], other: Mapping[bytes, bytes]) -> str:
    for key in sorted({*one, *other}):
        if one.get(key) != other.get(key):
            return f"from {position_of(key)} on ({len(one)} and {len(other)} entries)"
    return "nowhere"
