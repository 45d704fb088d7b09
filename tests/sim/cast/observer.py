"""The client through whose eyes the world sees the metadata; it is the cluster's operator too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.sim.cast.wire_client import WireClient
from tests.sim.judges.history import Queue
from tests.sim.world.moments import Moment
from tests.sim.world.trace import Trace


class Observer(WireClient):
    """Follows the metadata for the world, and counts what changes in it."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        rng: random.Random,
        trace: Trace,
        on_moment: Callable[[Moment, str], None],
    ) -> None:
        super().__init__(name, endpoints, rng)
        self._trace = trace
        self._on_moment = on_moment
        self._seen: dict[Queue, tuple[str | None, int, frozenset[str]]] = {}

    def changed(self, topics: Sequence[str]) -> None:
        """Compare queues with what they were."""
        for topic in topics:
            view = self.routes.topics.get(topic)
            for number, queue in enumerate(view.queues if view is not None else ()):
                now = (queue.leader, queue.leader_epoch, frozenset(queue.isr))
                before = self._seen.get(Queue(topic, number), (None, 0, now[2]))
                if now[1] > before[1]:
                    self._trace.count("queue elections", now[1] - before[1])
                    if queue.leader is not None:
                        self._on_moment("elected", queue.leader)
                if now[2] != before[2]:
                    self._trace.count("ISR changes")
                    if queue.leader is not None:
                        self._on_moment("isr changed", queue.leader)
                if now != before:
                    isr = ",".join(sorted(queue.isr))
                    what = f"{topic}/{number} led by {queue.leader} in {queue.leader_epoch}"
                    self._trace.note("metadata", f"{what}, ISR {isr}")
                self._seen[Queue(topic, number)] = now
