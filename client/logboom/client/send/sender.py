"""All producers of one client: ids, queues, flush and close."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from logboom.client.calls import CallHandlers
from logboom.client.cluster.connections import Connections
from logboom.client.cluster.leader_cache import LeaderCache
from logboom.client.cluster.metadata_updater import MetadataUpdater
from logboom.client.cluster.proposal_sender import ProposalSender
from logboom.client.cluster.topic_lookup import TopicLookup
from logboom.client.core_context import CoreTurn
from logboom.client.promise import Countdown
from logboom.client.send.producer_batch import QueueAccumulator
from logboom.client.send.queue_sender import QueueSender
from logboom.client.send.send_buffer import (
    CloseProducer,
    Flush,
    OpenProducer,
    OpenTopic,
    SendBuffer,
)
from logboom.wire.batch import NO_PRODUCER
from logboom.wire.commands import AllocateProducerIds, CommandResult
from logboom.wire.errors import ClientClosed, LogboomError, UnknownResource
from logboom.wire.internal_topics import message_limit
from logboom.wire.view import TopicView

ID_BLOCK: Final = 16
"""Producer ids that a client reserves at once."""


class _ProducerEntry:
    """One open producer."""

    __slots__ = ("buffer", "producer_id", "senders")

    def __init__(self, buffer: SendBuffer[Any], producer_id: int) -> None:
        self.buffer = buffer
        self.producer_id = producer_id
        self.senders: dict[QueueAccumulator, QueueSender] = {}


class Sender:
    """The core's side of all producers."""

    def __init__(
        self,
        connections: Connections,
        leaders: LeaderCache,
        watching: MetadataUpdater,
        finding: TopicLookup,
        proposals: ProposalSender,
        turn: CoreTurn,
    ) -> None:
        self._connections = connections
        self._leaders = leaders
        self._watching = watching
        self._finding = finding
        self._proposals = proposals
        self._turn = turn
        self._producers: dict[int, _ProducerEntry] = {}
        self._ids: list[int] = []
        watching.listen(self._rerouted)

    def register(self, handlers: CallHandlers) -> None:
        """Register the handlers of producers' calls."""
        handlers.register(OpenProducer, self._open)
        handlers.register(OpenTopic, self._open_topic)
        handlers.register(Flush, self._flush)
        handlers.register(CloseProducer, self._close)

    def _open(self, call: OpenProducer) -> None:
        """Give a producer its id; with acks="none" it needs none."""
        if call.buffer.options.acks == "none":
            self._opened(call, NO_PRODUCER)
            return
        if self._ids:
            self._opened(call, self._ids.pop(0))
            return

        def allocated(result: CommandResult | LogboomError) -> None:
            if isinstance(result, LogboomError):
                call.outcome.fail(result)
            elif isinstance(result.value, int):
                self._ids += range(result.value, result.value + ID_BLOCK)
                self._opened(call, self._ids.pop(0))

        self._proposals.propose(AllocateProducerIds(ID_BLOCK), allocated, call.timeout)

    def _opened(self, call: OpenProducer, producer_id: int) -> None:
        self._producers[id(call.buffer)] = _ProducerEntry(call.buffer, producer_id)
        call.outcome.resolve(None)

    def _open_topic(self, call: OpenTopic) -> None:
        """Load a topic and create its accumulators."""

        def found(topic: TopicView | LogboomError) -> None:
            producer = self._producers.get(id(call.buffer))
            if isinstance(topic, LogboomError):
                call.outcome.fail(topic)
            elif producer is None:
                call.outcome.fail(closed())
            else:
                self._shape(producer, topic)
                call.outcome.resolve(None)

        self._finding.topic_to_send_to(call.topic, found, call.timeout, call.queues)

    def _shape(self, producer: _ProducerEntry, topic: TopicView) -> None:
        sticky = self._turn.rng.randrange(1 << 16)
        topic_accumulator = producer.buffer.reshape(
            topic.name, topic.id, len(topic.queues), message_limit(topic), sticky
        )
        for accumulator in topic_accumulator.queues:
            if accumulator not in producer.senders:
                producer.senders[accumulator] = QueueSender(
                    accumulator,
                    producer.buffer,
                    producer.producer_id,
                    self._connections,
                    self._leaders,
                    self._turn,
                )

    def pump(self) -> None:
        """Take what the API has added since the last turn."""
        for producer in self._producers.values():
            ready = producer.buffer.ready
            while ready:
                sender = producer.senders.get(ready.popleft())
                if sender is not None:
                    sender.pump()

    def waiting(self) -> bool:
        """True if `pump` has something to do."""
        return any(producer.buffer.ready for producer in self._producers.values())

    def _rerouted(self) -> None:
        """Follow a metadata change: topics may have gone, grown or moved."""
        topics = self._watching.routes.topics
        for producer in self._producers.values():
            for name, topic_accumulator in list(producer.buffer.topics.items()):
                topic = topics.get(name)
                if topic is None or topic.id != topic_accumulator.topic_id:
                    self._drop(producer, name)
                else:
                    self._shape(producer, topic)
            for sender in producer.senders.values():
                sender.rerouted()

    def _drop(self, producer: _ProducerEntry, name: str) -> None:
        topic_accumulator = producer.buffer.topics.pop(name)
        for accumulator in topic_accumulator.queues:
            sender = producer.senders.pop(accumulator, None)
            if sender is not None:
                sender.fail_all(_deleted_topic(name))

    def _flush(self, call: Flush) -> None:
        """Send all batches at once; resolved when each is acknowledged or given up."""
        producer = self._producers.get(id(call.buffer))
        if producer is None:
            call.outcome.resolve(None)
            return
        for accumulator, batches in producer.buffer.take_all():
            sender = producer.senders.get(accumulator)
            if sender is not None:
                sender.add(batches)
                sender.pump()
        busy = [sender for sender in producer.senders.values() if not sender.idle()]
        if not busy:
            call.outcome.resolve(None)
            return
        countdown = Countdown(call.outcome)
        for sender in busy:
            for batch in sender.batches():
                countdown.expect(batch)
        countdown.start()

    def _close(self, call: CloseProducer) -> None:
        """Close a producer; unsent batches fail."""
        producer = self._producers.pop(id(call.buffer), None)
        if producer is not None:
            error = call.error or closed()
            producer.buffer.end(error)
            for sender in producer.senders.values():
                sender.fail_all(error)
        call.outcome.resolve(None)

    def close_all(self, error: LogboomError) -> None:
        """Close all producers with the client; every batch that is not done fails."""
        for producer in self._producers.values():
            producer.buffer.end(error)
            for sender in producer.senders.values():
                batches = sender.batches()
                # If it is why the client ends, it may fail again: nobody may wait for ever.
                with suppress(Exception):
                    sender.fail_all(error)
                for batch in batches:
                    batch.fail(error)
        self._producers.clear()


def closed() -> ClientClosed:
    """Return the error of a closed client."""
    return ClientClosed("this client is closed: call connect() again")


def _deleted_topic(name: str) -> UnknownResource:
    """Return the error of what waited for a topic that was deleted."""
    text = (
        f"topic {name!r} was deleted before this message was stored: "
        "if it was created again since, send the message again"
    )
    return UnknownResource(text, "UNKNOWN_TOPIC", topic=name)
