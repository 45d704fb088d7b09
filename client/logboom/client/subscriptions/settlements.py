"""Acknowledgements and returned messages of consumers, on their way to the queues' leaders."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from logboom.client.cluster.connections import OnReply
from logboom.client.core_context import CoreTurn
from logboom.client.promise import Promise
from logboom.client.subscriptions.attachment import Attachment, runs_of, spans_of
from logboom.wire.backoff import backoff
from logboom.wire.base import WireMessage
from logboom.wire.errors import GroupError, LogboomError, TimedOut
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.subscription_messages import MAX_AGAIN, Settled

LOG = logging.getLogger("logboom.client")

ASK_S: Final = 10.0
"""Seconds for an answer to Subscribe and SettleMessages."""
MAX_SPANS: Final = 4_096
"""Spans of acknowledged messages in one request: fewer than a leader takes, since it serves others, too."""
MAX_TOLD: Final = 100
"""Spans of refused acknowledgements that an error contains."""


class LeaderRequester(Protocol):
    """A function that sends a request to the leader of an attachment's queue."""

    def __call__(
        self, attachment: Attachment, message: WireMessage, on_reply: OnReply, timeout: float
    ) -> RequestHandle:
        """Send a request and return its handle."""
        ...


class Settlements:
    """The settlements of all consumers of one client."""

    def __init__(
        self,
        attachments: Mapping[int, Mapping[int, Attachment]],
        ask: LeaderRequester,
        failed: Callable[[Attachment, LogboomError | None], None],
        turn: CoreTurn,
    ) -> None:
        """Start without settlements.

        Args:
            attachments: id of a subscriber → its queues.
            ask: sends a request to a leader.
            failed: called after a failed request that requires to attach again.
            turn: the core's turn.
        """
        self._attachments = attachments
        self._ask = ask
        self._failed = failed
        self._turn = turn
        self._flushes: dict[int, list[Promise[None]]] = {}

    def settle(self, attachment: Attachment) -> None:
        """Send settlements to the leader, one request at a time."""
        place, options = attachment.place, attachment.subscriber.options
        if attachment.settling is not None or not attachment.open:
            return
        with attachment.subscriber.lock:
            if not place.unsettled:
                return
            offsets, place.to_ack = place.to_ack, []
            acked = spans_of(offsets)
            if len(acked) > MAX_SPANS:
                # The rest goes with the next request, which follows the answer.
                later = acked[MAX_SPANS][0]
                place.to_ack = [offset for offset in offsets if offset >= later]
                offsets, acked = [each for each in offsets if each < later], acked[:MAX_SPANS]
            again, place.again = place.again, []
            back = runs_of(again)
            if len(back) > MAX_AGAIN:
                back = back[:MAX_AGAIN]
                sent = sum(stop - start for start, stop, _ in back)
                again, place.again = again[:sent], again[sent:]
            up_to, place.up_to = place.up_to, -1
        message = attachment.settle(acked, up_to, back, ms(ASK_S))

        def settled(reply: Reply) -> None:
            attachment.settling = None
            if not isinstance(reply.message, Settled):
                self._unsettled(attachment, offsets, again, up_to, reply.error)
                return
            refused = reply.message.refused
            with attachment.subscriber.lock:
                place.confirm(offsets, up_to, refused)
            if refused:
                LOG.info("%s/%s: not settled: %s", options.topic, place.queue, refused)
            if refused and again and options.ordered:
                # A message given back was not ours, so nothing tells where the queue continues.
                self._failed(attachment, None)
            else:
                self.settle(attachment)
            self.flushed(id(attachment.subscriber))

        attachment.settling = self._ask(attachment, message, settled, ASK_S)

    def _unsettled(
        self,
        attachment: Attachment,
        offsets: list[int],
        again: list[tuple[int, int]],
        up_to: int,
        error: LogboomError | None,
    ) -> None:
        """Keep settlements that failed.

        In a new session the messages are delivered again, and finished ones are acknowledged then.
        """
        if error is None or error.code not in ("BUSY", "NOT_ENOUGH_REPLICAS", "INVALID_ARGUMENT"):
            self._failed(attachment, error)
            return
        place = attachment.place
        if error.code == "INVALID_ARGUMENT":
            LOG.warning("%s/%s: %s", attachment.subscriber.options.topic, place.queue, error)
            with attachment.subscriber.lock:
                place.confirm(offsets, up_to, spans_of([*offsets, *([up_to] * (up_to >= 0))]))
            if again:
                self._failed(attachment, None)  # in a new session they come again
            self.flushed(id(attachment.subscriber))
            return
        with attachment.subscriber.lock:
            place.to_ack += offsets
            place.again += again
            place.up_to = max(place.up_to, up_to)
        attachment.attempts += 1
        self._turn.after(
            backoff(attachment.attempts, self._turn.rng), lambda: self.settle(attachment)
        )

    def flush(self, name: int, outcome: Promise[None], timeout: float) -> None:
        """Resolve once the leaders have confirmed everything; fail if they have refused something."""

        def late() -> None:
            text = "not all acknowledgements were confirmed in time: what is not comes again"
            outcome.fail(TimedOut(text))
            waiting = self._flushes.get(name, [])
            if outcome in waiting:
                waiting.remove(outcome)

        self._flushes.setdefault(name, []).append(outcome)
        self._turn.after(timeout, late)
        for attachment in self._attachments.get(name, {}).values():
            self.settle(attachment)
        self.flushed(name)

    def flushed(self, name: int) -> None:
        """End the flushes of a subscriber to whose settlements the leaders have all answered."""
        if not self._flushes.get(name):
            return
        attachments = self._attachments.get(name, {}).values()
        if any(s.settling is not None or not s.place.idle for s in attachments):
            return
        error = _refusal(attachments)
        for outcome in self._flushes.pop(name):
            if error is None:
                outcome.resolve(None)
            else:
                outcome.fail(error)

    def end(self, name: int, error: LogboomError) -> None:
        """Fail the flushes of a subscriber that is closed."""
        for outcome in self._flushes.pop(name, []):
            outcome.fail(error)


def _refusal(attachments: Collection[Attachment]) -> GroupError | None:
    """Return the error for acknowledgements that were refused since the last flush."""
    count = 0
    spans: list[list[str | int]] = []
    for attachment in attachments:
        place, topic = attachment.place, attachment.subscriber.options.topic
        with attachment.subscriber.lock:
            count += len(place.refused)
            spans += ([topic, place.queue, *span] for span in spans_of(place.refused))
            place.refused.clear()
    if not count:
        return None
    first = "{}/{} from offset {}".format(*spans[0])
    text = f"{count} acknowledged messages were not this consumer's any more, {first} on"
    return GroupError(
        f"{text}: they are delivered again, to whoever has them now",
        "ACK_REFUSED",
        messages=count,
        refused=spans[:MAX_TOLD],
    )


def ms(seconds: float) -> int:
    """Convert seconds to milliseconds."""
    return int(seconds * 1000)
