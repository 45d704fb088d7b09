"""Nodes by script: a name server and brokers that answer a client's core over a virtual network.

They keep one log per queue between them (as if replication were perfect) and the producers'
windows, and break on request: lost requests, lost answers, errors, leaders that move.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from logboom.client.calls import CoreCall
from logboom.client.core import ClientConfig, ClientCore
from logboom.wire.actor import Call, Effects, Event, Instant, Received
from logboom.wire.base import WireMessage
from logboom.wire.batch import BatchHead, open_batch, stamp, validate_batch
from logboom.wire.commands import AllocateProducerIds, CommandResult, CreateTopic, DeleteTopic
from logboom.wire.frames import Frame, decode, encode
from logboom.wire.head import sequence_after
from logboom.wire.messages import (
    AnyMessage,
    Failure,
    Hello,
    Offsets,
    OffsetsResult,
    Ping,
    Pong,
    Produce,
    Produced,
    Propose,
    Proposed,
    Pull,
    Pulled,
    Watch,
    WatchResult,
    Welcome,
)
from logboom.wire.transactions import (
    AwaitDecided,
    CheckHalves,
    CheckParked,
    Decide,
    EndHalf,
    OpenApplication,
)
from logboom.wire.view import (
    BrokerView,
    NameServerView,
    QueueLoss,
    QueueView,
    TopicConfig,
    TopicView,
    View,
)
from tests.unit.client.transactions.scripted_decisions import Decisions

NAME_SERVER = "name:7701"
BROKERS = ("one:7711", "two:7712", "three:7713")
WALL_MS = 1_700_000_000_000


@dataclass
class QueueLog:
    """One queue: its entries, its windows, its leader."""

    leader: str | None = BROKERS[0]
    epoch: int = 1
    entries: list[bytes] = field(default_factory=list)
    end: int = 0
    start: int = 0
    losses: list[QueueLoss] = field(default_factory=list)
    windows: dict[int, tuple[int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    """Producer id → (epoch, [(base sequence, next sequence, offset)])."""

    def append(self, batch: Frame, head: BatchHead) -> int | Failure:
        """Append unless it is a duplicate; the offset, or the refusal."""
        if head.producer_id >= 0:
            epoch, window = self.windows.get(head.producer_id, (head.producer_epoch, []))
            if head.producer_epoch < epoch:
                return Failure(0, "FENCED_PRODUCER", "an older epoch", retryable=False)
            if head.producer_epoch > epoch:
                window = []
            for base, _, offset in window:
                if base == head.base_sequence:
                    return offset
            expected = window[-1][1] if window else 0
            if head.base_sequence != expected:
                text = f"sequence {head.base_sequence} where {expected} belongs"
                return Failure(0, "OUT_OF_ORDER_SEQUENCE", text, retryable=False)
            following = sequence_after(head.base_sequence, head.count)
            window = [*window, (head.base_sequence, following, self.end)][-5:]
            self.windows[head.producer_id] = (head.producer_epoch, window)
        offset = self.end
        self.entries.append(stamp(batch, offset, self.epoch, WALL_MS))
        self.end += head.count
        return offset

    def values(self) -> list[bytes | None]:
        """All values in order."""
        return [value for entry in self.entries for value in open_batch(entry).values()]


class Cluster:
    """The nodes, the network and the virtual clock around one client core."""

    def __init__(self, seed: int = 1, *, create_topics: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now = 100.0
        self.turns = 0
        """That the core took."""
        self.version = 1
        self.topics: dict[str, list[QueueLog]] = {}
        self.topic_ids: dict[str, int] = {}
        self.config = TopicConfig()
        self.dead: set[str] = set()
        self.intercept: Callable[[str, AnyMessage], Failure | bool | None] = lambda *_: None
        """Sees each request first: a Failure answers it, True loses it, False loses the answer."""
        self.seen: list[AnyMessage] = []
        self.suggested: str | None = None
        """Where every answer to a pull sends its reader."""
        self.passed_over = False
        """Whether no batch matches any pull."""
        self.as_asked = False
        """Whether a pull brings what it asks for; else three batches at most."""
        self.matches: list[bytes] | None = None
        """What every answer to a pull says of its batches."""
        self.proposed: dict[tuple[str, int], CommandResult] = {}
        self.delay: Callable[[], float] = lambda: 0.001
        self.core = ClientCore(
            ClientConfig((BROKERS[0],), "client-1", create_topics),
            random.Random(seed + 1),
            self.instant(),
        )
        self._mail: list[tuple[float, int, str, bool, Sequence[Frame]]] = []
        self._order = count()
        self._last: dict[tuple[str, bool], float] = {}
        self._ids = count(1)
        self._producer_id = 1000
        self._holds: list[tuple[float, str, AnyMessage]] = []
        self.decisions = Decisions()

    def instant(self) -> Instant:
        return Instant(self.now, WALL_MS + int(self.now * 1000))

    # The script.

    def add_topic(self, name: str, queues: int = 1) -> None:
        self.version += 1
        self.topics[name] = [QueueLog() for _ in range(queues)]
        self.topic_ids[name] = next(self._ids)

    def grow(self, name: str) -> None:
        """One more queue."""
        self.version += 1
        self.topics[name].append(QueueLog())

    def drop_topic(self, name: str) -> None:
        self.version += 1
        del self.topics[name]

    def move(self, name: str, queue: int, leader: str | None) -> None:
        """Another leader in a new epoch."""
        log = self.topics[name][queue]
        self.version += 1
        log.leader, log.epoch = leader, log.epoch + 1

    def lose(self, name: str, queue: int, end: int, *, reported: bool = True) -> None:
        """An operator accepts that a leader has nothing from an offset on."""
        log = self.topics[name][queue]
        self.move(name, queue, log.leader)
        log.entries = [entry for entry in log.entries if validate_batch(entry).base_offset < end]
        log.end = validate_batch(log.entries[-1]).next_offset if log.entries else 0
        log.losses.append(QueueLoss(log.epoch, log.end if reported else -1, 0))

    def log(self, name: str, queue: int = 0) -> QueueLog:
        return self.topics[name][queue]

    # Driving.

    def call(self, call: CoreCall) -> None:
        self._turn([Call(call)])

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, event by event; True once `until` holds."""
        end = self.now + seconds
        while not until():
            due = [when for when in (self.core.deadline(), self._next_mail()) if when is not None]
            due += [hold[0] for hold in self._holds]
            when = max(min(due, default=end), self.now)
            if when > end:
                self.now = end
                return until()
            # A core that wants a turn at once must not stop the clock.
            self.now = when if when > self.now else self.now + 1e-6
            self._answer_holds()
            self._turn(self._arrived())
        return True

    def _next_mail(self) -> float | None:
        return self._mail[0][0] if self._mail else None

    def _arrived(self) -> list[Event]:
        events: list[Event] = []
        while self._mail and self._mail[0][0] <= self.now:
            _, _, endpoint, to_node, frames = heapq.heappop(self._mail)
            if endpoint in self.dead:
                continue
            if to_node:
                self._serve(endpoint, frames)
            else:
                events.append(Received(endpoint, frames))
        return events

    def _turn(self, events: list[Event]) -> None:
        self.turns += 1
        effects: Effects = self.core.handle(events, self.instant())
        for send in effects.sends:
            assert isinstance(send.peer, str)
            self._post(send.peer, True, send.frames)

    def _post(self, endpoint: str, to_node: bool, frames: Sequence[Frame]) -> None:
        """First in, first out per direction, as a connection is."""
        when = max(self.now + self.delay(), self._last.get((endpoint, to_node), 0.0))
        self._last[endpoint, to_node] = when
        heapq.heappush(self._mail, (when, next(self._order), endpoint, to_node, frames))

    def tell(self, endpoint: str, message: WireMessage) -> None:
        """Let a node send a message of the test."""
        self._answer(endpoint, message)

    def _answer(self, endpoint: str, message: WireMessage, batches: Sequence[Frame] = ()) -> None:
        self._post(endpoint, False, encode(message, batches))

    # The nodes.

    def _serve(self, endpoint: str, frames: Sequence[Frame]) -> None:
        message = decode(frames)
        self.seen.append(message)
        verdict = self.intercept(endpoint, message)
        if verdict is True:
            return
        if isinstance(verdict, Failure):
            self._fail(endpoint, message.id, verdict)
            return
        answer, batches = self._reply(endpoint, message, frames[1:])
        if answer is None or verdict is False:
            return
        answer.id = message.id if message.id > 0 else answer.id
        self._answer(endpoint, answer, batches)

    def _fail(self, endpoint: str, number: int, failure: Failure) -> None:
        answer = Failure(number, failure.code, failure.text, failure.retryable, failure.fields)
        self._answer(endpoint, answer)

    def _reply(
        self, endpoint: str, message: AnyMessage, batches: Sequence[Frame]
    ) -> tuple[WireMessage | None, Sequence[Frame]]:
        match message:
            case Hello():
                return Welcome(0, 1, endpoint, "cluster"), ()
            case Ping():
                return Pong(-2), ()
            case Watch():
                if message.version >= self.version:
                    self._holds.append((self.now + message.wait_ms / 1000, endpoint, message))
                    return None, ()
                return WatchResult(0, self.view(message.version, message.topics)), ()
            case Propose():
                return self._propose(message), ()
            case Produce():
                return self._produce(endpoint, message, batches[0]), ()
            case Pull():
                return self._pull(endpoint, message)
            case AwaitDecided() | CheckParked() | EndHalf() | CheckHalves():
                return self._transacting(endpoint, message)
            case Offsets():
                logs = self.topics[message.topic]
                return OffsetsResult(0, [(logs[q].start, logs[q].end) for q in message.queues]), ()
            case _:
                raise AssertionError(f"the script does not know {message}")

    def view(self, version: int, topics: list[str] | None) -> View:
        """The whole, to every question that is behind."""
        names = [n for n in self.topics if topics is None or n in topics]
        views = [
            TopicView(
                name,
                self.topic_ids[name],
                self.config,
                [
                    QueueView(
                        ["b"],
                        _id(log.leader),
                        log.epoch,
                        log.epoch,
                        ["b"],
                        [],
                        losses=[*log.losses],
                    )
                    for log in self.topics[name]
                ],
                self.version,
            )
            for name in names
        ]
        brokers = [BrokerView(str(_id(e)), e, "", 1, e not in self.dead, 1) for e in BROKERS]
        servers = [NameServerView("name-1", NAME_SERVER)]
        return View(self.version, True, "cluster", brokers, views, [], [], servers, "name-1")

    def _propose(self, message: Propose) -> Proposed:
        known = self.proposed.get((message.proposer, message.number))
        if known is None:
            known = self._apply(message)
            self.proposed[message.proposer, message.number] = known
        return Proposed(0, known)

    def _apply(self, message: Propose) -> CommandResult:
        match message.command:
            case CreateTopic(name=name, queues=queues):
                if name in self.topics:
                    return CommandResult(self.version, "TOPIC_EXISTS", f"{name} exists")
                self.add_topic(name, queues)
            case DeleteTopic(name=name):
                self.drop_topic(name)
            case OpenApplication() | Decide():
                return self.decisions.apply(self, message.command)
            case AllocateProducerIds(count=number):
                first, self._producer_id = self._producer_id, self._producer_id + number
                return CommandResult(self.version, value=first)
            case _:
                pass
        return CommandResult(self.version)

    def _leads(self, endpoint: str, topic: str, queue: int) -> Failure | QueueLog:
        if topic not in self.topics:
            return Failure(0, "UNKNOWN_TOPIC", f"{topic} is not here", retryable=False)
        log = self.topics[topic][queue]
        if log.leader != endpoint:
            fields = {"leader": _id(log.leader), "endpoint": log.leader, "epoch": log.epoch}
            return Failure(0, "NOT_LEADER", "not here", retryable=True, fields=fields)
        return log

    def _produce(self, endpoint: str, message: Produce, batch: Frame) -> WireMessage | None:
        log = self._leads(endpoint, message.topic, message.queue)
        if message.topic_id != self.topic_ids.get(message.topic, message.topic_id):
            log = Failure(0, "NOT_LEADER", "another topic of this name", retryable=True)
        if isinstance(log, Failure):
            return log if message.acks != "none" else None
        if message.transaction is not None:
            return self.decisions.park(self, message, batch)
        offset = log.append(batch, validate_batch(batch, stamped=False))
        self.wake_pulls()
        if message.acks == "none":
            return None
        return offset if isinstance(offset, Failure) else Produced(0, offset, WALL_MS)

    def _pull(self, endpoint: str, message: Pull) -> tuple[WireMessage | None, Sequence[Frame]]:
        log = self._leads(endpoint, message.topic, message.queue)
        if isinstance(log, Failure) and _id(endpoint) == self.suggested:
            log = self.topics[message.topic][message.queue]
        if isinstance(log, Failure):
            return log, ()
        at = message.offset
        if not log.start <= at <= log.end:
            nearest = log.start if at < log.start else log.end
            return Pulled(0, "OFFSET_ILLEGAL", nearest, log.start, log.end), ()
        if at == log.end:
            self._holds.append((self.now + message.wait_ms / 1000, endpoint, message))
            return None, ()
        found = self._some([e for e in log.entries if open_batch(e).next_offset > at], message)
        last = open_batch(found[-1]).next_offset
        if self.passed_over:
            none = Pulled(0, "NO_MATCHED_MESSAGE", last, log.start, log.end, self.suggested)
            return none, ()
        matches = None if self.matches is None else self.matches[: len(found)]
        return Pulled(0, "FOUND", last, log.start, log.end, self.suggested, matches), found

    def _some(self, entries: list[bytes], message: Pull) -> list[bytes]:
        if not self.as_asked:
            return entries[:3]
        count = size = 0
        for place, entry in enumerate(entries):
            if place and (
                size + len(entry) > message.max_bytes or count >= message.max_messages > 0
            ):
                return entries[:place]
            count += open_batch(entry).count
            size += len(entry)
        return entries

    def _transacting(
        self, endpoint: str, message: AwaitDecided | CheckParked | EndHalf | CheckHalves
    ) -> tuple[WireMessage | None, Sequence[Frame]]:
        if isinstance(message, CheckHalves):
            return self.decisions.halves(self, endpoint, message)
        log = self._leads(endpoint, message.topic, message.queue)
        if isinstance(log, Failure):
            return log, ()
        return self.decisions.answer(self, message), self.decisions.wanted(self, message)

    def wake_pulls(self) -> None:
        self._holds = [
            (self.now if isinstance(hold, Pull) else when, endpoint, hold)
            for when, endpoint, hold in self._holds
        ]

    def _answer_holds(self) -> None:
        for item in list(self._holds):
            when, endpoint, message = item
            if isinstance(message, Watch) and self.version > message.version:
                answer: WireMessage = WatchResult(
                    message.id, self.view(message.version, message.topics)
                )
                batches: Sequence[Frame] = ()
            elif when <= self.now and isinstance(message, Watch):
                answer, batches = WatchResult(message.id, self._nothing()), ()
            elif when <= self.now and isinstance(message, Pull):
                answer, batches = self._end_pull(endpoint, message)
            else:
                continue
            self._holds.remove(item)
            if endpoint not in self.dead:
                self._answer(endpoint, answer, batches)

    def _end_pull(self, endpoint: str, message: Pull) -> tuple[WireMessage, Sequence[Frame]]:
        log = self._leads(endpoint, message.topic, message.queue)
        if isinstance(log, Failure):
            log.id = message.id
            return log, ()
        if log.end > message.offset:
            answer, batches = self._pull(endpoint, message)
            assert answer is not None
            answer.id = message.id
            return answer, batches
        at = message.offset
        return Pulled(message.id, "NO_NEW_MESSAGE", at, log.start, log.end), ()

    def _nothing(self) -> View:
        return View(self.version, False, "cluster", [], [], [], [], [], None)


def _id(endpoint: str | None) -> str | None:
    return None if endpoint is None else endpoint.split(":")[0]
