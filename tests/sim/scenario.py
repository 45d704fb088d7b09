"""One run: bring a cluster up, work while faults strike, heal, and hold it to its promises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeVar

import pytest

from logboom.nodes.log.keys import queue_of
from logboom.wire.actor import Call
from logboom.wire.base import WireMessage
from logboom.wire.commands import CommandResult, CreateTopic
from logboom.wire.errors import LogboomError
from logboom.wire.hello import Identity
from logboom.wire.messages import Acks, AnyMessage
from logboom.wire.view import TopicConfig
from tests.sim.cast.api_client import ApiClient
from tests.sim.cast.claimer import Claimer
from tests.sim.cast.observer import Observer
from tests.sim.cast.operators import Operators
from tests.sim.cast.wire_client import WireClient
from tests.sim.cast.wire_producer import WireProducer
from tests.sim.cast.wire_reader import WireReader
from tests.sim.faults.weather import Faults
from tests.sim.judges.history import History, Queue
from tests.sim.judges.isr_watch import IsrWatch
from tests.sim.judges.looks import Looks
from tests.sim.judges.lookups import judge_lookups
from tests.sim.judges.verdict import Failed, Outcome
from tests.sim.world.garbage import collected_between_runs
from tests.sim.world.limits import Limits
from tests.sim.world.moments import Moment
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import CLUSTER_KEY, World

UP_S: Final = 15.0
"""A fresh cluster has its topics and leaders within this."""
FAULTS_S: Final = 27.5
SINGLE_AT_S: Final = 3.0
"""A single fault comes so many seconds after producers began."""
HEALED_S: Final = 30.0
"""After healing, all that was sent is acknowledged, read and replicated within this."""
RATES: Final = (4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 8, 8, 12, 20, 40)
"""Batches per second: most seeds send few, since what befalls them is what costs and what counts."""
LEAST_SENT: Final = 220
"""Values that every seed sends with acks=all at least."""
KEPT_BYTES: Final = 3_000
FOR_EVER: Final = TopicConfig(retention_ms=-1)
BRIEFLY: Final = TopicConfig(retention_ms=-1, retention_bytes=KEPT_BYTES)
TOPICS: Final = {
    "safe": (3, 3, FOR_EVER),
    "pair": (1, 2, FOR_EVER),
    "alone": (1, 1, FOR_EVER),
    "brief": (1, 3, BRIEFLY),
}
"""Topic → (queues, replicas, settings)."""
QUEUES: Final = [Queue(t, n) for t, (queues, _, _) in TOPICS.items() for n in range(queues)]


class Guest(Protocol):
    """Somebody who takes part in a run beside producers and readers, e.g. operators."""

    def begin(self) -> None:
        """Act two begins: producers and readers start, and faults."""

    def rest(self) -> None:
        """Begin nothing new."""

    def settled(self) -> bool:
        """Whether all that was begun has ended; asked after healing."""

    def why_not(self) -> str:
        """What `settled` waits for."""

    def compare(self) -> None:
        """Hold the run to this guest's promises; raises `BrokenProperty`."""


Client = TypeVar("Client", WireProducer, WireReader, ApiClient, Observer, Claimer)


class Scenario:
    """The acts of one run."""

    module: ClassVar = "tests.sim.run"
    """Whose command line runs a seed of this scenario."""
    brokers: ClassVar = (3, 3, 3, 4, 5)
    """Numbers of brokers; each seed has one of these."""

    def __init__(self, seed: int, *, rot: bool = False, single: str = "") -> None:
        """`rot`: the disk of one broker flips bits, and all brokers scrub often. `single`: this one
        fault comes, once, and no other."""
        self.seed = seed
        self._single = single
        self._rot = rot
        self.options = " --rot" if rot else f' --single "{single}"' if single else ""
        shape = random.Random(f"shape of {seed}")
        follower_reads = shape.random() < 0.3
        self.limits = Limits(seed)
        self.world = world = World(
            seed,
            name_servers=shape.choice((3, 3, 3, 5)),
            brokers=shape.choice(self.brokers),
            scrub_every_s=1.0 if rot else 3_600.0,
            follower_reads=follower_reads,
            limits=self.limits,
            name_server_settings=lambda name: self.name_server_settings(name),
            broker_settings=self.broker_settings(),
        )
        self.history = History(world.trace, lambda: world.scheduler.now)
        self.history.kept_bytes["brief"] = KEPT_BYTES
        self.rng = random.Random(world.rng.random())
        self.faults = Faults(world, random.Random(world.rng.random()), rot=rot)
        self.looks = Looks(world)
        self._isr_watch = IsrWatch(world)
        self.history.on_ack = self.looks.acked
        self.looks.starts.update({q: 0 for q in QUEUES if q.topic in self.history.kept_bytes})
        self.history.starts = self.looks.starts
        self.guests: list[Guest] = []
        self._endpoints = [m.listeners["main"] for m in world.nodes()]
        self._sent: Counter[str] = Counter()
        self._rate = self.rng.choice(RATES)
        """Batches sent per second, all together."""
        self._working = False
        self._created: dict[str, CommandResult] = {}
        self._askers: dict[str, WireClient] = {}
        """Clients that only ask what they are told to ask."""
        watch = partial(Observer, trace=world.trace, on_moment=self._moment)
        self.observer = self._client("observer", watch)
        world.observer = self.observer.routes
        world.operate = partial(self._operate, "operator", CLUSTER_KEY)
        world.intrude = partial(self._operate, "stranger", b"")
        self.producers: list[WireProducer | ApiClient] = [
            self._client("wire-1", partial(WireProducer, history=self.history)),
            self._client("api-1", partial(ApiClient, history=self.history, queues=QUEUES)),
        ]
        if shape.random() < 0.3:
            self.producers.append(
                self._client("wire-2", partial(WireProducer, history=self.history))
            )
        if shape.random() < 0.5:
            self._add_loose(shape.choice(("none", "leader")))
        self._readers = ["api-1"]
        self._anywhere = follower_reads
        if shape.random() < 0.6:
            rng = random.Random(world.rng.random())
            self.guests.append(Operators(world, self._endpoints, rng))

    def _add_loose(self, acks: Acks) -> None:
        make = partial(ApiClient, history=self.history, queues=QUEUES, acks=acks)
        self.producers.append(self._client("loose-1", make))
        self.history.loose[b"loose-1"] = acks

    def _moment(self, moment: Moment, who: str) -> None:
        self.world.on_moment(moment, who)

    def _operate(
        self,
        name: str,
        cluster_key: bytes,
        message: WireMessage,
        answered: Callable[[AnyMessage | None, LogboomError | None], None],
    ) -> None:
        client = self._askers.get(name)
        if client is None:
            # Only now, and from a seed of its own: a run in which nobody asks goes as ever.
            client = WireClient(name, self._endpoints, random.Random(f"{name} of {self.seed}"))
            client.identity = Identity(name, cluster_key=cluster_key)
            self._askers[name] = client
            self.world.add(name, "client", {}, lambda: client)
            self.world.start(name)
        self._call(name, partial(client.operate, message, answered))

    def _client(self, name: str, make: Callable[[str, list[str], random.Random], Client]) -> Client:
        rng = random.Random(self.world.rng.random())
        with self.limits.hold():
            core = make(name, self._endpoints, rng)
        self.world.add(name, "client", {}, lambda: core)
        return core

    def name_server_settings(self, _name: str) -> Mapping[str, Any]:
        """What else stands in the configuration of a name server that starts."""
        return {}

    def broker_settings(self) -> Mapping[str, Any]:
        """What else stands in the configuration of the brokers."""
        return {}

    @property
    def again(self) -> str:
        """The command that replays this run."""
        return f"python -m {self.module} --seed {self.seed}{self.options}"

    def run(self) -> Outcome:
        """All acts; raises `Failed`."""
        try:
            with (
                collected_between_runs(),
                self.limits.hold(),
                pytest.MonkeyPatch.context() as patch,
                self.world.complaints,
            ):
                self._isr_watch.look_on(patch)
                self.world.trace.note("world", f"limits: {self.limits}")
                self.come_up()
                self.work()
                self.heal()
                self.compare()
            self.world.complaints.judge()
        # Whatever an act raises, the seed and the trace belong to it.
        except Exception as error:
            raise Failed(self.seed, self.again, error, self.world.trace) from error
        trace = self.world.trace
        seconds = self.world.scheduler.now
        slowest = self.history.slowest
        return Outcome(self.seed, seconds, trace.digest(), trace.totals, trace.events, slowest)

    # -- act one ----------------------------------------------------------------------------

    def come_up(self) -> None:
        """Start all machines at about the same time, and create the topics."""
        world = self.world
        for machine in list(world.machines.values()):
            world.scheduler.after(self.rng.uniform(0, 0.3), partial(world.boot, machine.name))
        world.scheduler.after(0.5, self._create_topics)
        self._until("a fresh cluster comes up", UP_S, self._led)

    def _create_topics(self) -> None:
        for name, (queues, replicas, config) in TOPICS.items():
            command = CreateTopic(name, queues, replicas, config, 1)
            call = partial(self._create, name, command)
            self._call("observer", call)

    def _create(self, name: str, command: CreateTopic) -> None:
        def done(result: CommandResult) -> None:
            self._created[name] = result
            if result.code == "TOO_FEW_BROKERS":
                self.observer.later(0.3, lambda: self._create(name, command))
            elif result.code:
                raise BrokenProperty("topics are created", f"{name}: {result}")

        self.observer.propose(command, done)

    def _call(self, name: str, action: Callable[[], None]) -> None:
        process = self.world.machines[name].process
        if process is not None:
            process.deliver(Call(action))

    def _led(self) -> bool:
        topics = self.observer.routes.topics
        return TOPICS.keys() <= topics.keys() and all(
            queue.leader is not None for topic in topics.values() for queue in topic.queues
        )

    # -- act two ----------------------------------------------------------------------------

    def work(self) -> None:
        """Produce and read while faults strike."""
        world = self.world
        self._start_reader("reader-1", anywhere=self._anywhere)
        self._working = True
        self._produce()
        for guest in self.guests:
            guest.begin()
        if self._single:
            self.faults.once(self._single, SINGLE_AT_S)
        else:
            self.faults.begin()
        self.looks.begin()
        world.scheduler.run(world.scheduler.now + FAULTS_S)

    def _start_reader(self, name: str, *, anywhere: bool = False) -> None:
        make = partial(WireReader, history=self.history, queues=QUEUES, anywhere=anywhere)
        self._client(name, make)
        self._readers.append(name)
        self.world.start(name)

    def _produce(self) -> None:
        if not self._working:
            return
        producer = self.rng.choice(self.producers)
        queue = self.rng.choice(QUEUES)
        first = self._sent[producer.name]
        self._sent[producer.name] += (count := self.rng.randint(1, 6))
        values = [f"{producer.name}/{n}".encode() for n in range(first, first + count)]
        self._call(producer.name, partial(producer.send, queue, values))
        self.world.scheduler.after(self.rng.expovariate(self._rate), self._produce)

    # -- act three --------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything back; what was asked must now come true."""
        world = self.world
        self.faults.end()
        world.scheduler.after(2.0, self._rest)
        world.scheduler.run(world.scheduler.now + 2.5)
        for guest in self.guests:
            guest.rest()
        self._until(
            "after healing everything is acknowledged",
            HEALED_S,
            lambda: not self._working and not self.history.unanswered(),
        )
        if self.history.failed:
            raise BrokenProperty("retries succeed", str(self.history.failed))
        self._start_reader("reader-2")
        self._until("everything is read", HEALED_S, self._all_read)
        self._until("what operators began has ended", HEALED_S, self._settled)
        self._until("every replica is in sync again", HEALED_S, self._in_sync)
        self._replace_idle_disk()
        self._until("name servers become alike", HEALED_S, self.world.compare_name_servers)
        # Last: a moment later a leader's retention may have removed what its followers still hold.
        self._until("replicas become alike", HEALED_S, self._alike)
        self.world.trace.count("healed")

    def _replace_idle_disk(self) -> None:
        """In every other run a broker gets an empty disk while nobody sends anything: what it lacks
        is old, and must come all the same."""
        dice = random.Random(f"idle disk of {self.seed}")
        topics = self.observer.routes.topics.values()
        queues = [queue for topic in topics for queue in topic.queues]
        only = {queue.replicas[0] for queue in queues if len(queue.replicas) == 1}
        held = {name for queue in queues for name in queue.replicas} - only
        if self._rot:
            # Another's copies may be the only ones without a flipped bit.
            held &= {self.world.bad_disk}
        if self._single or not held or dice.random() < 0.5:
            return
        world, name = self.world, dice.choice(sorted(held))
        before = self.observer.routes.brokers[name].instance_epoch
        world.kill(name)
        world.replace_storage(world.machines[name])
        world.boot_later(name, dice.uniform(0.1, 1.0))
        self._until(
            "a broker with an empty disk registers",
            UP_S,
            lambda: self.observer.routes.brokers[name].instance_epoch != before,
        )
        self._until("an empty disk is filled though nothing is sent", HEALED_S, self._in_sync)
        world.trace.count("idle disks replaced")

    def _rest(self) -> None:
        if sum(n for name, n in self._sent.items() if name != "loose-1") < LEAST_SENT:
            self.world.scheduler.after(0.2, self._rest)
        else:
            self._working = False

    def _settled(self) -> bool:
        return self.faults.settled() and all(guest.settled() for guest in self.guests)

    def _all_read(self) -> bool:
        ends = {queue: self.history.known_end(queue) for queue in QUEUES}
        return all(
            self.history.place(reader, queue) >= ends[queue]
            for reader in self._readers
            for queue in QUEUES
        )

    def _in_sync(self) -> bool:
        return self._led() and all(
            set(queue.isr) == set(queue.replicas)
            for topic in self.observer.routes.topics.values()
            for queue in topic.queues
        )

    def _alike(self) -> bool:
        # A bit that flipped lately is found by the next pass of the scrub: that is waited for too.
        for replicas in (self._logs(queue).values() for queue in QUEUES):
            if len({tuple(log.items() if self._rot else log) for log in replicas}) > 1:
                return False
        return True

    def _until(self, promise: str, seconds: float, done: Callable[[], bool]) -> None:
        """Run in steps until `done`."""
        scheduler = self.world.scheduler
        end = scheduler.now + seconds
        while not done():
            if scheduler.now >= end:
                raise BrokenProperty(promise, f"not within {seconds} s: {self._why_not()}")
            scheduler.run(scheduler.now + 0.1)
        self.world.trace.note("world", f"{promise} ({seconds - end + scheduler.now:.1f} s)")

    def _why_not(self) -> str:
        waiting = Counter(str(self.history.sent[value]) for value in self.history.unanswered())
        places = {
            f"{reader} {queue}": self.history.place(reader, queue)
            for reader in self._readers
            for queue in QUEUES
            if self.history.place(reader, queue) < self.history.known_end(queue)
        }
        queues = {
            f"{name}/{n}": (q.leader, q.leader_epoch, q.isr, q.eligible)
            for name, topic in self.observer.routes.topics.items()
            for n, q in enumerate(topic.queues)
        }
        return (
            f"unanswered {dict(waiting)}, unread {places}, raft leader "
            f"{self.observer.routes.raft_leader}, topics {list(self._created)}, queues {queues}"
            + "".join(f", {guest.why_not()}" for guest in self.guests)
        )

    # -- the end ----------------------------------------------------------------------------

    def compare(self) -> None:
        """Every replica against the others and against all that was seen."""
        for queue in QUEUES:
            self.history.compare(queue, self._logs(queue))
        judge_lookups(self.world)
        for guest in self.guests:
            guest.compare()
        self.world.trace.count("compared")

    def _logs(self, queue: Queue) -> dict[str, dict[bytes, bytes]]:
        """Log key → entry, for each replica of a queue."""
        topic = self.observer.routes.topics[queue.topic]
        logs = {}
        for name in topic.queues[queue.number].replicas:
            storage = self.world.machines[name].storage
            assert storage is not None
            logs[name] = {
                key: entry
                for key, entry in storage.content("log").items()
                if queue_of(key) == (topic.id, queue.number)
            }
        return logs
