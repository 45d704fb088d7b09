"""A consumer of a subscription: the client's own core, and a program that takes its time, settles
out of order, gives back and forgets."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Final

from logboom.client.calls import CoreCall
from logboom.client.core import ClientConfig, ClientCore
from logboom.client.results import Message
from logboom.client.subscriptions.subscriber_reader import SubscriberReader
from logboom.client.subscriptions.subscriber_state import (
    CloseSubscriber,
    FlushSubscriber,
    OpenSubscriber,
    SubscriberOptions,
    SubscriberState,
)
from logboom.wire.actor import Call, Effects, Event, Instant
from logboom.wire.errors import InvalidRequest, LogboomError
from tests.sim.judges.history import Queue
from tests.sim.judges.subscription_ledger import SubscriptionLedger
from tests.sim.world.trace import BrokenProperty, Trace

NEVER: Final = 1e6
"""Seconds: longer than any run."""
AT_ONCE: Final = 6
"""Messages that a program has in its hands at most."""
REOPEN_S: Final = 0.7
LEAVE_S: Final = 3.0
TAKING_S: Final = (0.0, 0.0, 0.0, 0.01, 0.05, 0.3)
"""How long a message takes, one of these."""
DELAYS_S: Final = (0.0, 0.0, 0.2, 1.2)
"""After which what is given back may come again, one of these."""
FAILING: Final = 0.06
"""Share of messages that are given back."""
FLUSHED: Final = 0.1
"""Share of acknowledgements after which a program has all confirmed."""
FLUSH_S: Final = 8.0
FORGOTTEN: Final = 0.03
"""Share that is never settled, of subscriptions with an ack time-out."""


@dataclass(frozen=True)
class Membership:
    """What does not change from one process of a consumer to the next."""

    machine: str
    options: SubscriberOptions


class SubscriptionMember:
    """One process of a consumer; a `Core`."""

    def __init__(
        self,
        of: Membership,
        process: str,
        endpoints: Sequence[str],
        rng: random.Random,
        ledger: SubscriptionLedger,
        trace: Trace,
    ) -> None:
        self.options = of.options
        self.id = process
        self._rng = rng
        self._ledger = ledger
        self._trace = trace
        self._now = Instant(0.0, 0)
        self._calls: list[Call] = []
        self._core: ClientCore | None = None
        self._config = ClientConfig(tuple(endpoints), process)
        self._handling: list[tuple[float, int, Message]] = []
        self._order = count()
        self._acked: set[tuple[int, int]] = set()
        """(queue, offset) that this process acknowledged."""
        self._unconfirmed: set[tuple[int, int]] = set()
        """Of these, what no flush has confirmed yet, or told to be refused."""
        self._flush_rng = random.Random(f"flushes of {process}")
        self._given: set[tuple[int, int]] = set()
        """The same of all that it was handed."""
        self._reopen_at: float | None = None
        self.subscriber = SubscriberState(self.options, _ignore, nullcontext())
        self._reader = SubscriberReader(self.subscriber, self._call)
        self.open = False
        self.hurry = False
        """From now on nothing takes time, and everything is acknowledged."""
        self.leaving = False

    # -- the core ---------------------------------------------------------------------------

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn of the core, then of the program that uses it."""
        self._now = now
        if self._core is None:
            self._core = ClientCore(self._config, self._rng, now)
            self._subscribe()
        if self._reopen_at is not None and self._reopen_at <= now.mono:
            self._reopen_at = None
            self._subscribe()
        for event in events:
            if isinstance(event, Call):
                event.request()
        calls, self._calls = self._calls, []
        others = [event for event in events if not isinstance(event, Call)]
        effects = self._core.handle([*others, *calls], now)
        while self._handling and self._handling[0][0] <= now.mono:
            self._finish(heapq.heappop(self._handling)[2])
        self._take()
        return effects

    def deadline(self) -> float | None:
        """When the program or the core wants a turn."""
        if self._calls or self._core is None:
            return self._now.mono
        wanted = [self._core.deadline(), self._reopen_at]
        if self._handling:
            wanted.append(self._handling[0][0])
        return min((at for at in wanted if at is not None), default=None)

    def _call(self, call: CoreCall) -> None:
        self._calls.append(Call(call))

    def _subscribe(self) -> None:
        self.subscriber = SubscriberState(self.options, _ignore, nullcontext())
        self._reader = SubscriberReader(self.subscriber, self._call)
        opening = OpenSubscriber(self.subscriber, NEVER)
        opening.outcome.add_callback(lambda: self._opened(opening))
        self._call(opening)

    def _opened(self, opening: OpenSubscriber) -> None:
        error = opening.outcome.error
        if error is None:
            self.open = True
        elif not self.leaving:
            assert isinstance(error, LogboomError), error
            if error.code == "INSTANCE_TAKEN":
                self._trace.count("names of earlier processes")
            else:
                self._refused(error)
            self._reopen_at = self._now.mono + REOPEN_S

    def _refused(self, error: LogboomError) -> None:
        """A second exclusive consumer is told who has the subscription; nobody else is refused."""
        if error.code == "CONSUMER_BUSY" and self.options.config.kind == "exclusive":
            self._trace.count("exclusive consumers refused")
        elif not error.retryable:
            raise BrokenProperty("consumers subscribe", f"{self.id}: {error.code} {error}")

    # -- the program ------------------------------------------------------------------------

    def _take(self) -> None:
        room = AT_ONCE - len(self._handling)
        if room <= 0 or self.leaving or not self.open:
            return
        try:
            taken = self._reader.take(room)
        except LogboomError as error:
            self._refused(error)
            return
        if len({(message.queue, message.offset) for message in taken}) < len(taken):
            offsets = [(message.queue, message.offset) for message in taken]
            raise BrokenProperty("one poll has a message once", f"{self.id}: {offsets}")
        for message in taken:
            queue, value = Queue(message.topic, message.queue), bytes(message.value or b"")
            name = self.options.subscription
            if (message.queue, message.offset) in self._acked:
                detail = f"{self.id}: {name} {queue} offset {message.offset}"
                raise BrokenProperty("nobody gets again what he acknowledged", detail)
            self._given.add((message.queue, message.offset))
            self._ledger.give(name, queue, message.offset, value, self.id)
            spent = 0.0 if self.hurry else self._rng.choice(TAKING_S)
            heapq.heappush(self._handling, (self._now.mono + spent, next(self._order), message))

    def _finish(self, message: Message) -> None:
        if self.leaving:
            return
        dice = 1.0 if self.hurry else self._rng.random()
        try:
            if dice < FAILING:
                self._reader.nack(message, self._rng.choice(DELAYS_S))
                self._trace.count("given back")
            elif dice < FAILING + FORGOTTEN and self.options.config.ack_timeout_s:
                self._trace.count("forgotten")
            elif self.options.ordered and dice < 0.5:
                self._finish_all(message)
            else:
                self._reader.ack(message)
                self._acked.add((message.queue, message.offset))
                self._unconfirmed.add((message.queue, message.offset))
                self._finish_one(message.queue, message.offset)
                self._flush_maybe()
        except InvalidRequest:
            # It came a second time while it was here, and is settled; or it was among others.
            self._trace.count("settled already")

    def _finish_all(self, message: Message) -> None:
        """This message and all before it, also what was given back and did not come again."""
        queue = message.queue
        place = self.subscriber.places[queue]
        here = {n for n in place.out | place.waiting if n <= message.offset}
        self._reader.ack_cumulative(message)
        self._acked.update((queue, offset) for offset in here)
        self._unconfirmed.update((queue, offset) for offset in here)
        self._flush_maybe()
        done = (offset for number, offset in self._given if number == queue)
        for offset in done:
            if offset <= message.offset:
                self._finish_one(queue, offset)

    def _finish_one(self, queue: int, offset: int) -> None:
        where = Queue(self.options.topic, queue)
        self._ledger.finish(self.options.subscription, where, offset)

    def _flush_maybe(self) -> None:
        if self._flush_rng.random() >= FLUSHED:
            return
        call = FlushSubscriber(self.subscriber, FLUSH_S)
        meant = set(self._unconfirmed)
        call.outcome.add_callback(lambda: self._flushed(call, meant))
        self._call(call)

    def _flushed(self, call: FlushSubscriber, meant: set[tuple[int, int]]) -> None:
        """What a flush was not told to be refused is confirmed."""
        error = call.outcome.error
        told = error.code if isinstance(error, LogboomError) else ""
        if error is not None and told != "ACK_REFUSED":
            self._trace.count("flushes failed")
            return
        refused: set[tuple[int, int]] = set()
        if isinstance(error, LogboomError):
            for _, queue, start, stop in error.fields["refused"]:
                refused.update((queue, offset) for offset in range(start, stop))
            self._trace.count("flushes told of refusals")
        else:
            self._trace.count("flushes confirmed")
        meant &= self._unconfirmed
        # Another flush of this program may have been told of what was refused before.
        self._unconfirmed -= meant | refused
        for queue, offset in meant - refused:
            where = Queue(self.options.topic, queue)
            self._ledger.flushed(self.options.subscription, where, offset, self.id)

    def pause(self, *, paused: bool) -> None:
        """Take no more for a while; called through a `Call`."""
        self._reader.pause(paused=paused)

    def leave(self, left: Callable[[], None]) -> None:
        """Go in good order; called through a `Call`, `left` once it is done."""
        self.leaving = True
        call = CloseSubscriber(self.subscriber, LEAVE_S)
        call.outcome.add_callback(left)
        self._call(call)


def _ignore() -> None:
    return None
