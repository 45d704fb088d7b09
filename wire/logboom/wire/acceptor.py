"""The listening side, pure: the sessions behind routing ids, and what each may request.

`Acceptor.admit` decodes frames. It answers messages about the connection itself (HELLO, proof,
ping) and malformed frames, and passes all others on with the peer's identity. A peer without a
session gets NEED_HELLO (see docs/SAFETY.md, W1). A peer that is silent for `IDLE` seconds is
forgotten and must greet again.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from logboom.wire.actor import Effects, PeerAddress, Send
from logboom.wire.base import WireMessage
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterTopic,
    Barrier,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    RemoveBroker,
)
from logboom.wire.errors import InvalidRequest, LogboomError, Refused
from logboom.wire.frames import Frame, decode, encode, id_of
from logboom.wire.group_commands import AlterGroup, DeleteGroup, ResetOffsets
from logboom.wire.hello import PeerKind, proof, verify_proof
from logboom.wire.messages import (
    NODES_ONLY,
    OLDEST_VERSION,
    OPERATORS_ONLY,
    PROTOCOL_VERSION,
    AnyMessage,
    Challenge,
    Failure,
    Hello,
    NeedHello,
    Ping,
    Pong,
    Propose,
    Prove,
    Welcome,
)
from logboom.wire.transactions import Decide, OpenApplication

IDLE: Final = 30.0
"""Seconds of silence after which a session is forgotten."""
MAX_SESSIONS: Final = 20_000
"""Maximum number of sessions of a listener; beyond it the longest silent are dropped first."""
PROVE_S: Final = 10.0
"""Seconds that a node has to answer a challenge."""
MAX_GREETINGS: Final = 1_000
"""Maximum number of unanswered challenges; beyond it the oldest are dropped first."""
MAX_CLIENT_ID: Final = 256
"""Maximum length of a client id, in characters."""
MAX_CREDENTIALS: Final = 8 * 1024
"""Maximum length of the credentials in HELLO, in bytes."""
MAX_NONCE: Final = 64
"""Maximum length of a nonce, in bytes."""
MAX_STRANGERS_FRAME: Final = 64 * 1024
"""Maximum message frame that is decoded without a session, in bytes: HELLO and PROVE are small."""
MAX_CLIENTS_FRAME: Final = 2 * 1024 * 1024
"""Maximum message frame of a client, in bytes."""
MAX_FRAMES: Final = 64
"""Maximum number of frames in a request. All requests that exist need one message and one batch."""
CLIENT_COMMANDS: Final = (
    CreateTopic,
    AlterTopic,
    DeleteTopic,
    ElectLeader,
    AllocateProducerIds,
    Barrier,
    AlterGroup,
    DeleteGroup,
    ResetOffsets,
    OpenApplication,
    Decide,
)
"""Commands that any client may propose; all others need the cluster key."""
OPERATOR_COMMANDS: Final = (RemoveBroker,)
"""Commands that a client with the cluster key may propose as well; all others need a node."""


@dataclass(slots=True)
class PeerSession:
    """The session of a peer that has greeted."""

    address: PeerAddress
    client_id: str
    kind: PeerKind
    instance_epoch: int
    version: int
    heard: float
    proven: bool = False
    """True if the peer has proved that it holds the cluster key; nodes always have."""


@dataclass(slots=True)
class _Handshake:
    """The HELLO of a node that was challenged."""

    hello: Hello
    nonce: bytes
    version: int
    at: float


class Acceptor:
    """The sessions of one or more listeners of a node."""

    def __init__(
        self, node_id: str, cluster_key: bytes, rng: random.Random, cluster_id: str = ""
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.version_max = PROTOCOL_VERSION
        self._key = cluster_key
        self._rng = rng
        self._peers: dict[PeerAddress, PeerSession] = {}
        self._greetings: dict[PeerAddress, _Handshake] = {}
        self._swept = 0.0
        self._expelled: frozenset[str] = frozenset()

    def expel(self, name_servers: Collection[str]) -> None:
        """End the sessions of name servers that were removed from the group for good.

        They are told so when they greet again.
        """
        if len(name_servers) == len(self._expelled):
            return
        self._expelled = frozenset(name_servers)
        for address, peer in list(self._peers.items()):
            if peer.kind == "name-server" and peer.client_id in self._expelled:
                del self._peers[address]

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def greetings(self) -> int:
        """The number of unanswered challenges to nodes."""
        return len(self._greetings)

    def peer(self, address: PeerAddress) -> PeerSession | None:
        """Return the session at an address, if there is one."""
        return self._peers.get(address)

    def kind_of(self, address: PeerAddress) -> PeerKind | None:
        """Return the kind of the session at an address, if there is one."""
        peer = self._peers.get(address)
        return None if peer is None else peer.kind

    def admit(
        self, address: PeerAddress, frames: Sequence[Frame], out: Effects, now: float
    ) -> tuple[PeerSession, AnyMessage, Sequence[Frame]] | None:
        """Decode a request; return it with its session, or None if it needs no further service."""
        peer = self._peers.get(address)
        try:
            if peer is None and frames and len(frames[0]) > MAX_STRANGERS_FRAME:
                # This may be a request after a reconnect. It is repeated after the greeting.
                out.sends.append(Send(address, encode(NeedHello(0))))
                return None
            _check_size(peer, frames)
            message = decode(frames)
        except InvalidRequest as error:
            number = error.fields.get("id")
            out.sends.append(
                Send(address, error_frames(number if isinstance(number, int) else 0, error))
            )
            return None
        if peer is not None:
            peer.heard = now
        match message:
            case Hello():
                self._greet(address, message, out, now)
            case Prove():
                self._check(address, message, out, now)
            case _ if peer is None:
                out.sends.append(Send(address, encode(NeedHello(0))))
            case Ping():
                out.sends.append(Send(address, encode(Pong(message.id))))
            case _:
                denied = _denial(peer, message)
                if denied is not None:
                    out.sends.append(Send(address, error_frames(message.id, denied)))
                    return None
                return peer, message, frames[1:]
        return None

    def sweep(self, now: float) -> list[PeerAddress]:
        """Drop silent sessions, at most once a second, and return their addresses."""
        if now - self._swept < 1.0:
            return []
        self._swept = now
        gone = [a for a, p in self._peers.items() if now - p.heard > IDLE]
        if len(self._peers) - len(gone) > MAX_SESSIONS:
            by_silence = sorted(self._peers.values(), key=lambda p: p.heard)
            gone = [p.address for p in by_silence[: len(self._peers) - MAX_SESSIONS]]
        for address in gone:
            del self._peers[address]
        for address in [a for a, g in self._greetings.items() if now - g.at > PROVE_S]:
            del self._greetings[address]
        return gone

    def _greet(self, address: PeerAddress, hello: Hello, out: Effects, now: float) -> None:
        fault = _fault_of(hello)
        if fault is not None:
            out.sends.append(
                Send(address, error_frames(hello.id, InvalidRequest(fault, "TOO_LARGE")))
            )
            return
        version = min(hello.version_max, self.version_max)
        if version < max(hello.version_min, OLDEST_VERSION):
            text = (
                f"{self.node_id} speaks protocol {OLDEST_VERSION} to {self.version_max}, you speak "
                f"{hello.version_min} to {hello.version_max}: upgrade the older side"
            )
            error = Refused(text, "UNSUPPORTED_VERSION")
            out.sends.append(Send(address, error_frames(hello.id, error)))
            return
        if hello.kind == "client" and not hello.nonce:
            self._open(address, hello, version, out, now)
            return
        nonce = self._rng.randbytes(16)
        self._greetings.pop(address, None)
        while len(self._greetings) >= MAX_GREETINGS:
            del self._greetings[next(iter(self._greetings))]
        self._greetings[address] = _Handshake(hello, nonce, version, now)
        shown = proof(self._key, "listener", hello.nonce, nonce, hello.client_id)
        # The id is not that of HELLO, because a challenge is no answer yet.
        out.sends.append(Send(address, encode(Challenge(0, nonce, shown))))

    def _check(self, address: PeerAddress, message: Prove, out: Effects, now: float) -> None:
        greeting = self._greetings.pop(address, None)
        if greeting is None:
            out.sends.append(Send(address, encode(NeedHello(0))))
            return
        hello = greeting.hello
        expected = proof(self._key, "dialer", hello.nonce, greeting.nonce, hello.client_id)
        if not verify_proof(expected, message.proof):
            mend = "give all nodes the same key file"
            if hello.kind == "client":
                mend = "use the key file that this cluster's nodes have"
            text = f"{self.node_id} has another cluster key: {mend}"
            error = Refused(text, "UNAUTHENTICATED")
            out.sends.append(Send(address, error_frames(message.id, error)))
            return
        if hello.kind == "name-server" and hello.client_id in self._expelled:
            error = Refused(removed_text(hello.client_id), "FENCED")
            out.sends.append(Send(address, error_frames(message.id, error)))
            return
        self._open(address, hello, greeting.version, out, now, proven=True)

    def _open(
        self,
        address: PeerAddress,
        hello: Hello,
        version: int,
        out: Effects,
        now: float,
        *,
        proven: bool = False,
    ) -> None:
        self._peers[address] = PeerSession(
            address, hello.client_id, hello.kind, hello.instance_epoch, version, now, proven
        )
        out.sends.append(Send(address, encode(Welcome(0, version, self.node_id, self.cluster_id))))


def removed_text(name_server: str) -> str:
    """Return the text that a removed name server gets."""
    return (
        f"{name_server} was removed from the group of name servers: it serves nobody any more; to "
        "take part again, join with an empty data folder under an id never used before"
    )


def _fault_of(hello: Hello) -> str | None:
    """Return the text of the error if a field of HELLO is too long, else None."""
    if len(hello.client_id) > MAX_CLIENT_ID:
        return (
            f"client_id of {len(hello.client_id)} characters; at most {MAX_CLIENT_ID} are accepted"
        )
    if len(hello.credentials) > MAX_CREDENTIALS:
        return (
            f"credentials of {len(hello.credentials)} bytes; at most {MAX_CREDENTIALS} are accepted"
        )
    if len(hello.nonce) > MAX_NONCE:
        return f"nonce of {len(hello.nonce)} bytes; at most {MAX_NONCE} are accepted"
    return None


def _check_size(peer: PeerSession | None, frames: Sequence[Frame]) -> None:
    """Check the size of a request before any of it is decoded.

    Raises:
        InvalidRequest: MALFORMED or TOO_LARGE.
    """
    if len(frames) > MAX_FRAMES:
        text = f"a message of {len(frames)} frames; at most {MAX_FRAMES} are accepted"
        raise InvalidRequest(text, "MALFORMED")
    if peer is not None and peer.kind == "client" and frames and len(frames[0]) > MAX_CLIENTS_FRAME:
        text = f"message frame of {len(frames[0])} bytes; at most {MAX_CLIENTS_FRAME} are accepted"
        raise InvalidRequest(text, "TOO_LARGE", id=id_of(frames[0]))


def _denial(peer: PeerSession, message: WireMessage) -> LogboomError | None:
    """Return the error if a session may not send a message, else None."""
    if peer.kind != "client":
        return None
    asked = message.command if isinstance(message, Propose) else message
    name = type(asked).__name__
    if isinstance(asked, OPERATORS_ONLY + OPERATOR_COMMANDS):
        if peer.proven:
            return None
        text = (
            f"{name} needs the cluster key: say --key-file FILE (or LOGBOOM_KEY_FILE), in Python "
            "connect(..., cluster_key=...), with the cluster_key_file that the nodes' configs name"
        )
        return Refused(text, "UNAUTHENTICATED")
    open_to_clients = not isinstance(message, NODES_ONLY)
    if isinstance(message, Propose):
        open_to_clients = isinstance(message.command, CLIENT_COMMANDS)
    if open_to_clients:
        return None
    return Refused(f"{name} is only for nodes that hold the cluster key", "UNAUTHENTICATED")


def error_frames(number: int, error: LogboomError) -> list[Frame]:
    """Return the frames that answer request `number` with an error."""
    fields = {k: v for k, v in error.fields.items() if k != "id"}
    return encode(Failure(number, error.code, error.text, error.retryable, fields))
