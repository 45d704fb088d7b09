"""A broker's core on a bench: its disk is simulated, every other node is played by the test.

The test moves time and decides when a sync ends. Stations stand where the broker dials (name
servers, leaders); peers dial the broker (clients, followers).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from logboom.nodes.broker import Broker
from logboom.nodes.config import BrokerConfig
from logboom.nodes.log.keys import Position
from logboom.nodes.log.storage import WriteSet
from logboom.nodes.replica.replica import Replica
from logboom.nodes.subscriptions.entry_filter import DispatchFilter
from logboom.nodes.turn import BrokerTurn
from logboom.wire.acceptor import Acceptor, error_frames
from logboom.wire.actor import (
    Call,
    Effects,
    Event,
    Instant,
    Note,
    PeerAddress,
    Received,
    Send,
    Synced,
)
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch, stamp, validate_batch
from logboom.wire.commands import AnyCommand, CommandResult, RegisterBroker
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame, decode, encode
from logboom.wire.hello import Identity
from logboom.wire.messages import (
    Acks,
    AnyMessage,
    FollowerPosition,
    Heartbeat,
    HeartbeatGranted,
    Produce,
    Propose,
    Proposed,
    Pull,
    Replicate,
    Watch,
    WatchResult,
)
from logboom.wire.session import Reply, Session
from logboom.wire.transactions import DecisionView
from logboom.wire.view import BrokerView, QueueView, SettingView, TopicConfig, TopicView, View
from tests.sim.world.storage import SimulatedStorage

KEY = b"cluster key"
NAME_SERVER = "ns:7701"
ME = "broker-1"
LATER_MS = 1_800_000_000_000
"""An append time behind the rig's own clock."""
M = TypeVar("M", bound=WireMessage)


class Station:
    """A node that the broker dials; what it asks is kept until the test answers."""

    def __init__(self, endpoint: str, node: str) -> None:
        self.endpoint = endpoint
        self.gate = Acceptor(node, KEY, random.Random(1))
        self.asked: list[tuple[AnyMessage, Sequence[Frame]]] = []
        self.silent = False
        """It takes nothing and says nothing."""

    def take(self, kind: type[M]) -> M:
        """The oldest request of a kind; fails if there is none."""
        for at, (message, _) in enumerate(self.asked):
            if isinstance(message, kind):
                del self.asked[at]
                return message
        raise AssertionError(
            f"no {kind.__name__} among {[type(m).__name__ for m, _ in self.asked]}"
        )

    def count(self, kind: type[WireMessage]) -> int:
        """How many requests of a kind wait."""
        return sum(isinstance(message, kind) for message, _ in self.asked)


class Peer:
    """A node or client that dials the broker."""

    def __init__(self, rig: Rig, name: str, identity: Identity) -> None:
        self.rig = rig
        self.address = PeerAddress("main", name.encode())
        self.session = Session("broker:1", identity, random.Random(2), rig.mono)
        self.replies: list[Reply] = []
        self.principal: str | None = None
        """The key with which it has connected."""

    def ask(
        self, message: WireMessage, batches: Sequence[Frame] = (), wait: float = 60.0
    ) -> list[Reply]:
        """Forget older replies, send a request, let the broker take it; the replies that came."""
        self.replies = []
        out = Effects()
        self.session.request(message, batches, None, self.rig.mono + wait, out, self.rig.mono)
        self.rig.deliver(self, out)
        return list(self.replies)

    def taken(self) -> list[Reply]:
        """Replies that came since the last question or call."""
        replies, self.replies = self.replies, []
        return replies

    def answer(self) -> Any:
        """The one reply that came: its message; its error is raised."""
        replies = self.taken()
        assert len(replies) == 1, replies
        if replies[0].error is not None:
            raise replies[0].error
        return replies[0].message


def asking(peer: Peer, *messages: WireMessage) -> list[Received]:
    """What arrives when a peer sends requests."""
    out = Effects()
    for message in messages:
        peer.session.request(message, [], None, peer.rig.mono + 60, out, peer.rig.mono)
    return [Received(peer.address, send.frames, principal=peer.principal) for send in out.sends]


def answering(peer: Peer, *messages: WireMessage) -> Callable[[], bool]:
    """Turns until requests are answered: the first takes them, and False is returned with an answer."""
    peer.taken()
    events = asking(peer, *messages)

    def turn() -> bool:
        peer.rig.turn(*events)
        events.clear()
        return not peer.replies

    return turn


class Rig:
    """The broker and everything around it."""

    def __init__(
        self,
        storage: SimulatedStorage | None = None,
        *,
        incarnation: str = "one",
        mono: float = 1_000.0,
        register: bool = True,
        plug_ins: Sequence[DispatchFilter] = (),
        **settings: Any,
    ) -> None:
        self.storage = storage or SimulatedStorage("store-1")
        settings = {"name_servers": [NAME_SERVER], **settings}
        config = BrokerConfig(id=ME, advertise="b1:7711", **settings)
        self.mono = mono
        self.wall_ms = 1_700_000_000_000
        self.broker = Broker(config, self.storage, random.Random(3), incarnation, KEY, plug_ins)
        self.stations = {NAME_SERVER: Station(NAME_SERVER, "name-1")}
        for number in (2, 3):
            self.stations[f"b{number}:7711"] = Station(f"b{number}:7711", f"broker-{number}")
        self.peers: dict[PeerAddress, Peer] = {}
        self.granting = True
        """Whether heartbeats are granted."""
        self.auto_sync = True
        """Whether every write is on disk before the next event."""
        self.token = 0
        self.stop: str | None = None
        self.notes: list[Note] = []
        """What the broker wanted to be read."""
        self.version = 0
        self.instance_epoch = 0
        self.commands: list[tuple[Propose, AnyCommand]] = []
        """Proposals that wait for the test's decision."""
        self.registering = register
        """Whether registrations are answered at once."""
        self.next_topic_id, self.recoveries, self.features = 1_000, 0, 0
        self.lost_topic_ids: list[tuple[int, int]] = []
        self.view: View | None = None
        self.settle()

    @property
    def ns(self) -> Station:
        """The name server."""
        return self.stations[NAME_SERVER]

    def replica(self, queue: int = 0, topic_id: int = 1) -> Replica:
        """A replica of the broker."""
        return self.broker.queues.replicas[topic_id, queue]

    # ── turns ───────────────────────────────────────────────────────────────────────────────────

    def turn(self, *events: Event) -> Effects:
        """One turn; its effects are carried out."""
        effects = self.broker.handle(events, Instant(self.mono, self.wall_ms))
        if effects.writes is not None:
            self.storage.write(effects.writes)
        self.token = max(self.token, effects.token)
        self.notes += effects.notes
        if effects.stop is not None:
            self.stop = effects.stop
        for send in effects.sends:
            self._carry(send)
        if effects.token and self.auto_sync:
            self.sync()
        return effects

    def within(self, act: Callable[[BrokerTurn], None]) -> None:
        """Call a part of the broker in a turn of its own; what it sends is carried."""
        turn = BrokerTurn(Instant(self.mono, self.wall_ms))
        act(turn)
        for send in turn.out.sends:
            self._carry(send)
        self.turn()

    def sync(self) -> None:
        """Everything written is on disk, and the broker hears of it."""
        self.storage.sync()
        self.turn(Synced(self.token))

    def fill(self, batches: int, queue: int = 0) -> None:
        """Store so many batches of one small message, none of which the leader holds in memory."""
        replica, small, writes = self.replica(queue), batch(), WriteSet()
        head = validate_batch(small, stamped=False)
        for _ in range(batches):
            replica.append_batch(small, head, self.wall_ms, writes, self.broker.queues.cache)
        self.storage.write(writes)
        replica.written = replica.end
        replica.tail.clear()

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass as the broker wants its turns, for at least one turn."""
        until = self.mono + seconds
        for _ in range(10_000):
            wanted = self.broker.deadline()
            if wanted is not None and wanted <= self.mono:
                self.turn()
            elif wanted is not None and wanted <= until:
                self.mono = wanted
                self.turn()
            else:
                break
        self.mono = until
        self.turn()

    def _carry(self, send: Send) -> None:
        if isinstance(send.peer, PeerAddress):
            peer = self.peers.get(send.peer)
            if peer is not None:
                out = Effects()
                peer.replies += peer.session.receive(send.frames, out, self.mono)
                self.deliver(peer, out)
            return
        station = self.stations[send.peer]
        if station.silent:
            return
        out = Effects()
        address = PeerAddress("main", ME.encode())
        admitted = station.gate.admit(address, send.frames, out, self.mono)
        for answer in out.sends:
            self.turn(Received(send.peer, answer.frames))
        if admitted is not None:
            self.serve(station, admitted[1], admitted[2])

    def serve(self, station: Station, message: AnyMessage, batches: Sequence[Frame]) -> None:
        """What a station does with a request: some are answered at once, the rest kept."""
        match message:
            case Propose(command=RegisterBroker()) if self.registering:
                self.version += 1
                self.instance_epoch += 1
                if self.view is not None:
                    self.publish(*self.view.topics)
                self.reply(
                    message, Proposed(0, CommandResult(self.version, value=self.instance_epoch))
                )
            case Propose():
                self.commands.append((message, message.command))
            case Heartbeat() if self.granting:
                self.reply(message, HeartbeatGranted(0, 2_000, self.version))
            case _:
                station.asked.append((message, batches))

    def reply(
        self,
        request: AnyMessage,
        answer: WireMessage,
        batches: Sequence[Frame] = (),
        endpoint: str = NAME_SERVER,
    ) -> None:
        """Answer a request of the broker."""
        answer.id = request.id
        self.turn(Received(endpoint, encode(answer, batches)))

    def refuse(self, request: AnyMessage, error: LogboomError, endpoint: str = NAME_SERVER) -> None:
        """Answer a request of the broker with an error."""
        self.turn(Received(endpoint, error_frames(request.id, error)))

    # ── metadata ────────────────────────────────────────────────────────────────────────────────

    def publish(self, *topics: TopicView, whole: bool = False) -> None:
        """Let the broker learn this metadata, at a new version; as a whole or as what changed."""
        self.version += 1
        brokers = [
            BrokerView(ME, "b1:7711", "", self.instance_epoch, True, self.version),
            *(BrokerView(f"broker-{n}", f"b{n}:7711", "", 50, True, 1) for n in (2, 3)),
        ]
        before = self.view.topics if self.view is not None else []
        gone = sorted({topic.name for topic in before} - {topic.name for topic in topics})
        whole = whole or self.view is None
        self.view = View(
            self.version,
            whole,
            "cluster",
            brokers,
            list(topics),
            gone,
            [],
            [],
            "name-1",
            next_topic_id=self.next_topic_id,
            lost_topic_ids=self.lost_topic_ids,
            recoveries=self.recoveries,
            features=self.features,
        )
        self.tell()

    def announce(self, *decisions: DecisionView, ended: Sequence[int] = ()) -> None:
        """Let the broker learn of decisions on transactions."""
        assert self.view is not None
        self.version = max(self.version + 1, *(d.number for d in decisions), *ended)
        self.view = msgspec.structs.replace(
            self.view,
            version=self.version,
            full=False,
            decisions=list(decisions),
            ended_decisions=list(ended),
        )
        self.tell()

    def set(self, scope: str = "", **values: object) -> None:
        """Let the broker learn these settings, of the cluster or of a node, in place of all."""
        assert self.view is not None
        self.version += 1
        self.view = msgspec.structs.replace(
            self.view,
            version=self.version,
            full=False,
            settings=[SettingView(scope, name, str(value)) for name, value in values.items()],
        )
        self.tell()

    def tell(self) -> None:
        """Answer the WATCH that waits with the current metadata."""
        if self.view is None:
            return
        while self.ns.count(Watch):
            watch = self.ns.take(Watch)
            if watch.version >= self.view.version:
                self.ns.asked.append((watch, ()))
                return
            view = self.view
            if watch.version < 0:
                view = msgspec.structs.replace(view, full=True, deleted=[])
            self.reply(watch, WatchResult(0, view))

    def lead(
        self,
        epoch: int = 1,
        isr: Sequence[str] = (ME,),
        replicas: Sequence[str] = (ME,),
        *,
        leader: str | None = ME,
        eligible: Sequence[str] = (),
        adding: Sequence[str] = (),
        removing: Sequence[str] = (),
        queues: int = 1,
        config: TopicConfig | None = None,
        restoring: str = "",
    ) -> None:
        """Publish topic "flights" (id 1) with all queues alike."""
        queue = QueueView(
            list(replicas),
            leader,
            epoch,
            self.version + 1,
            list(isr),
            list(eligible),
            list(adding),
            list(removing),
        )
        view = TopicView(
            "flights",
            1,
            config or TopicConfig(retention_ms=-1),
            [queue] * queues,
            self.version + 1,
            restoring=restoring,
        )
        self.publish(view)

    def decide(self, code: str = "", value: int | list[str] | None = None) -> AnyCommand:
        """Commit the oldest proposal that waits; the metadata goes one version on."""
        message, command = self.commands.pop(0)
        self.version += 1
        self.reply(message, Proposed(0, CommandResult(self.version, code, value=value)))
        return command

    # ── peers ───────────────────────────────────────────────────────────────────────────────────

    def client(self, name: str = "client-1", principal: str | None = None) -> Peer:
        """A client that has said HELLO."""
        return self._peer(name, Identity(name), principal)

    def follower(self, name: str = "broker-2") -> Peer:
        """A broker that dials ours."""
        return self._peer(name, Identity(name, "broker", 0, KEY))

    def _peer(self, name: str, identity: Identity, principal: str | None = None) -> Peer:
        peer = Peer(self, name, identity)
        peer.principal = principal
        self.peers[peer.address] = peer
        out = Effects()
        peer.session.open(out, self.mono)
        self.deliver(peer, out)
        assert peer.session.state == "open", peer.session.refusal
        return peer

    def deliver(self, peer: Peer, out: Effects) -> None:
        """Hand the broker what a peer sends."""
        for send in out.sends:
            self.turn(Received(peer.address, send.frames, principal=peer.principal))

    def call_stop(self) -> None:
        """Ask for a graceful stop."""
        self.turn(Call("stop"))


class QuietRig(Rig):
    """A bench that keeps what clients are sent, where their own work is not to be measured."""

    kept: list[Send] | None = None

    def _carry(self, send: Send) -> None:
        if self.kept is not None and isinstance(send.peer, PeerAddress):
            self.kept.append(send)
        else:
            super()._carry(send)

    def messages(self) -> list[object]:
        """What was kept."""
        return [decode(send.frames) for send in self.kept or ()]


def batch(
    count: int = 1, producer: int = -1, epoch: int = -1, sequence: int = -1, value: bytes = b"v"
) -> bytes:
    """A batch as a producer sends it."""
    return encode_batch(
        [value] * count,
        now_ms=5,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def entry(
    offset: int,
    epoch: int,
    count: int = 1,
    time_ms: int = LATER_MS,
    producer: int = -1,
    sequence: int = -1,
) -> bytes:
    """A batch as a leader has stamped it."""
    plain = batch(count, producer, 0 if producer >= 0 else -1, sequence, b"e%d" % epoch)
    return stamp(plain, offset, epoch, time_ms)


def produce(
    acks: Acks = "all", queue: int = 0, topic: str = "flights", topic_id: int = 0
) -> Produce:
    """A PRODUCE without its batch."""
    return Produce(0, 30_000, topic, queue, acks, topic_id)


def pull(
    offset: int,
    wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    tags: list[str] | None = None,
    topic_id: int = 0,
) -> Pull:
    """A PULL of queue 0."""
    return Pull(0, 30_000, "flights", 0, offset, max_bytes, wait_ms, 0, tags, topic_id=topic_id)


def fetch(
    number: int,
    *places: tuple[Position, int],
    epoch: int = 1,
    broker: str = "broker-2",
    instance_epoch: int = 52,
    session: int = 7,
    wait_ms: int = 500,
    heard: int | None = None,
) -> Replicate:
    """A REPLICATE that says where queue 0, 1, … stand: (position, epoch of the last entry).

    `heard` None: the answer of the request before was taken.
    """
    queues = [
        FollowerPosition(1, at, epoch, place.offset, place.side, last)
        for at, (place, last) in enumerate(places)
    ]
    heard = number - 1 if heard is None else heard
    return Replicate(
        0, 5_000, broker, instance_epoch, session, number, wait_ms, 1 << 20, queues, [], heard
    )
