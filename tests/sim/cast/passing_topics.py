"""Messages for topics that come and go: what is acknowledged stays as long as the topic does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from logboom.nodes.log.keys import queue_key, queue_of
from logboom.nodes.log.storage import FAMILIES
from logboom.wire.batch import encode_batch
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage, Produce, Produced
from tests.sim.cast.wire_client import WireClient
from tests.sim.judges.history import Queue, values_of
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

LOADED: Final = ("coming-1", "coming-2")
"""Topics that get messages while they are there."""
COMPACTED: Final = LOADED[1]
"""The one that is compacted, so that what compaction keeps has to go too."""
REST_S: Final = 0.5
ANSWER_S: Final = 2.0
RETRY_S: Final = (0.3, 2.4)
"""A send waits this long after an error: twice as long each time."""


@dataclass(frozen=True, slots=True)
class _Sent:
    topic_id: int
    queue: Queue
    value: bytes


class PassingLoad(WireClient):
    """Sends single messages, each until it is acknowledged or its topic is gone."""

    def __init__(self, name: str, endpoints: Sequence[str], rng: random.Random) -> None:
        super().__init__(name, endpoints, rng)
        self._working = False
        self._waiting: set[_Sent] = set()
        self._acked: dict[tuple[int, Queue], dict[int, bytes]] = {}
        self.told_gone: set[int] = set()
        """Ids of topics that a broker said do not exist."""
        self._count = 0
        self.ended = 0
        """Sends that ended because their topic was deleted."""

    def start(self) -> None:
        """Begin; called through a `Call`."""
        self._working = True
        self._send()

    def stop(self) -> None:
        """Begin nothing new."""
        self._working = False

    def settled(self) -> bool:
        """Whether every send has ended."""
        return not self._waiting

    def waiting(self) -> list[str]:
        """What has not ended."""
        return sorted(f"{sent.queue} {sent.value!r}" for sent in self._waiting)

    def _send(self) -> None:
        if not self._working:
            return
        self.later(self.rng.expovariate(1 / REST_S), self._send)
        known = [self.routes.topics[name] for name in LOADED if name in self.routes.topics]
        if known:
            topic = self.rng.choice(known)
            self._count += 1
            queue = Queue(topic.name, self.rng.randrange(len(topic.queues)))
            sent = _Sent(topic.id, queue, f"{self.name}/{self._count}".encode())
            self._waiting.add(sent)
            self._post(sent)

    def _post(self, sent: _Sent, rest_s: float = RETRY_S[0]) -> None:
        topic = self.routes.topics.get(sent.queue.topic)
        if topic is None or topic.id != sent.topic_id:
            # UNKNOWN_TOPIC, a client would say.
            self._waiting.remove(sent)
            self.ended += 1
            return
        leader = self.routes.leader(*sent.queue)
        longer = min(2 * rest_s, RETRY_S[1])
        if leader is None:
            self.later(rest_s, lambda: self._post(sent, longer))
            return

        def answered(
            message: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if isinstance(message, Produced):
                self._waiting.remove(sent)
                places = self._acked.setdefault((sent.topic_id, sent.queue), {})
                places[message.base_offset] = sent.value
                return
            assert error is not None, message
            if error.code == "UNKNOWN_TOPIC":
                self._waiting.remove(sent)
                self.ended += 1
                self.told_gone.add(sent.topic_id)
                return
            if not error.retryable:
                raise BrokenProperty("retries succeed", f"{self.name} {sent.queue}: {error}")
            self.later(rest_s, lambda: self._post(sent, longer))

        batch = encode_batch([sent.value], now_ms=self.now.wall_ms)
        message = Produce(0, int(ANSWER_S * 1000), *sent.queue, "all", sent.topic_id)
        self.request(leader[1], message, answered, ANSWER_S, [batch])

    def compare(self, world: World) -> None:
        """What was acknowledged is where it was, in each replica, if the topic is still there."""
        topics = world.observer.topics
        # The observer may not have heard yet of a topic that was deleted this moment.
        servers = [world.name_server(machine.name) for machine in world.nodes("name-server")]
        newest = max((s.state for s in servers if s is not None), key=lambda state: state.version)
        there = {topic.id for topic in newest.cluster.topics.values()}
        if wrong := self.told_gone & there:
            raise BrokenProperty("topics that are there are known", f"ids {sorted(wrong)}")
        for (topic_id, queue), places in self._acked.items():
            topic = topics.get(queue.topic)
            if topic is None or topic.id != topic_id or topic_id not in there:
                continue
            world.trace.count("acked in passing topics", len(places))
            for name in topic.queues[queue.number].replicas:
                start, values = values_of(queue, _log(world, name, topic_id, queue.number))
                for offset, value in places.items():
                    held = values[offset - start] if offset - start < len(values) else None
                    if held != value:
                        detail = f"{name} {queue} {offset}: {value!r} acknowledged, {held!r} stored"
                        raise BrokenProperty("nothing acknowledged is lost", detail)
        world.trace.count("sends ended by a delete", self.ended)


def _log(world: World, broker: str, topic_id: int, queue: int) -> dict[bytes, bytes]:
    storage = world.machines[broker].storage
    assert storage is not None
    content = storage.content("log").items()
    return {key: entry for key, entry in content if queue_of(key) == (topic_id, queue)}


def left_behind(world: World) -> list[str]:
    """Queues of deleted topics, each with a broker and a family of it that still holds some of it."""
    known = world.observer.names
    found: set[str] = set()
    for machine in world.nodes("broker"):
        assert machine.storage is not None
        for family in FAMILIES:
            # What is shorter is the broker's own, of no queue.
            content = machine.storage.content(family)
            queues = {queue_of(key) for key in content if len(key) >= len(queue_key(0, 0))}
            found |= {f"{machine.name} {family} {t}/{q}" for t, q in queues if t not in known}
    return sorted(found)
