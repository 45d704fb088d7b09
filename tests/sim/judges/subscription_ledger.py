"""What the consumers of simulated subscriptions were sent and settled, and the promises to them.

No message is lost: what producers were told is stored is acknowledged by each subscription in the
end, by a consumer that had it. What a leader has confirmed to be acknowledged is sent to nobody
again, whoever leads then, and a flush tells a program nothing else; the count of a redelivery that was confirmed is never forgotten. And no
process is handed what it acknowledged itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from logboom.wire.subscription_messages import SettleMessages
from tests.sim.judges.history import History, Queue
from tests.sim.world.trace import BrokenProperty, Trace

UNCONSUMED: Final = "subscriptions consume what is acknowledged"
CONFIRMED: Final = "what was confirmed does not come again"
FLUSHED: Final = "a flush confirms what a leader has confirmed"
DISORDER: Final = "a key's messages come in order"


@dataclass(slots=True)
class _Followed:
    """One queue as one subscription sees it."""

    finished: set[int] = field(default_factory=set)
    """Offsets that some consumer was done with."""
    confirmed: dict[int, str] = field(default_factory=dict)
    """Offset → the consumer that was told that its acknowledgement is safe."""
    up_to: int = -1
    """Everything up to here was confirmed to be acknowledged."""
    counts: dict[int, int] = field(default_factory=dict)
    """Offset → deliveries that came to nothing, as was confirmed to be written down."""
    told: dict[tuple[int, str, int], int] = field(default_factory=dict)
    """(offset, consumer, session) → attempts that came with it."""
    given: int = 0


class SubscriptionLedger:
    """All subscriptions of a run."""

    def __init__(self, history: History, trace: Trace) -> None:
        self._history = history
        self._trace = trace
        self._followed: dict[tuple[str, Queue], _Followed] = defaultdict(_Followed)

    # -- on the wire ------------------------------------------------------------------------

    def send(
        self, name: str, queue: Queue, who: tuple[str, int], messages: list[tuple[int, bytes, int]]
    ) -> None:
        """A leader sends messages (offset, value, attempts) to a consumer in a session."""
        followed = self._followed[name, queue]
        for offset, value, attempts in messages:
            where = f"{name} {queue} offset {offset} ({value!r})"
            by = followed.confirmed.get(offset, "another" if offset <= followed.up_to else "")
            if by:
                detail = f"{where} to {who[0]}, confirmed to {by}"
                raise BrokenProperty(CONFIRMED, detail)
            if attempts < followed.counts.get(offset, 0):
                detail = f"{where} counts {attempts}, and {followed.counts[offset]} was confirmed"
                raise BrokenProperty("confirmed redeliveries are counted", detail)
            followed.told[offset, *who] = attempts
            acked = self._history.acked.get(value)
            loose = value.partition(b"/")[0] in self._history.loose
            if acked is not None and not loose and acked != (queue, offset):
                detail = f"{where}, acknowledged at {acked}"
                raise BrokenProperty("consumers get what was stored", detail)
        self._trace.count("sent to consumers", len(messages))
        self._trace.count("sent again", sum(attempts > 0 for _, _, attempts in messages))

    def ask(self, message: SettleMessages) -> dict[int, int]:
        """A consumer settles messages: of what it gives back, offset → attempts that came with it,
        this one among them."""
        followed = self._followed[message.subscription, Queue(message.topic, message.queue)]
        who = message.consumer, message.session
        offsets = (offset for start, stop, _ in message.again for offset in range(start, stop))
        told = ((offset, followed.told.get((offset, *who))) for offset in offsets)
        return {offset: attempts + 1 for offset, attempts in told if attempts is not None}

    def settled(
        self, message: SettleMessages, refused: set[int], attempts: Mapping[int, int]
    ) -> None:
        """A leader tells a consumer that what it settled is safe, but for some; `attempts`: what
        `ask` gave."""
        queue = Queue(message.topic, message.queue)
        followed = self._followed[message.subscription, queue]
        for start, stop in message.acked:
            for offset in range(start, stop):
                if offset not in refused:
                    followed.confirmed[offset] = message.consumer
                    self._trace.count("acks confirmed")
        if message.up_to >= 0 and message.up_to not in refused:
            followed.up_to = max(followed.up_to, message.up_to)
            self._trace.count("cumulative acks confirmed")
        for offset, attempt in attempts.items():
            if offset not in refused:
                followed.counts[offset] = max(attempt, followed.counts.get(offset, 0))
                self._trace.count("nacks confirmed")
        self._trace.count("settlements refused", len(refused))

    # -- the programs -----------------------------------------------------------------------

    def give(self, name: str, queue: Queue, offset: int, value: bytes, process: str) -> None:
        """A program was handed a message."""
        acked = self._history.acked.get(value)
        loose = value.partition(b"/")[0] in self._history.loose
        if acked is not None and not loose and acked != (queue, offset):
            detail = f"{process}: {name} {queue} offset {offset}: {value!r}, {acked}"
            raise BrokenProperty("consumers get what was stored", detail)
        self._trace.count("handed to consumers")
        if offset in self._followed[name, queue].finished:
            self._trace.count("handed out again")

    def finish(self, name: str, queue: Queue, offset: int) -> None:
        """A program acknowledged a message."""
        self._followed[name, queue].finished.add(offset)

    def flushed(self, name: str, queue: Queue, offset: int, process: str) -> None:
        """A program was told that its acknowledgement is confirmed."""
        followed = self._followed[name, queue]
        if offset not in followed.confirmed and offset > followed.up_to:
            detail = f"{process}: {name} {queue} offset {offset} was confirmed by no leader"
            raise BrokenProperty(FLUSHED, detail)

    # -- the end ----------------------------------------------------------------------------

    def missing(self, name: str, topic: str) -> list[tuple[Queue, int]]:
        """Acknowledged messages that no consumer has finished."""
        if topic in self._history.kept_bytes:
            return []
        return [
            (queue, offset)
            for value, (queue, offset) in self._history.acked.items()
            if queue.topic == topic
            and value.partition(b"/")[0] not in self._history.loose
            and offset not in self._followed[name, queue].finished
        ]

    def compare(self, name: str, topic: str) -> None:
        """Every acknowledged message was finished by somebody."""
        missing = self.missing(name, topic)
        if missing:
            detail = f"{name}: {[f'{queue} {offset}' for queue, offset in missing[:10]]}"
            raise BrokenProperty(UNCONSUMED, detail)
        for (other, queue), followed in self._followed.items():
            if (other, queue.topic) == (name, topic):
                self._trace.count("consumed by subscriptions", len(followed.finished))
