"""Messages that wait for a time, some of them recalled, in the queues that all others use.

Each that was acknowledged is released once, whatever crashes: not before its time by the clock of
the leader, and soon after it once all is healed. What was recalled is never released.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from logboom.nodes.log.keys import queue_of
from logboom.wire.actor import Call
from logboom.wire.batch import control_body, open_batch, peek, validate_batch
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.head import Attribute, ControlKind
from logboom.wire.messages import AnyMessage, Produced
from logboom.wire.parking import Recall, Recalled, parked_body
from tests.sim.cast.wire_producer import WireProducer
from tests.sim.judges.history import History, Queue, values_of
from tests.sim.world.scheduler import EPOCH_MS
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

DELAYS_S: Final = (0.0, 0.2, 1.0, 3.0, 10.0, 25.0)
"""A delay is drawn up to one of these."""
REST_S: Final = (0.1, 0.3, 0.6)
"""Between two sends, on average; each seed has one of these."""
RECALLED: Final = 0.2
"""Share of what waits that is recalled."""
RETRY_S: Final = 0.3
ANSWER_S: Final = 2.0
CALM_S: Final = 12.0
"""After healing, until lateness is judged: brokers are back, and leaders are elected."""
BACK_S: Final = 6.0
"""After healing, until readers have what was released by the wrong clocks before it."""
LATE_S: Final = 3.0
"""Then nothing is read later after its time."""


class DelayedProducer(WireProducer):
    """Sends single messages, most of them with a delay, and recalls some."""

    def __init__(
        self, name: str, endpoints: Sequence[str], rng: random.Random, history: History
    ) -> None:
        super().__init__(name, endpoints, rng, history)
        self._kept = history
        self.recalls: dict[bytes, bool | None] = {}
        """Recalled values: done, released before, or no answer yet."""

    def stored(self, queue: Queue, values: list[bytes], answer: Produced) -> None:
        """A batch was acknowledged: some of those that wait are recalled."""
        if answer.side < 0:
            super().stored(queue, values, answer)
            return
        for value in values:
            self._kept.park(value, queue)
        if self.rng.random() < RECALLED:
            self.recalls.update(dict.fromkeys(values))
            recall = partial(self._recall, queue, values, answer)
            self.later(self.rng.choice((0.0, 0.5, 4.0)) * self.rng.random(), recall)

    def _recall(self, queue: Queue, values: list[bytes], place: Produced) -> None:
        leader = self.routes.leader(*queue)
        again = partial(self._recall, queue, values, place)
        if leader is None:
            self.later(RETRY_S, again)
            return

        def answered(
            message: AnyMessage | None, _batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if isinstance(message, Recalled):
                self.recalls.update(dict.fromkeys(values, message.done))
                return
            assert error is not None, message
            if not error.retryable:
                raise BrokenProperty("recalls are answered", f"{queue} {values}: {error}")
            self.later(RETRY_S, again)

        message = Recall(0, int(ANSWER_S * 1000), *queue, place.base_offset, place.side)
        self.request(leader[1], message, answered, ANSWER_S)


class Delays:
    """A guest of a run: one producer, and what is held against all."""

    def __init__(
        self,
        world: World,
        history: History,
        endpoints: Sequence[str],
        queues: Sequence[Queue],
        rng: random.Random,
    ) -> None:
        self._world = world
        self._history = history
        self._queues = list(queues)
        self._rng = rng
        self._rest_s = rng.choice(REST_S)
        self._working = False
        self._count = 0
        self._healed_at = 0.0
        self._carried: set[tuple[tuple[int, int], tuple[int, int]]] = set()
        producer = DelayedProducer("late-1", endpoints, random.Random(rng.random()), history)
        self._producer = producer
        world.add("late-1", "client", {}, lambda: producer)

    def begin(self) -> None:
        """Start to send."""
        self._working = True
        self._send()

    def rest(self) -> None:
        """Send no more. Clocks are set right: by a leader's whose clock is an hour behind, all
        that waits would wait for an hour."""
        self._working = False
        self._healed_at = self._world.scheduler.now
        self._look_for_carried()
        for machine in self._world.machines.values():
            machine.clock.wall_ahead_ms = 0
            if machine.process is not None:
                machine.process.wake()

    def _send(self) -> None:
        if not self._working:
            return
        world, rng = self._world, self._rng
        world.scheduler.after(rng.expovariate(1 / self._rest_s), self._send)
        queue = rng.choice(self._queues)
        count = rng.randint(1, 2)
        values = [f"late-1/{n}".encode() for n in range(self._count, self._count + count)]
        self._count += count
        process = world.machines["late-1"].process
        assert process is not None
        if rng.random() < 0.2:
            process.deliver(Call(partial(self._producer.send, queue, values)))
            return
        delay_s = rng.uniform(0, rng.choice(DELAYS_S))
        due_ms = EPOCH_MS + round((world.scheduler.now + delay_s) * 1000)
        self._history.waits.update(dict.fromkeys(values, due_ms))
        process.deliver(Call(partial(self._producer.send, queue, values, due_ms)))

    # -- what must come true --------------------------------------------------------------------

    def _expected(self) -> list[bytes]:
        """What waits, was acknowledged and not recalled, of queues that keep everything."""
        history = self._history
        return [
            value
            for value in history.waits
            if value in history.acked
            and history.acked[value][0].topic not in history.kept_bytes
            and not self._producer.recalls.get(value)
        ]

    def _unread(self) -> list[bytes]:
        return [value for value in self._expected() if value not in self._history.released]

    def _parked(self) -> list[str]:
        """Brokers with parked rows of a topic, each as `broker topic id/queue`.

        A replica that was moved away keeps its rows until it is deleted.
        """
        found = set()
        observer = self._world.observer
        for machine in self._world.nodes("broker"):
            assert machine.storage is not None
            for key in machine.storage.content("parked"):
                topic_id, number = queue_of(key)
                name = observer.names.get(topic_id, "")
                if not (key[8:9] == b"d" and Queue(name, number) in self._queues):
                    continue
                if machine.name in observer.topics[name].queues[number].replicas:
                    found.add(f"{machine.name} {name}/{number}")
        return sorted(found)

    def settled(self) -> bool:
        """Whether all was released and every recall answered."""
        return not (self._unread() or None in self._producer.recalls.values() or self._parked())

    def why_not(self) -> str:
        """What `settled` waits for."""
        asked = [value for value, done in self._producer.recalls.items() if done is None]
        return f"waiting {self._unread()}, recalls {asked}, parked at {self._parked()}"

    def compare(self) -> None:
        """None early, none late once all is calm, none lost, none after its recall.

        Before, leaders' clocks were wrong by as much as an hour.
        """
        for value, read_at in self._history.released.items():
            due_at = (self._history.waits[value] - EPOCH_MS) / 1000
            if due_at > self._healed_at + CALM_S and read_at > self._healed_at + BACK_S:
                self._world.trace.count("released on time")
                if not due_at - 0.1 <= read_at <= due_at + LATE_S:
                    detail = f"{value!r} due at {due_at:.3f} was read at {read_at:.3f}"
                    raise BrokenProperty("what waits is released at its time", detail)
        recalls = self._producer.recalls
        for queue in self._queues:
            if queue.topic not in self._history.kept_bytes:
                self._compare_queue(queue)
            elif not self._world.trace.totals["readers behind retention"]:
                self._all_seen(queue)
        self._world.trace.count("carried", len(self._carried))
        self._world.trace.count("released", len(self._history.released))
        self._world.trace.count("recalled", sum(bool(done) for done in recalls.values()))
        self._world.trace.count("recalled too late", list(recalls.values()).count(False))

    def _all_seen(self, queue: Queue) -> None:
        """Where retention removes messages, the readers have seen them all."""
        for value, (where, _) in self._history.acked.items():
            recalled = self._producer.recalls.get(value)
            waited = where == queue and value in self._history.waits and not recalled
            if waited and value not in self._history.released:
                raise BrokenProperty("what waits is not lost", f"{queue} {value!r}")

    def _look_for_carried(self) -> None:
        """Note what was carried to its log's end, as long as it is there."""
        for machine in self._world.nodes("broker"):
            assert machine.storage is not None
            for key, entry in machine.storage.content("log").items():
                head = peek(entry)
                if head.kind != ControlKind.PARKED:
                    continue
                parked = parked_body(control_body(entry, head))
                if parked.carried is not None:
                    self._carried.add((queue_of(key), parked.carried[1]))

    def _compare_queue(self, queue: Queue) -> None:
        topic = self._world.observer.topics[queue.topic]
        storage = self._world.machines[topic.queues[queue.number].replicas[0]].storage
        assert storage is not None
        log = {
            key: entry
            for key, entry in storage.content("log").items()
            if queue_of(key) == (topic.id, queue.number)
        }
        stored = set(values_of(queue, log)[1])
        for value, (where, _) in self._history.acked.items():
            if where != queue or value not in self._history.waits:
                continue
            done = self._producer.recalls.get(value)
            if done and value in stored:
                raise BrokenProperty("what was recalled is not delivered", f"{queue} {value!r}")
            if not done and value not in stored:
                raise BrokenProperty("what waits is not lost", f"{queue} {value!r}")
        for entry in log.values():
            head = validate_batch(entry)
            if not head.has(Attribute.RELEASED):
                continue
            for content in open_batch(entry, head).values():
                due_ms = self._history.waits[content or b""]
                if head.append_time_ms < due_ms:
                    detail = f"{queue} {content!r}: {head.append_time_ms} before {due_ms}"
                    raise BrokenProperty("nothing is released before its time", detail)
