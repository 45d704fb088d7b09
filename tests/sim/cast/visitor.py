"""A client whose rights change while it works: it tries everything, allowed or not.

It is told which key it has by nobody: the network connects it with the one that its machine has at
that time. What it is refused it tries again later, as a program does that somebody keeps running.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from logboom.wire.access.access_commands import AddRule
from logboom.wire.access.access_rules import AccessRule
from logboom.wire.base import Request
from logboom.wire.batch import encode_batch, open_batch, validate_batch
from logboom.wire.commands import CreateTopic, DeleteTopic, StepDown
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.group_messages import GroupJoin
from logboom.wire.group_view import GroupConfig
from logboom.wire.messages import (
    AnyMessage,
    Heartbeat,
    ListGroups,
    Offsets,
    Produce,
    Produced,
    Propose,
    Pull,
    Pulled,
    Replicate,
    Stats,
    Watch,
)
from logboom.wire.subscription_messages import (
    AlterSubscription,
    DescribeSubscriptions,
    Subscribe,
    SubscriptionConfig,
)
from logboom.wire.view import TopicConfig
from tests.sim.cast.wire_client import WATCH_MS, WireClient
from tests.sim.world.trace import BrokenProperty

if TYPE_CHECKING:
    from tests.sim.judges.access_ledger import AccessLedger

TOPICS: Final = ("orders.eu", "orders.us", "stock.eu", "secret.plans")
"""Topics that visitors may have rights on; they are there from the beginning."""
PASSING: Final = ("orders.new", "stock.new")
"""Topics that whoever may creates and deletes."""
GROUPS: Final = ("orders.readers", "stock.readers")
SubscriptionChange: TypeAlias = Literal["end", "reset", "skip"]
SUBSCRIPTIONS: Final = ("bills", "audit")
CHANGES: Final[tuple[SubscriptionChange, ...]] = ("end", "reset", "skip")
QUICK: Final = GroupConfig(session_ms=3_000, heartbeat_ms=800, drain_ms=4_000)
KEPT: Final = TopicConfig(retention_ms=-1)
REST_S: Final = 0.12
"""Between two requests of a visitor, on average."""
ANSWER_S: Final = 1.5
HOLD_MS: Final = (0, 0, 700, 3_000)
"""How long a pull is held: some until long after the rights of their reader have gone."""


class Visitor(WireClient):
    """Produces, reads, joins groups, creates topics, and meddles with users."""

    def __init__(
        self, name: str, endpoints: Sequence[str], rng: random.Random, ledger: AccessLedger
    ) -> None:
        super().__init__(name, endpoints, rng)
        self._ledger = ledger
        self._working = False
        self._sent = 0

    def start(self) -> None:
        """Begin; called through a `Call`."""
        self._working = True
        self._rest()

    def stop(self) -> None:
        """Begin nothing new."""
        self._working = False

    def _rest(self) -> None:
        self.later(self.rng.expovariate(1 / REST_S), self._act)

    def _act(self) -> None:
        if not self._working:
            return
        self._rest()
        topic = self.rng.choice(TOPICS + PASSING)
        (act,) = self.rng.choices(
            (
                *(self._produce, self._pull, self._ask_end, self._join, self._change),
                *(self._list, self._meddle, self._pretend),
                *(self._subscribe, self._alter_subscription, self._list_subscriptions),
            ),
            (5, 5, 1, 1, 1, 0.5, 0.5, 0.3, 2, 0.5, 1),
        )
        act(topic)

    # -- metadata ---------------------------------------------------------------------------

    def watch_message(self, asked: int) -> Watch:
        """See `WireClient.watch_message`; groups are followed too."""
        return Watch(0, WATCH_MS, asked, None, WATCH_MS, groups=None)

    # -- requests ---------------------------------------------------------------------------

    def _somebody(self, topic: str) -> str | None:
        """The leader of a topic, as far as it is known here; else any broker."""
        if topic in self.routes.topics and self.rng.random() < 0.9:
            leader = self.routes.leader(topic, 0)
            return None if leader is None else leader[1]
        brokers = list(self.routes.brokers.values())
        return self.rng.choice(brokers).endpoint if brokers else None

    def _try(
        self,
        endpoint: str | None,
        message: Request,
        done: Callable[[AnyMessage, Sequence[Frame]], None] = lambda _message, _batches: None,
        batches: Sequence[Frame] = (),
    ) -> None:
        """Ask once; only a success matters here, refusals are judged where they are made."""

        def answered(
            answer: AnyMessage | None, batches: Sequence[Frame], error: LogboomError | None
        ) -> None:
            if answer is not None:
                done(answer, batches)
            else:
                assert error is not None
                self._ledger.refused(error.code)

        if endpoint is not None:
            self.request(endpoint, message, answered, message.timeout_ms / 1000, batches)

    def _produce(self, topic: str) -> None:
        value = b"%s/%d" % (self.name.encode(), self._sent)
        self._sent += 1
        known = self.routes.topics.get(topic)
        topic_id = known.id if known is not None else 0
        self._ledger.send(topic, value)

        def done(answer: AnyMessage, _batches: Sequence[Frame]) -> None:
            assert isinstance(answer, Produced), answer
            if topic_id:
                self._ledger.ack(topic_id, answer.base_offset, value)

        message = Produce(0, int(ANSWER_S * 1000), topic, 0, "all", topic_id)
        batch = encode_batch([value], now_ms=self.now.wall_ms)
        self._try(self._somebody(topic), message, done, [batch])

    def _pull(self, topic: str) -> None:
        group = self.rng.choice(("", "", GROUPS[0]))
        hold_ms = self.rng.choice(HOLD_MS)
        offset = 0 if hold_ms == 0 else self._ledger.end(topic)
        timeout_ms = hold_ms + int(ANSWER_S * 1000)
        message = Pull(0, timeout_ms, topic, 0, offset, 4096, hold_ms, group=group)
        self._try(self._somebody(topic), message, partial(self._pulled, topic))

    def _pulled(self, topic: str, answer: AnyMessage, batches: Sequence[Frame]) -> None:
        assert isinstance(answer, Pulled), answer
        for batch in batches:
            for value in open_batch(batch, validate_batch(batch)).values():
                if value is None or not self._ledger.was_sent(topic, bytes(value)):
                    raise BrokenProperty("reads were sent", f"{value!r} in {topic}")
                self._ledger.read()

    def _ask_end(self, topic: str) -> None:
        self._try(self._somebody(topic), Offsets(0, 500, topic, [0]))

    def _join(self, topic: str) -> None:
        brokers = list(self.routes.brokers.values())
        group = self.rng.choice(GROUPS)
        message = GroupJoin(
            0, 1_000, group, f"{self.name}.{self._sent}", "", "", {topic: "*"}, False, QUICK
        )
        self._try(self.rng.choice(brokers).endpoint if brokers else None, message)

    def _subscribe(self, topic: str) -> None:
        name = self.rng.choice(SUBSCRIPTIONS)
        message = Subscribe(
            0, 1_000, topic, 0, name, self.name, self.now.wall_ms, SubscriptionConfig("shared")
        )
        self._try(self._somebody(topic), message)

    def _alter_subscription(self, topic: str) -> None:
        """End what others may use, or move it."""
        name, change = self.rng.choice(SUBSCRIPTIONS), self.rng.choice(CHANGES)
        message = AlterSubscription(0, 1_000, topic, 0, name, change, force=True)
        self._try(self._somebody(topic), message)

    def _list_subscriptions(self, topic: str) -> None:
        self._try(self._somebody(topic), DescribeSubscriptions(0, 1_000, topic, 0))

    def _change(self, _topic: str) -> None:
        topic = self.rng.choice(PASSING)
        self._command(
            CreateTopic(topic, 1, 2, KEPT, self.now.wall_ms)
            if self.rng.random() < 0.7
            else DeleteTopic(topic, self.now.wall_ms)
        )

    def _list(self, _topic: str) -> None:
        self._try(self._leading_name_server(), ListGroups(0, 1_000))

    def _meddle(self, _topic: str) -> None:
        everything = AccessRule(True, "admin", "cluster", "cluster")
        self._command(AddRule(f"user:{self.rng.choice(('ann', 'bob'))}", everything))

    def _pretend(self, topic: str) -> None:
        """Ask for what only nodes may, or administrators."""
        broker = self.rng.choice(sorted(self.routes.brokers) or ["broker-1"])
        somebody = self._somebody(topic)
        match self.rng.randrange(4):
            case 0:
                self._try(self._a_name_server(), Heartbeat(0, 1_000, broker, 1))
            case 1:
                self._try(somebody, Replicate(0, 1_000, broker, 1, 1, 0, 0, 4096, []))
            case 2:
                self._try(somebody, Stats(0, 1_000))
            case _:
                self._command(StepDown(broker, 1, self.now.wall_ms))

    def _command(self, command: CreateTopic | DeleteTopic | AddRule | StepDown) -> None:
        self._proposed += 1
        message = Propose(0, 1_000, self.name, self._proposed, command)
        self._try(self._leading_name_server(), message)

    def _leading_name_server(self) -> str:
        leaders = [
            server.endpoint
            for server in self.routes.name_servers
            if server.id == self.routes.raft_leader
        ]
        return leaders[0] if leaders else self._a_name_server()
