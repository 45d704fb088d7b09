"""What visitors sent and were told: what was acknowledged to them is there, whatever they may now."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from logboom.nodes.log.keys import queue_of
from tests.sim.judges.history import Queue, values_of
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    from tests.sim.world.world import World

LOST: Final = "what is acknowledged to a visitor is there"


class AccessLedger:
    """Messages of visitors by topic, and the offsets that they were acknowledged at."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent: dict[str, set[bytes]] = defaultdict(set)
        self._acked: dict[int, dict[int, bytes]] = defaultdict(dict)
        """Topic id → offset → value."""
        self._ends: dict[str, int] = defaultdict(int)

    def send(self, topic: str, value: bytes) -> None:
        """A visitor sends a value to queue 0 of a topic."""
        self._sent[topic].add(value)

    def ack(self, topic_id: int, offset: int, value: bytes) -> None:
        """A visitor was told that its value is stored."""
        other = self._acked[topic_id].setdefault(offset, value)
        if other != value:
            raise BrokenProperty(
                "one value per offset", f"{topic_id} {offset}: {other!r}, {value!r}"
            )
        self._world.trace.count("acked to visitors")
        topic = self._world.observer.names.get(topic_id)
        if topic is not None:
            self._ends[topic] = max(self._ends[topic], offset + 1)

    def end(self, topic: str) -> int:
        """An offset near the end of a topic."""
        return self._ends[topic]

    def was_sent(self, topic: str, value: bytes) -> bool:
        """Whether somebody sent this value to this topic."""
        return value in self._sent[topic]

    def read(self) -> None:
        """A visitor was given a message."""
        self._world.trace.count("read by visitors")

    def refused(self, code: str) -> None:
        """A visitor was told why not."""
        self._world.trace.count(f"visitors told {code}")

    def compare(self) -> None:
        """Hold the logs of all topics that are still there against what was acknowledged."""
        state = self._world.newest_state()
        assert state is not None
        for topic in state.topics.values():
            for name in topic.queues[0].standing.isr:
                storage = self._world.machines[name].storage
                assert storage is not None
                log = {
                    key: entry
                    for key, entry in storage.content("log").items()
                    if queue_of(key) == (topic.id, 0)
                }
                self._compare(name, topic.id, *values_of(Queue(topic.name, 0), log))

    def _compare(self, broker: str, topic_id: int, start: int, values: list[bytes]) -> None:
        for offset, value in self._acked[topic_id].items():
            place = offset - start
            found = values[place] if 0 <= place < len(values) else None
            if found != value:
                detail = (
                    f"{broker} has at offset {offset} of topic {topic_id}: {found!r}, not {value!r}"
                )
                raise BrokenProperty(LOST, detail)
