"""Subscriptions of all types at work while faults strike, as a guest of a scenario.

Consumers come, leave, are killed, stop for longer than their sessions, lose their connections and
come back, all by the seed, while leaders change and disks lose what was not synced. The wire, the
dispatchers and the programs are each judged (`subscription_watch`, `subscription_model`, `subscription_ledger`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import pytest

from logboom.client.subscriptions.subscriber_state import SubscriberOptions
from logboom.nodes.subscriptions.key_ranges import Range
from logboom.wire.actor import Call
from logboom.wire.hashing import SLOTS
from logboom.wire.subscription_messages import Hashing, SubscriptionConfig, SubscriptionType
from tests.sim.cast.subscription_member import Membership, SubscriptionMember
from tests.sim.cast.wire_producer import WireProducer
from tests.sim.judges.history import History, Queue
from tests.sim.judges.subscription_ledger import SubscriptionLedger
from tests.sim.judges.subscription_watch import SubscriptionWatch
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

KINDS: Final[dict[str, tuple[SubscriptionType, str]]] = {
    "solo": ("exclusive", "pair"),
    "spare": ("failover", "safe"),
    "pool": ("shared", "safe"),
    "keyed": ("key_shared", "safe"),
    "brief": ("shared", "brief"),
}
"""Subscription → its type and topic."""
QUEUES: Final = {"safe": 3, "pair": 1, "brief": 1}
HASHINGS: Final[tuple[Hashing, ...]] = ("auto_split", "sticky", "consistent")
KEYS: Final = 9
PRODUCER: Final = "keys-1"
REST_S: Final = (0.1, 0.2, 0.4)
"""Between two keyed batches, on average; each seed has one of these."""
APART_S: Final = (0.4, 1.5, 3.5, 6.0)
"""Seconds that a consumer is stopped, or pauses; some are longer than its session."""
LAG_S: Final = (0.05, 2.5)


class KeyedProducer(WireProducer):
    """Its messages have keys."""

    def keys_of(self, values: Sequence[bytes]) -> list[bytes | None]:
        """A few keys, most batches have several; now and then none."""
        numbers = (int(value.partition(b"/")[2]) for value in values)
        return [b"key %d" % (n * n % KEYS) if n % 13 else None for n in numbers]


class Subscriptions:
    """Some subscriptions and their consumers."""

    def __init__(
        self, world: World, history: History, endpoints: list[str], rng: random.Random
    ) -> None:
        self._world = world
        self._history = history
        self._endpoints = endpoints
        self._rng = rng
        self._working = self._over = False
        self._sent = 0
        self._rest_s = rng.choice(REST_S)
        self._gap = rng.choice((0.4, 0.8, 1.5))
        """Seconds between what consumers do, on average."""
        self.ledger = SubscriptionLedger(history, world.trace)
        self._watch = SubscriptionWatch(world, self.ledger)
        self._members: dict[str, Membership] = {}
        self._cores: dict[str, SubscriptionMember] = {}
        """The process that a machine's consumer has now."""
        self._names = [name for name in KINDS if name == "keyed" or rng.random() < 0.6]
        for name in self._names:
            self._add(name)
        producer = KeyedProducer(PRODUCER, endpoints, random.Random(rng.random()), history)
        self._producer = producer
        world.add(PRODUCER, "client", {}, lambda: producer)

    # -- who there is -----------------------------------------------------------------------

    def _add(self, name: str) -> None:
        rng = self._rng
        kind, topic = KINDS[name]
        hashing: Hashing = rng.choice(HASHINGS) if kind == "key_shared" else "auto_split"
        config = SubscriptionConfig(
            kind=kind,
            hashing=hashing,
            ack_timeout_s=rng.choice((0.0, 0.0, 1.5)),
            most_unacked=rng.choice((4, 10, 50_000)),
            most_unacked_all=rng.choice((9, 200_000)),
            failover_delay_s=rng.choice((0.0, 0.3, 1.0)),
            look_ahead=rng.choice((15, 50_000)),
            session_ms=rng.choice((1_500, 3_000)),
        )
        window = rng.choice((3, 10, 40))
        consumers = rng.choice((2, 3, 4)) if kind != "exclusive" else 2
        spans = _shares(consumers) if hashing == "sticky" else [None] * consumers
        for number, span in enumerate(spans, 1):
            machine = f"{name}-{number}"
            options = SubscriberOptions(
                topic,
                name,
                machine,
                config,
                rng.choice((0, 0, 1)),
                None if span is None else (span,),
                "first",
                window,
            )
            of = self._members[machine] = Membership(machine, options)
            self._world.add(machine, "client", {}, partial(self._make, of)).idle = True

    def _make(self, of: Membership) -> SubscriptionMember:
        number = self._world.machines[of.machine].starts
        core = SubscriptionMember(
            of,
            f"{of.machine}.{number}",
            self._endpoints,
            random.Random(self._rng.random()),
            self.ledger,
            self._world.trace,
        )
        core.hurry = self._over
        self._cores[of.machine] = core
        return core

    def look_on(self, patch: pytest.MonkeyPatch) -> None:
        """Follow the dispatchers from now on."""
        self._watch.look_on(patch)

    # -- the guest --------------------------------------------------------------------------

    def begin(self) -> None:
        """Consumers come one after the other, and then their troubles."""
        self._working = True
        for machine in self._members:
            self._world.machines[machine].idle = False
            self._later(
                self._rng.choice((0.0, 0.3, 3.0)) * self._rng.random(),
                partial(self._world.boot, machine),
            )
        self._later(self._rng.expovariate(1 / self._gap) + 1.0, self._strike)
        self._produce()

    def rest(self) -> None:
        """Everybody comes back, stays, and catches up."""
        self._working, self._over = False, True
        for core in self._cores.values():
            core.hurry = True
        for machine in self._members:
            process = self._world.machines[machine].process
            if process is None:
                self._world.boot(machine)
                continue
            process.resume()
            process.deliver(Call(partial(self._cores[machine].pause, paused=False)))

    def settled(self) -> bool:
        """Everything is acknowledged and confirmed, and all permits are where they should be."""
        return not self._why()

    def why_not(self) -> str:
        """What `settled` waits for."""
        return f"subscriptions: {self._why()}"

    def _why(self) -> str:
        for name in self._names:
            topic = KINDS[name][1]
            for number in range(QUEUES[topic]):
                queue = Queue(topic, number)
                if why := self._why_of(name, queue) or self._why_unlike(name, queue):
                    return f"{name} {topic}/{number}: {why}"
            if missing := self.ledger.missing(name, topic):
                return f"{len(missing)} messages are not consumed by {name}: {missing[:5]}"
        return ""

    def _why_of(self, name: str, queue: Queue) -> str:
        leader = self._world.observer.leader(*queue)
        broker = self._world.broker(leader[0]) if leader is not None else None
        replica = broker.queues.by_name.get(queue) if broker is not None else None
        if broker is None or replica is None:
            return "no leader"
        served = broker.parts.subscriptions.served.get((replica.key, name))
        if served is None:
            return f"not served by {broker}"
        end = max(self._history.known_end(queue), replica.readable.offset)
        if left := served.dispatcher.acks.unacked(end):
            state = served.state(0.0)
            return f"{left} of {end} are not acknowledged at {leader}: {state}"
        for machine, core in self._cores.items():
            if core.options.subscription != name:
                continue
            place = core.subscriber.places.get(queue.number)
            consumer = served.dispatcher.consumers.get(machine)
            if consumer is None or place is None:
                if core.options.config.kind == "exclusive":
                    continue
                return f"{machine} is not attached"
            if place.session != consumer.session or not place.idle:
                return f"{machine} is not done: {place.session}, {consumer.session}, {place.done}"
            window = core.subscriber.window()
            if consumer.permits.left + place.freed != window:
                return f"{machine} has {consumer.permits.left}+{place.freed} of {window} permits"
        return ""

    def compare(self) -> None:
        """Everything is consumed, and every replica knows."""
        for name in self._names:
            topic = KINDS[name][1]
            self.ledger.compare(name, topic)
            for number in range(QUEUES[topic]):
                if unlike := self._why_unlike(name, Queue(topic, number)):
                    raise BrokenProperty("replicas have the same cursors", f"{name}: {unlike}")

    def _why_unlike(self, name: str, queue: Queue) -> str:
        """What replicas know of a subscription, if it is not the same."""
        known: dict[str, tuple[int, list[tuple[int, int]], dict[int, int]]] = {}
        for machine in self._world.nodes("broker"):
            broker = self._world.broker(machine.name)
            replica = broker.queues.by_name.get(queue) if broker is not None else None
            if replica is not None and name in replica.cursors.cursors:
                cursor = replica.cursors.cursors[name]
                spans = list(cursor.acks.spans())
                known[machine.name] = cursor.acks.floor, spans, cursor.counts
        return str(known) if len({repr(cursor) for cursor in known.values()}) != 1 else ""

    # -- what happens -----------------------------------------------------------------------

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.scheduler.after(seconds, action)

    def _produce(self) -> None:
        if not self._working:
            return
        rng = self._rng
        self._world.scheduler.after(rng.expovariate(1 / self._rest_s), self._produce)
        count = rng.choice((1, 2, 5, 12))
        values = [b"%s/%d" % (PRODUCER.encode(), n) for n in range(self._sent, self._sent + count)]
        self._sent += count
        queue = Queue("safe", rng.randrange(QUEUES["safe"]))
        process = self._world.machines[PRODUCER].process
        assert process is not None
        process.deliver(Call(partial(self._producer.send, queue, values)))

    def _strike(self) -> None:
        if not self._working:
            return
        self._world.scheduler.after(self._rng.expovariate(1 / self._gap), self._strike)
        machine = self._rng.choice(list(self._members))
        process = self._world.machines[machine].process
        if process is None or process.paused:
            return
        acts = (self._leave, self._kill, self._stop, self._pause, self._cut, self._lag)
        self._rng.choice(acts)(machine)

    def _leave(self, machine: str) -> None:
        """In good order; a new process comes soon."""
        process, core = self._world.machines[machine].process, self._cores[machine]
        if process is None or core.leaving:
            return
        self._world.trace.note(machine, "leaves its subscription")
        self._world.trace.count("consumers left")

        def gone() -> None:
            if self._world.machines[machine].process is process:
                process.kill()
                self._world.machines[machine].process = None
                self._come_back(machine)

        def left() -> None:
            self._world.scheduler.after(0.001, gone)

        process.deliver(Call(partial(core.leave, left)))

    def _kill(self, machine: str) -> None:
        self._world.kill(machine)
        self._world.trace.count("consumers killed")
        self._come_back(machine)

    def _come_back(self, machine: str) -> None:
        wait = self._rng.choice((0.1, 0.5, 2.0, 5.0)) if self._working else 0.1
        self._world.boot_later(machine, wait)

    def _stop(self, machine: str) -> None:
        process = self._world.machines[machine].process
        assert process is not None
        self._world.trace.note(machine, "is stopped for a while")
        self._world.trace.count("consumers stopped")
        process.pause()
        self._world.scheduler.after(self._rng.choice(APART_S), process.resume)

    def _pause(self, machine: str) -> None:
        """It takes no more, and says so."""
        process, core = self._world.machines[machine].process, self._cores[machine]
        assert process is not None
        self._world.trace.note(machine, "pauses")
        self._world.trace.count("consumers paused")
        process.deliver(Call(partial(core.pause, paused=True)))
        again = Call(partial(core.pause, paused=False))
        self._world.scheduler.after(self._rng.choice(APART_S), partial(process.deliver, again))

    def _cut(self, machine: str) -> None:
        """Its connections to a broker break."""
        broker = self._rng.choice(self._world.nodes("broker")).name
        broken = self._world.network.break_between(machine, broker)
        self._world.trace.note(machine, f"loses {broken} connections to {broker}")
        self._world.trace.count("consumers cut off", broken)

    def _lag(self, machine: str) -> None:
        """What it says to a broker, or hears of it, comes late."""
        broker = self._rng.choice(self._world.nodes("broker")).name
        way = (machine, broker) if self._rng.random() < 0.5 else (broker, machine)
        lags = self._world.network.lags
        lags[way] = self._rng.uniform(*LAG_S)
        self._world.trace.note("network", f"{way[0]} to {way[1]} takes {lags[way]:.1f} s longer")
        self._world.trace.count("consumers lagged")
        self._world.scheduler.after(self._rng.uniform(0.5, 4.0), partial(self._catch_up, way))

    def _catch_up(self, way: tuple[str, str]) -> None:
        self._world.network.lags.pop(way, None)


def _shares(consumers: int) -> list[Range]:
    """All slots, in as many ranges."""
    edges = [SLOTS * number // consumers for number in range(consumers + 1)]
    return [(first, behind - 1) for first, behind in pairwise(edges)]
