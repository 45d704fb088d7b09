"""The core's side of all consumers of subscriptions.

A consumer is attached at the leader of each queue, where one Receive is held, and sends its
settlements there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from logboom.client.calls import CallHandlers
from logboom.client.cluster.connections import Connections, OnReply
from logboom.client.cluster.leader_cache import LeaderCache
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.core_context import CoreTurn
from logboom.client.promise import Promise
from logboom.client.subscriptions.attachment import Attachment
from logboom.client.subscriptions.beginnings import beginnings
from logboom.client.subscriptions.settlements import ASK_S, Settlements, ms
from logboom.client.subscriptions.subscribed_queue import ReceivedBatch, SubscribedQueue
from logboom.client.subscriptions.subscriber_state import (
    CloseSubscriber,
    FlushSubscriber,
    OpenSubscriber,
    SubscriberState,
    WakeSubscriber,
)
from logboom.wire.backoff import backoff
from logboom.wire.base import WireMessage
from logboom.wire.batch import validate_batch
from logboom.wire.columns import Columns
from logboom.wire.errors import ClientClosed, DamagedBatch, GroupError, LogboomError, TimedOut
from logboom.wire.frames import Frame
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.subscription_messages import (
    Delivered,
    Span,
    Subscribed,
)
from logboom.wire.view import TopicView

LOG = logging.getLogger("logboom.client")

GATHER_S: Final = 0.005
"""Seconds for which settlements are collected before they are sent."""
OWNER_BITS: Final = 20
"""Random bits that tell consumers of one name from each other which are opened in one millisecond."""
SLACK_S: Final = 3.0
"""Seconds beyond the hold before an unanswered Receive is considered lost."""


class Attachments:
    """The attachments of all subscription consumers of one client."""

    def __init__(
        self,
        connections: Connections,
        leaders: LeaderCache,
        watching: MetadataUpdater,
        turn: CoreTurn,
    ) -> None:
        self._connections = connections
        self._leaders = leaders
        self._watching = watching
        self._turn = turn
        self._attachments: dict[int, dict[int, Attachment]] = {}
        """id of a subscriber → its queues."""
        self._opening: dict[int, Promise[None]] = {}
        self._settlements = Settlements(self._attachments, self._ask, self._failed, turn)
        self._subscribers: dict[int, SubscriberState] = {}
        watching.listen(self._rerouted)

    # Calls.

    def register(self, handlers: CallHandlers) -> None:
        """Register the handlers of subscribers' calls."""
        handlers.register(OpenSubscriber, self._open)
        handlers.register(WakeSubscriber, self._wake)
        handlers.register(FlushSubscriber, self._flush)
        handlers.register(CloseSubscriber, self._close)

    def _wake(self, call: WakeSubscriber) -> None:
        name = id(call.subscriber)
        if name in self._subscribers:
            # Permits are sent at once, because the broker waits for them; settlements are
            # collected.
            self._grant(name)
            if call.subscriber.woken:
                self._turn.after(GATHER_S, lambda: self._woken(name))

    def _flush(self, call: FlushSubscriber) -> None:
        name = id(call.subscriber)
        if name in self._subscribers:
            self._settlements.flush(name, call.outcome, call.timeout)
        else:
            closed = ClientClosed("this consumer is closed: subscribe again")
            call.fail(call.subscriber.ended or closed)

    def _open(self, call: OpenSubscriber) -> None:
        subscriber, name = call.subscriber, id(call.subscriber)
        self._subscribers[name] = subscriber
        self._opening[name] = call.outcome
        subscriber.ended = subscriber.contest = None
        subscriber.owner = (self._turn.wall_ms << OWNER_BITS) + self._turn.rng.getrandbits(
            OWNER_BITS
        )

        def late() -> None:
            if call.outcome.done:
                return
            text = f"the leaders of topic {subscriber.options.topic!r} did not take this consumer"
            error: LogboomError = TimedOut(f"{text} in time: is every queue led? `logboom doctor`")
            if subscriber.contest is not None:
                error = subscriber.contest[1]
            self._give_up(name, error)

        self._turn.after(call.timeout, late)

        def found(topic: TopicView | LogboomError) -> None:
            if isinstance(topic, LogboomError):
                self._give_up(name, topic)
                return
            self._attach(subscriber, topic)

        self._watching.want(subscriber.options.topic, found, call.timeout)

    def _attach(self, subscriber: SubscriberState, topic: TopicView) -> None:
        """Attach to all queues, including those added to the topic since."""
        start = subscriber.options.start
        attachments = self._attachments.setdefault(id(subscriber), {})
        added = []
        with subscriber.lock:
            for queue in range(len(topic.queues)):
                if queue not in attachments:
                    place = subscriber.places[queue] = SubscribedQueue(queue)
                    attachments[queue] = Attachment(subscriber, place, topic.id, start)
                    attachments[queue].valid_from = topic.queues[queue].valid_from()
                    # Wherever it begins, new or not, it begins there.
                    attachments[queue].creates = start == "first"
                    added.append(attachments[queue])
        for attachment in added:
            self._subscribe(attachment)

    def _give_up(self, name: int, error: LogboomError) -> None:
        """Fail a consumer that cannot be opened."""
        outcome = self._opening.pop(name, None)
        for attachment in self._attachments.pop(name, {}).values():
            self._detach(attachment)
        subscriber = self._subscribers.pop(name, None)
        self._settlements.end(name, error)
        if outcome is not None:
            outcome.fail(error)
        elif subscriber is not None:
            subscriber.end(error)

    # Attaching.

    def _subscribe(self, attachment: Attachment) -> None:
        if attachment.closed or attachment.asking is not None or attachment.open:
            return
        options = attachment.subscriber.options
        view = self._watching.routes.known_queue(options.topic, attachment.place.queue)
        if view is not None and view.loses:
            return  # new messages may have offsets of lost ones: the end of the loss asks again
        try:
            endpoint = self._leaders.endpoint(options.topic, attachment.place.queue)
        except LogboomError as error:
            self._lost(attachment, error)
            return
        if endpoint is None:
            return  # a new leader asks again
        attachment.endpoint = endpoint
        attachment.session = max(attachment.session + 1, self._turn.wall_ms)
        attachment.asking = self._ask(
            attachment,
            attachment.subscribe(ms(ASK_S), again=id(attachment.subscriber) not in self._opening),
            lambda reply: self._subscribed(attachment, reply),
            ASK_S,
        )

    def _ask(
        self,
        attachment: Attachment,
        message: WireMessage,
        on_reply: OnReply,
        timeout: float,
        latest: float | None = None,
    ) -> RequestHandle:
        endpoint = attachment.endpoint
        return self._connections.request(endpoint, message, (), on_reply, timeout, latest)

    def _subscribed(self, attachment: Attachment, reply: Reply) -> None:
        attachment.asking = None
        error, subscriber = reply.error, attachment.subscriber
        if not attachment.creates and error is not None and error.code == "UNKNOWN_SUBSCRIPTION":
            attachment.known = False
            self._create(id(subscriber))
            return
        if not isinstance(reply.message, Subscribed):
            self._failed(attachment, error)
            return
        attachment.open, attachment.attempts, attachment.number = True, 0, 0
        subscriber.renew(attachment.place, attachment.session)
        self._settlements.settle(attachment)
        # What was given back in the session before needs no answer: a flush may have waited for it.
        self._settlements.flushed(id(subscriber))
        name = id(subscriber)
        if not attachment.known:
            attachment.known = attachment.creates = True
            self._create(name)
        if name not in self._opening:
            self._begin(attachment)
            return
        # The name is this consumer's once all leaders know it: until then it takes no messages.
        attachments = self._attachments[name].values()
        if all(each.open for each in attachments):
            opening = self._opening.pop(name)
            for each in attachments:
                self._begin(each)
            opening.resolve(None)

    def _begin(self, attachment: Attachment) -> None:
        """Give the first permits of a session."""
        subscriber = attachment.subscriber
        window = 0 if subscriber.paused else subscriber.window()
        self._receive(attachment, window, subscriber.window_bytes())
        if subscriber.paused:
            attachment.place.freed = subscriber.window()

    def _create(self, name: int) -> None:
        """Create the subscription in queues that do not know it, once all of them were asked."""
        attachments = self._attachments[name]
        known = [queue for queue, each in attachments.items() if each.known]
        unknown = [queue for queue, each in attachments.items() if each.known is False]
        if len(known) + len(unknown) < len(attachments):
            return
        start = self._subscribers[name].options.start
        for queue, begin in beginnings(known, unknown, start):
            attachment = attachments[queue]
            if not attachment.creates:
                attachment.creates, attachment.start = True, begin
                self._subscribe(attachment)

    def _failed(self, attachment: Attachment, error: LogboomError | None) -> None:
        """Attach again after a failed request, unless that is of no use."""
        topic, queue = attachment.subscriber.options.topic, attachment.place.queue
        attachment.cancel()
        if attachment.closed:
            return
        if error is not None and error.code == "INSTANCE_TAKEN":
            self._contested(attachment, error)
            return
        gone = isinstance(error, GroupError) and error.code == "UNKNOWN_CONSUMER"
        if error is not None and not gone and not self._leaders.learn(topic, queue, error):
            self._lost(attachment, error)
            return
        self._later(attachment)

    def _contested(self, attachment: Attachment, error: LogboomError) -> None:
        """End a consumer whose name another process has, unless that may have ended just now."""
        subscriber, now = attachment.subscriber, self._turn.mono
        if id(subscriber) in self._opening:
            if subscriber.contest is None:
                session_s = subscriber.options.config.session_ms / 1000
                subscriber.contest = now + session_s + SLACK_S, error
            if now < subscriber.contest[0]:
                self._later(attachment)
                return
        self._give_up(id(subscriber), error)

    def _lost(self, attachment: Attachment, error: LogboomError) -> None:
        """Report a queue that cannot be read now, and retry slowly."""
        name = id(attachment.subscriber)
        if name in self._opening:
            self._give_up(name, error)
            return
        attachment.subscriber.fail(error)
        attachment.attempts = max(attachment.attempts, 6)
        self._later(attachment)

    def _later(self, attachment: Attachment) -> None:
        def again() -> None:
            attachment.pause = None
            self._subscribe(attachment)

        attachment.attempts += 1
        if attachment.pause is None:
            attachment.pause = self._turn.after(backoff(attachment.attempts, self._turn.rng), again)

    def _rerouted(self) -> None:
        """Follow a metadata change: leaders may have moved."""
        for name, subscriber in list(self._subscribers.items()):
            topic = self._watching.routes.topics.get(subscriber.options.topic)
            if topic is None or name not in self._attachments:
                continue
            self._attach(subscriber, topic)
            for attachment in list(self._attachments.get(name, {}).values()):
                if attachment.topic_id != topic.id:
                    # The topic was deleted and recreated: other messages have the old offsets.
                    attachment.cancel()
                    attachment.topic_id, attachment.start = topic.id, "first"
                    attachment.creates = True
                    subscriber.forget(attachment.place)
                    attachment.valid_from = 0
                    self._settlements.flushed(name)
                self._follow_losses(attachment)
                try:
                    leader = self._leaders.endpoint(topic.name, attachment.place.queue)
                except LogboomError:
                    continue
                if leader not in (None, attachment.endpoint):
                    attachment.cancel()
                if not attachment.open and attachment.pause is None:
                    self._subscribe(attachment)

    def _follow_losses(self, attachment: Attachment) -> None:
        """Forget messages that the queue has lost: an acknowledgement would be of others (Q15)."""
        topic = attachment.subscriber.options.topic
        view = self._watching.routes.known_queue(topic, attachment.place.queue)
        if view is None or not view.losses:
            return
        end = view.valid_end(attachment.valid_from)
        attachment.valid_from = view.valid_from()
        if end is not None:
            attachment.cancel()
            attachment.subscriber.cut(attachment.place, end)
            self._settlements.flushed(id(attachment.subscriber))

    # Receiving.

    def _receive(self, attachment: Attachment, messages: int, size: int) -> None:
        wait_s = min(10.0, attachment.subscriber.options.config.session_ms / 3000)
        attachment.number += 1
        number = attachment.number
        message = attachment.receive(messages, size, ms(wait_s), ms(wait_s + SLACK_S))
        attachment.receiving[number] = self._ask(
            attachment,
            message,
            lambda reply: self._received(attachment, number, reply),
            wait_s + SLACK_S,
            # The leader keeps the consumer attached while it delays this because of a quota.
            float("inf"),
        )

    def _received(self, attachment: Attachment, number: int, reply: Reply) -> None:
        attachment.receiving.pop(number, None)
        message = reply.message
        if not isinstance(message, Delivered):
            self._failed(attachment, reply.error)
            return
        attachment.place.active = message.active
        if not self._take(attachment, message, reply.batches):
            return
        if number == attachment.number:
            self._receive(attachment, *self._freed(attachment))

    def _take(self, attachment: Attachment, message: Delivered, batches: Sequence[Frame]) -> bool:
        """Pass batches to the reader; return False if one is damaged."""
        attachment.subscriber.throttled_ms += message.throttled_ms
        attempts = dict(message.attempts)
        for chosen, batch in zip(message.chosen, batches, strict=False):
            try:
                head = validate_batch(batch)
            except DamagedBatch as error:
                LOG.warning("%s: %s", attachment.subscriber.options.topic, error)
                self._failed(attachment, None)
                return False
            columns = Columns(head, batch)
            received = ReceivedBatch(
                attachment.place, attachment.session, columns, chosen, attempts, len(batch)
            )
            attachment.subscriber.put(received)
        self._acknowledge(attachment)
        return True

    def _acknowledge(self, attachment: Attachment) -> None:
        """Acknowledge messages that arrived again and are finished already, with the next
        settlements."""
        subscriber = attachment.subscriber
        with subscriber.lock:
            if not attachment.place.to_ack or subscriber.woken:
                return
            subscriber.woken = True
        name = id(subscriber)
        self._turn.after(GATHER_S, lambda: self._woken(name))

    def _freed(self, attachment: Attachment) -> Span:
        """Return the permits to give back."""
        place, subscriber = attachment.place, attachment.subscriber
        with subscriber.lock:
            if subscriber.paused:
                return 0, 0
            freed = place.freed, place.freed_bytes
            place.freed = place.freed_bytes = 0
        return freed

    def _grant(self, name: int) -> None:
        """Give permits back where half a window is free."""
        subscriber = self._subscribers[name]
        subscriber.hungry = False
        for attachment in self._attachments.get(name, {}).values():
            if attachment.open and subscriber.is_half_free(attachment.place):
                messages, size = self._freed(attachment)
                if messages or size:
                    self._receive(attachment, messages, size)

    def _woken(self, name: int) -> None:
        subscriber = self._subscribers.get(name)
        if subscriber is None:
            return
        with subscriber.lock:
            subscriber.woken = False
        for attachment in self._attachments.get(name, {}).values():
            self._settlements.settle(attachment)
        self._grant(name)

    # The end.

    def _close(self, call: CloseSubscriber) -> None:
        name = id(call.subscriber)
        if name not in self._subscribers:
            call.outcome.resolve(None)
            return
        done: Promise[None] = Promise()

        def end() -> None:
            if done.error is not None:
                where = call.subscriber.options
                LOG.warning("%s of %s closes: %s", where.subscription, where.topic, done.error)
            self._subscribers.pop(name, None)
            for attachment in self._attachments.pop(name, {}).values():
                self._detach(attachment)
            self._settlements.end(name, ClientClosed("this consumer was closed meanwhile"))
            call.outcome.resolve(None)

        done.add_callback(end)
        self._settlements.flush(name, done, call.timeout)

    def _detach(self, attachment: Attachment) -> None:
        """Detach, without waiting for the answer."""
        was_open = attachment.open or attachment.asking is not None
        attachment.cancel()
        attachment.closed = True
        if not was_open:
            return
        self._ask(attachment, attachment.detach(ms(ASK_S)), lambda _reply: None, ASK_S)
