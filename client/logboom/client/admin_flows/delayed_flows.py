"""Delayed messages of the whole cluster that still wait, for people: a flow and its result."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from logboom.client.calls import AskNode, FindTopic
from logboom.client.delays import Parking
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow, known_nodes
from logboom.wire.errors import InvalidRequest
from logboom.wire.parking import DelayedBatch, DelayedListed, ListDelayed
from logboom.wire.view import TopicView

AT_ONCE: Final = 1_000
"""Batches in one answer of a broker."""
DEFAULT_LIMIT: Final = 10_000
"""Batches that are listed by default."""
_PLACE: Final = re.compile(
    r"(?P<topic>.+)/(?P<queue>\d{1,9})/(?P<offset>\d{1,18})\.(?P<side>\d{1,9})"
)


class DelayedBatches(Struct, frozen=True):
    """Delayed batches that wait for their due times."""

    batches: list[DelayedBatch]
    """The next due first."""
    more: bool
    """True if there are more than listed."""


def delayed(topic: str, timeout: float, most: int = DEFAULT_LIMIT) -> Flow[DelayedBatches]:
    """List what all live brokers know, the `most` that are due next; `topic` "": of all topics.

    Raises:
        UnknownResource: there is no such topic.
        TimedOut: a broker did not answer.
    """
    if most < 1:
        raise InvalidRequest(f"list 1 or more delayed batches, not {most}")
    if topic:
        yield FindTopic(topic, timeout)
    view = yield from known_nodes(timeout)
    told: dict[tuple[int, int, int, int], DelayedBatch] = {}
    more = False
    for broker in view.brokers:
        after: DelayedBatch | None = None
        asking, heard = broker.alive, 0
        while asking:
            message = ListDelayed(0, int(timeout * 1000), topic, min(AT_ONCE, most), after)
            answer, _ = yield AskNode(broker.endpoint, message, timeout)
            if not isinstance(answer, DelayedListed):
                raise unexpected(answer)
            # Two brokers report a queue that moves meanwhile.
            told.update(((e.topic_id, e.queue, e.offset, e.side), e) for e in answer.delayed)
            after = answer.delayed[-1] if answer.delayed else None
            heard += len(answer.delayed)
            # Each broker tells its own in order, so `most` of each hold the first `most` of all.
            asking = answer.more and heard < most and after is not None
            more = more or (answer.more and not asking)
    found = sorted(told.values(), key=lambda each: (each.due_ms, each.topic, each.queue))
    return DelayedBatches(found[:most], more or len(found) > most)


def parked_at(text: str, timeout: float) -> Flow[Parking]:
    """Return the place that a text of the form orders/0/17.2 names.

    Raises:
        InvalidRequest: the text has another form.
        UnknownResource: there is no such topic or queue.
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{text!r} names no delayed message: write topic/queue/offset.side")
    queue = int(match["queue"])
    view: TopicView = yield FindTopic(match["topic"], timeout, queues=queue + 1)
    return Parking(view.name, queue, int(match["offset"]), int(match["side"]), 0, view.id)


def delayed_place(batch: DelayedBatch) -> str:
    """Return the place of a batch in the form orders/0/17.2."""
    return f"{batch.topic}/{batch.queue}/{batch.offset}.{batch.side}"
