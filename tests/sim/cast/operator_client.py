"""One operator: topics come, change and go at its wish, and it writes down what it is told.

It asks one thing at a time of the name servers, with the same request number until it is
answered. Some requests come twice, and sometimes it loses patience, so that nobody knows what became
of its request. Reads go through the log (a barrier).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from logboom.wire.actor import Effects, Event, Instant
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterIsr,
    AlterTopic,
    AnyCommand,
    Barrier,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    IsrChange,
)
from logboom.wire.hello import Identity
from logboom.wire.transactions import Decide, OpenApplication
from logboom.wire.view import TopicConfig, TopicView
from tests.sim.cast.passing_topics import COMPACTED, LOADED
from tests.sim.cast.wire_client import WireClient
from tests.sim.judges.operations import Operations

UNLOADED: Final = ("shared-1", "shared-2")
"""Topics without messages: their ISR may be set by anybody, and nothing is lost by it."""
REST_S: Final = 0.5
"""An operator's mean rest between two operations."""
HASTY: Final = 0.15
"""Part of the operations that are asked twice, the second time as if the network had been slow."""
IMPATIENT: Final = 0.07
"""Part that is given up: more would make judging harder and learn no more."""
SETTINGS: Final = 1_000_000_000
"""Each alteration sets a `retention_bytes` of its own, from here on: so reads tell which it was."""
WEIGHTS: Final = {
    "create": 6,
    "delete": 3,
    "alter": 4,
    "read": 7,
    "allocate": 1,
    "decide": 4,
    "open": 1,
}
OF_NODES: Final = {**WEIGHTS, "cas": 8}
"""What may be asked with the cluster key only is asked too."""
APPS: Final = ("billing", "shipping")
"""Applications whose transactions are decided; they have nothing parked."""
_Told: TypeAlias = Callable[[CommandResult], dict[str, Any]]


class Operator(WireClient):
    """Asks, waits, rests, and asks again."""

    def __init__(
        self,
        name: str,
        endpoints: Sequence[str],
        rng: random.Random,
        history: Operations,
        true_time: Callable[[], float],
        cluster_key: bytes = b"",
    ) -> None:
        """With the cluster key it is as a broker to the others, else a client."""
        super().__init__(name, endpoints, rng)
        if cluster_key:
            self.identity = Identity(name, "broker", cluster_key=cluster_key)
        self._weights = OF_NODES if cluster_key else WEIGHTS
        self._history = history
        self._true_time = true_time
        self._working = False
        self._lives = 0
        """Requests given up: the rest is asked under another process's name."""
        self._asking: int | None = None
        """Number of the proposal that is to be answered."""
        self._behind: tuple[int, str] | None = None
        """A read waits for this version, of this topic."""
        self._applications = dict.fromkeys(APPS, (-1, 0))
        """(producer epoch, a sequence near the last committed one), as far as known here."""
        self._settings = SETTINGS * (1 + int(name.rpartition("-")[2]))

    def start(self) -> None:
        """Begin; called through a `Call`."""
        self._working = True
        self._rest()

    def stop(self) -> None:
        """Begin nothing new."""
        self._working = False

    def handle(self, events: Sequence[Event], now: Instant) -> Effects:
        """One turn; a read ends as soon as the metadata here is new enough."""
        out = super().handle(events, now)
        if self._behind is not None and self.routes.version >= self._behind[0]:
            topic, self._behind = self.routes.topics.get(self._behind[1]), None
            self._answer(self._shown(topic))
        return out

    # -- one operation ----------------------------------------------------------------------

    @property
    def _process(self) -> str:
        return f"{self.name}.{self._lives}"

    def _rest(self) -> None:
        if self._working:
            self.later(self.rng.expovariate(1 / REST_S), self._ask)

    def _ask(self) -> None:
        if not self._working:
            return
        match self.rng.choices(list(self._weights), list(self._weights.values()))[0]:
            case "create":
                self._create()
            case "delete":
                name = self._name()
                self._propose("delete", name, {}, DeleteTopic(name, self.now.wall_ms), _told)
            case "alter":
                self._alter()
            case "read":
                self._read()
            case "cas":
                self._cas()
            case "open":
                app_id = self.rng.choice(APPS)
                opened = partial(self._opened, app_id)
                self._propose("open", app_id, {}, OpenApplication(app_id, self.now.wall_ms), opened)
            case "decide":
                self._decide()
            case _:
                count = self.rng.randint(1, 5)
                command = AllocateProducerIds(count)
                self._propose("allocate", "producer ids", {"count": count}, command, _told_first)

    def _name(self) -> str:
        return self.rng.choice(LOADED + UNLOADED)

    def _setting(self) -> int:
        self._settings += 1
        return self._settings

    def _create(self) -> None:
        name, queues, setting = self._name(), self.rng.randint(1, 2), self._setting()
        replicas = 2 if name in LOADED and self.rng.random() < 0.4 else 3
        command = CreateTopic(name, queues, replicas, _config(name, setting), self.now.wall_ms)
        value = {"queues": queues, "setting": setting}
        self._propose("create", name, value, command, _told_id)

    def _alter(self) -> None:
        name = self._name()
        queues = self.rng.choice((None, None, 1, 2, 3))
        setting = self._setting() if queues is None or self.rng.random() < 0.5 else None
        config = None if setting is None else _config(name, setting)
        command = AlterTopic(name, queues, config, self.now.wall_ms)
        self._propose("alter", name, {"queues": queues, "setting": setting}, command, _told)

    def _opened(self, app_id: str, result: CommandResult) -> dict[str, Any]:
        told = told_of_opening(result)
        self._applications[app_id] = (told["epoch"], told["committed"] + 1)
        return told

    def _decide(self) -> None:
        """Commit or abort one of few attempts, with the epoch that we were given, or without."""
        app_id = self.rng.choice(APPS)
        epoch, near = self._applications[app_id]
        value: dict[str, Any] = {
            "sequence": max(0, near + self.rng.randint(-1, 1)),
            "attempt": self.rng.randint(1, 2),
            "commit": self.rng.random() < 0.4,
            "epoch": self.rng.choice((-1, epoch)),
        }
        command = Decide(app_id, **value, parked=[], consumed=[], time_ms=self.now.wall_ms)

        def decided(result: CommandResult) -> dict[str, Any]:
            told = told_of_decision(result)
            if told["outcome"] == "commit":
                self._applications[app_id] = (epoch, max(near, value["sequence"] + 1))
            return told

        self._propose("decide", app_id, value, command, decided)

    def _cas(self) -> None:
        """Set the ISR of a queue, as its leader would, by what is known here of it."""
        known = [self.routes.topics[name] for name in UNLOADED if name in self.routes.topics]
        if not known:
            self._read()
            return
        topic = self.rng.choice(known)
        number = self.rng.randrange(len(topic.queues))
        queue = topic.queues[number]
        leader = self.routes.brokers.get(queue.leader or "")
        epochs = {b.id: b.instance_epoch for b in self.routes.brokers.values()}
        others = [name for name in queue.replicas if name != queue.leader and name in epochs]
        if leader is None or not others:
            self._read()
            return
        isr = sorted([leader.id, *self.rng.sample(others, self.rng.randint(1, len(others)))])
        members = [(name, epochs[name]) for name in isr]
        change = IsrChange(topic.id, number, queue.leader_epoch, queue.version, members)
        command = AlterIsr(leader.id, leader.instance_epoch, [change], self.now.wall_ms)
        value = {
            "expected": queue.version,
            "epoch": queue.leader_epoch,
            "before": sorted(queue.isr),
            "isr": isr,
        }
        self._propose("cas", f"{topic.id}/{number}", value, command, _told_change)

    def _read(self) -> None:
        name = self._name()
        self._begin("read", name, {})
        self._barrier(lambda version: self._look(version, name))

    def _barrier(self, then: Callable[[int], None]) -> None:
        """What is of this version, or newer, was true at some time since we asked."""
        self._submit(Barrier(), lambda result: then(result.version))

    def _look(self, version: int, topic: str) -> None:
        # The answer is looked for at the end of this turn, and of each that follows.
        self._behind = (version, topic)

    def _shown(self, topic: TopicView | None) -> dict[str, Any]:
        shown: dict[str, Any] = {"version": self.routes.version, "code": "", "id": None}
        if topic is not None:
            shown["id"] = topic.id
            shown["queues"] = len(topic.queues)
            shown["setting"] = topic.config.retention_bytes
            shown["isr"] = [(q.version, q.leader_epoch, sorted(q.isr)) for q in topic.queues]
        return shown

    # -- asking and being answered ----------------------------------------------------------

    def _begin(self, f: str, key: str, value: dict[str, Any]) -> None:
        self._history.invoke(self._process, f, key, value, self._true_time())

    def _answer(self, result: dict[str, Any]) -> None:
        self._history.end(self._process, "ok", result, self._true_time())
        self._rest()

    def _propose(
        self, f: str, key: str, value: dict[str, Any], command: AnyCommand, told: _Told
    ) -> None:
        self._begin(f, key, value)
        self._submit(command, lambda result: self._answer(told(result)))

    def _submit(self, command: AnyCommand, decided: Callable[[CommandResult], None]) -> None:
        self._asking = number = self._proposed + 1

        def done(result: CommandResult) -> None:
            if self._asking == number:
                self._asking = None
                decided(result)

        self.propose(command, done)
        if self.rng.random() < HASTY:
            # A second copy, maybe behind the answer to the first: nothing may come of it.
            again, endpoint = super()._try_propose, self._leader or self._a_name_server()
            self.later(self.rng.uniform(0, 1.5), lambda: again(command, number, done, endpoint))
        if self.rng.random() < IMPATIENT:
            self.later(self.rng.uniform(0.05, 3.0), lambda: self._give_up(number))

    def _try_propose(
        self, command: AnyCommand, number: int, done: Callable[[CommandResult], None], endpoint: str
    ) -> None:
        """Not any more when it is answered, or given up."""
        if self._asking == number:
            super()._try_propose(command, number, done, endpoint)

    def _give_up(self, number: int) -> None:
        if self._asking == number:
            self._asking = None
            self._history.end(self._process, "info", {}, self._true_time())
            self._lives += 1
            self._rest()


def _config(name: str, setting: int) -> TopicConfig:
    compaction = name == COMPACTED
    return TopicConfig(retention_ms=-1, retention_bytes=setting, compaction=compaction)


def _told(result: CommandResult) -> dict[str, Any]:
    return {"code": result.code, "version": result.version}


def _told_id(result: CommandResult) -> dict[str, Any]:
    return {**_told(result), "id": result.value}


def _told_first(result: CommandResult) -> dict[str, Any]:
    return {**_told(result), "first": result.value}


def told_of_opening(result: CommandResult) -> dict[str, Any]:
    """The answer to an `open`."""
    assert isinstance(result.value, list), result
    epoch, committed = map(int, result.value)
    return {**_told(result), "epoch": epoch, "committed": committed}


def told_of_decision(result: CommandResult) -> dict[str, Any]:
    """The answer to a `decide`."""
    outcome, when = "", ""
    if isinstance(result.value, list):
        outcome, _, when = result.value
    return {**_told(result), "outcome": outcome, "when": when}


def _told_change(result: CommandResult) -> dict[str, Any]:
    codes = result.value if isinstance(result.value, list) else [""]
    return {**_told(result), "code": result.code or codes[0]}
