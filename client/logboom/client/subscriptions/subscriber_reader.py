"""The reader's side of a subscription's consumer, for threads and asyncio alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from logboom.client.calls import CoreCall
from logboom.client.delays import check_delay
from logboom.client.fetch.retry_copies import restore_original
from logboom.client.groups.failed_messages import RetrySink
from logboom.client.results import Message, messages_of
from logboom.client.subscriptions.subscribed_queue import ReceivedBatch, SubscribedQueue
from logboom.client.subscriptions.subscriber_state import SubscriberState, WakeSubscriber
from logboom.client.subscriptions.subscription_retries import RetryCopies
from logboom.wire.errors import InvalidRequest
from logboom.wire.filters.filter import selectors
from logboom.wire.names import RETRY_PREFIX

_QUEUE: Final = attrgetter("queue")


class SubscriberReader:
    """Hands out messages and settles them, without waiting."""

    def __init__(
        self,
        subscriber: SubscriberState,
        submit: Callable[[CoreCall], None],
        sink: RetrySink | None = None,
        name: str = "",
    ) -> None:
        """Create a reader.

        Args:
            subscriber: the state shared with the core.
            submit: passes a call to the core.
            sink: of a subscription with retries and dead letters, takes the copies.
            name: of such a subscription, follows the prefixes of its topics.
        """
        self._subscriber = subscriber
        self._submit = submit
        self._ready: deque[Message] = deque()
        self._most = subscriber.options.config.max_attempts
        self._restores = subscriber.options.topic.startswith(RETRY_PREFIX)
        self._sent_on = None if sink is None else RetryCopies(subscriber, name, sink, self._wake)

    @property
    def waiting(self) -> bool:
        """True if there is something to take."""
        return bool(self._ready or self._subscriber.arrivals)

    def take(self, most: int) -> list[Message]:
        """Take up to `most` messages that have arrived.

        Raises:
            LogboomError: a queue cannot be read (raised once; the others continue).
        """
        subscriber = self._subscriber
        with subscriber.lock:
            if subscriber.void:
                self._drop(subscriber.void)
                subscriber.void.clear()
            ready = self._ready
            while len(ready) < most and subscriber.arrivals:
                self._open_next()
            taken = [ready.popleft() for _ in range(min(most, len(ready)))]
            copied = False
            for queue, messages in groupby(taken, _QUEUE):
                place = subscriber.places[queue]
                copied = copied or bool(place.copies)
                place.take([message.offset for message in messages])
            if copied:
                taken = self._each_once(taken)
            if self._sent_on is not None:
                taken = self._tried(taken, self._sent_on)
        error, subscriber.error = subscriber.error, subscriber.ended
        if error is not None and not taken:
            raise error
        return taken

    def _each_once(self, taken: list[Message]) -> list[Message]:
        """Drop all copies of a message but the newest, because it can be settled only once.

        It stays in the place of the oldest, before later messages of its key. In an ordered
        subscription it takes that of the newest, because the leader went back and delivered all
        that follows it again, too.
        """
        found: dict[tuple[int, int], Message] = {}
        for message in taken:
            name = message.queue, message.offset
            if self._subscriber.options.ordered:
                found.pop(name, None)
            found[name] = message
        return list(found.values())

    def _tried(self, taken: list[Message], sent_on: RetryCopies) -> list[Message]:
        """Restore retries to the original messages, and bury those that were tried too often."""
        found = []
        for raw in taken:
            if raw.offset in self._subscriber.places[raw.queue].sending:
                continue  # a copy of the one before, which was tried too often
            message = _restored(raw) if self._restores else raw
            if message.attempt <= self._most:
                found.append(message)
                continue
            place = self._subscriber.places[raw.queue]
            place.out.discard(raw.offset)
            self._drop_copies(place, {raw.offset})
            cause = f"delivered {message.attempt - 1} times and never acknowledged"
            last = msgspec.structs.replace(message, attempt=message.attempt - 1)
            sent_on.bury(place, raw.offset, last, cause)
        return found

    def _drop(self, queues: set[int]) -> None:
        """Drop what waits here of queues, because it is delivered again."""
        self._ready = deque(each for each in self._ready if each.queue not in queues)

    def _open_next(self) -> None:
        batch = self._subscriber.arrivals.popleft()
        if batch.session == batch.place.session:
            self._ready.extend(self._opened(batch))

    def _drop_copies(self, place: SubscribedQueue, offsets: set[int]) -> None:
        """Drop waiting copies of messages that are settled."""
        copies = place.waiting & offsets
        if not copies:
            return
        void = self._subscriber.void
        if void:
            # Before anything of the new session is added to the waiting messages.
            self._drop(void)
            void.clear()
        while self._subscriber.arrivals:
            self._open_next()
        place.drop(copies)
        self._ready = deque(
            each for each in self._ready if each.queue != place.queue or each.offset not in copies
        )

    def _opened(self, batch: ReceivedBatch) -> list[Message]:
        place, subscriber = batch.place, self._subscriber
        picked = selectors(batch.chosen, len(batch.columns)) if batch.chosen else None
        topic = subscriber.options.topic
        messages = messages_of(topic, place.queue, batch.columns, picked)
        if batch.attempts:
            messages = [_counted(each, batch.attempts.get(each.offset, 0)) for each in messages]
        place.free(batch)
        if not subscriber.hungry and subscriber.is_half_free(place):
            subscriber.hungry = True
            self._submit(WakeSubscriber(subscriber))
        return messages

    def _wake(self) -> None:
        if not self._subscriber.woken:
            self._subscriber.woken = True
            self._submit(WakeSubscriber(self._subscriber))

    # Settling.

    def ack(self, given: Message | Iterable[Message]) -> None:
        """Acknowledge messages.

        Raises:
            InvalidRequest: a message was not delivered here, or is settled already.
        """
        messages = [given] if isinstance(given, Message) else list(given)
        with self._subscriber.lock:
            for message in messages:
                place, offset = self._taken_out(message)
                place.done.add(offset)
                place.to_ack.append(offset)
            self._wake()

    def ack_cumulative(self, message: Message) -> None:
        """Acknowledge a message and all before it in its queue.

        Raises:
            InvalidRequest: it was not delivered here; or the subscription is shared.
        """
        options = self._subscriber.options
        if not options.ordered:
            text = f"ack_cumulative is for exclusive and failover, not for {options.config.kind}"
            raise InvalidRequest(f"{text}: acknowledge each message")
        with self._subscriber.lock:
            place, last = self._taken_out(message)
            place.up_to = max(place.up_to, last)
            place.done_to = max(place.done_to, last)
            below = {offset for offset in place.out if offset <= last}
            place.out -= below
            if last < place.went_back:
                below.update(offset for offset in place.waiting if offset <= last)
            place.done |= below
            place.done.add(last)
            self._drop_copies(place, below)
            self._wake()

    def nack(self, given: Message | Iterable[Message], delay_s: float, cause: str = "") -> None:
        """Give messages back for another delivery in `delay_s` seconds.

        A message that was tried too often becomes a dead letter with this `cause`.

        Raises:
            InvalidRequest: a message was not delivered here, or is settled already; or the
                delay is invalid.
        """
        check_delay(delay_s)
        messages = [given] if isinstance(given, Message) else list(given)
        sent_on = self._sent_on
        with self._subscriber.lock:
            for message in messages:
                place, offset = self._taken_out(message)
                if sent_on is not None and message.attempt >= self._most:
                    sent_on.bury(place, offset, message, cause or "given back by its consumer")
                    continue
                place.again.append((offset, round(delay_s * 1000)))
                if self._subscriber.options.ordered:
                    self._rewind(place)
            self._wake()

    def retry(self, given: Message | Iterable[Message], delay_s: float | None, cause: str) -> None:
        """Retry messages by way of copies in the retry topic.

        A message that was tried too often becomes a dead letter.

        Raises:
            InvalidRequest: a message was not delivered here, or is settled already; or the
                delay is invalid.
        """
        assert self._sent_on is not None
        if delay_s is not None:
            check_delay(delay_s)
        messages = [given] if isinstance(given, Message) else list(given)
        with self._subscriber.lock:
            for message in messages:
                place, offset = self._taken_out(message)
                if message.attempt >= self._most:
                    self._sent_on.bury(place, offset, message, cause)
                else:
                    self._sent_on.retry(place, offset, message, delay_s, cause)

    def _rewind(self, place: SubscribedQueue) -> None:
        """Drop waiting messages of a queue whose unacknowledged messages are delivered again, in
        order."""
        subscriber = self._subscriber
        place.rewound = place.expected
        place.empty()
        kept: deque[ReceivedBatch] = deque()
        for batch in subscriber.arrivals:
            if batch.place is place:
                place.free(batch)
            else:
                kept.append(batch)
        subscriber.arrivals.clear()
        subscriber.arrivals.extend(kept)
        self._drop({place.queue})

    def _taken_out(self, message: Message) -> tuple[SubscribedQueue, int]:
        """Settle a message; return the queue and the offset where it was read."""
        subscriber = self._subscriber
        topic, queue, offset = message.read_from or (message.topic, message.queue, message.offset)
        place = subscriber.places.get(queue)
        known = place is not None and offset in place.out
        if place is None or not known or topic != subscriber.options.topic:
            text = f"message {offset} of {topic}/{queue}"
            raise InvalidRequest(
                f"{text} was not delivered to this consumer, or is settled already"
            )
        place.out.discard(offset)
        if offset in place.waiting:
            self._drop_copies(place, {offset})
        return place, offset

    def pause(self, *, paused: bool) -> None:
        """Stop giving permits, or start again."""
        self._subscriber.paused = paused
        self._wake()


def _restored(raw: Message) -> Message:
    """Restore a retry to the original message; deliveries of the copy count as attempts."""
    message = restore_original(raw)
    if message.read_from is None:  # somebody else wrote the message there
        return msgspec.structs.replace(raw, read_from=(raw.topic, raw.queue, raw.offset))
    return message if raw.attempt == 1 else _counted(message, message.attempt + raw.attempt - 2)


def _counted(message: Message, attempts: int) -> Message:
    return msgspec.structs.replace(message, attempt=attempts + 1) if attempts else message
