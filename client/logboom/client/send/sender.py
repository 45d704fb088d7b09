"""All producers of one client: their ids, their queues, flush and close."""

from __future__ import annotations

import random
from typing import Any, Final

from logboom.client.calls import CloseProducer, Flush, OpenProducer, OpenTopic
from logboom.client.cluster.connections import Connections
from logboom.client.cluster.leader_cache import LeaderCache
from logboom.client.cluster.metadata_updater import MetadataUpdater, unknown_topic
from logboom.client.cluster.proposal_sender import ProposalSender
from logboom.client.core_context import CoreTurn
from logboom.client.promise import Countdown
from logboom.client.send.queue_sender import QueueSender
from logboom.client.send.send_buffer import SendBuffer
from logboom.wire.batch import NO_PRODUCER
from logboom.wire.commands import AllocateProducerIds, CommandResult
from logboom.wire.errors import ClientClosed, LogboomError
from logboom.wire.view import TopicView

ID_BLOCK: Final = 16
"""Producer ids that a client reserves at once."""


class _ProducerEntry:
    """One open producer."""

    __slots__ = ("buffer", "producer_id", "senders")

    def __init__(self, buffer: SendBuffer[Any], producer_id: int) -> None:
        self.buffer = buffer
        self.producer_id = producer_id
        self.senders: list[QueueSender] = []


class Sender:
    """The core's side of all producers."""

    def __init__(
        self,
        connections: Connections,
        leaders: LeaderCache,
        watching: MetadataUpdater,
        proposals: ProposalSender,
        turn: CoreTurn,
        rng: random.Random,
    ) -> None:
        self._connections = connections
        self._leaders = leaders
        self._watching = watching
        self._proposals = proposals
        self._turn = turn
        self._rng = rng
        self._producers: dict[int, _ProducerEntry] = {}
        self._ids: list[int] = []
        watching.listen(self._rerouted)

    def open(self, call: OpenProducer) -> None:
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

    def open_topic(self, call: OpenTopic) -> None:
        """Load a topic and make its lanes."""

        def found(topic: TopicView | LogboomError) -> None:
            producer = self._producers.get(id(call.buffer))
            if producer is None:
                call.outcome.fail(closed())
            elif isinstance(topic, LogboomError):
                call.outcome.fail(topic)
            else:
                self._shape(producer, topic)
                call.outcome.resolve(None)

        self._watching.want(call.topic, found, call.timeout)

    def _shape(self, producer: _ProducerEntry, topic: TopicView) -> None:
        sticky = self._rng.randrange(1 << 16)
        lane = producer.buffer.reshape(
            topic.name, topic.id, len(topic.queues), topic.config.max_message_bytes, sticky
        )
        for line in lane.queues:
            if line.sender is None:
                line.sender = QueueSender(
                    line,
                    producer.buffer,
                    producer.producer_id,
                    self._connections,
                    self._leaders,
                    self._turn,
                    self._rng,
                )
                producer.senders.append(line.sender)

    def pump(self) -> None:
        """Take what the API has put on the piles since the last turn."""
        for producer in self._producers.values():
            ready = producer.buffer.ready
            while ready:
                sender = ready.popleft().sender
                if sender is not None:
                    sender.pump()

    def waiting(self) -> bool:
        """Whether `pump` has something to do."""
        return any(producer.buffer.ready for producer in self._producers.values())

    def _rerouted(self) -> None:
        """The metadata changed: topics may have gone, grown or moved."""
        topics = self._watching.routes.topics
        for producer in self._producers.values():
            for name, lane in list(producer.buffer.topics.items()):
                topic = topics.get(name)
                if topic is None or topic.id != lane.topic_id:
                    self._drop(producer, name)
                else:
                    self._shape(producer, topic)
            for sender in producer.senders:
                sender.rerouted()

    def _drop(self, producer: _ProducerEntry, name: str) -> None:
        lane = producer.buffer.topics.pop(name)
        for line in lane.queues:
            if line.sender is not None:
                producer.senders.remove(line.sender)
                line.sender.fail_all(unknown_topic(name))

    def flush(self, call: Flush) -> None:
        """Put all piles in line; done when each is acknowledged or given up."""
        producer = self._producers.get(id(call.buffer))
        if producer is None:
            call.outcome.resolve(None)
            return
        for line, piles in producer.buffer.take_all():
            if line.sender is not None:
                line.sender.add(piles)
                line.sender.pump()
        busy = [sender for sender in producer.senders if not sender.idle()]
        if not busy:
            call.outcome.resolve(None)
            return
        countdown = Countdown(call.outcome)
        for sender in busy:
            for pile in sender.piles():
                countdown.expect(pile)
        countdown.start()

    def close(self, call: CloseProducer) -> None:
        """Forget a producer; what it still holds fails."""
        producer = self._producers.pop(id(call.buffer), None)
        if producer is not None:
            for sender in producer.senders:
                sender.fail_all(call.error or closed())
        call.outcome.resolve(None)

    def close_all(self) -> None:
        """The client ends."""
        for producer in list(self._producers.values()):
            self.close(CloseProducer(producer.buffer))


def closed() -> ClientClosed:
    """The error after close."""
    return ClientClosed("this client is closed: call connect() again")
