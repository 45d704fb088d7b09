"""The listening side, pure: the sessions behind routing ids, and what each may request.

`Acceptor.admit` decodes frames. It answers messages about the connection itself (HELLO, proof,
ping) and malformed frames, and passes all others on with the peer's identity. A peer without a
session gets NEED_HELLO (see docs/SAFETY.md, W1). A peer that is silent for `IDLE` seconds is
forgotten and must greet again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_commands import (
    AddRule,
    AddUserKey,
    AlterUser,
    CreateRole,
    CreateUser,
    DeleteRole,
    DeleteUser,
    RemoveRule,
    RemoveUserKey,
    SetDefaultQuota,
)
from logboom.wire.access.access_rules import is_node_user, node_user, user_of
from logboom.wire.actor import Effects, PeerAddress, Send
from logboom.wire.authorizer import Authorizer
from logboom.wire.base import SMALL_FRAME, WireMessage
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterTopic,
    Barrier,
    CreateTopic,
    DeleteTopic,
    DiscardLostTopic,
    ElectLeader,
    FinishRestore,
    RemoveBroker,
    RestoreCounters,
    RestoreDecisions,
    RestoreGroup,
    RestoreTopic,
)
from logboom.wire.connection_info import ConnectionInfo
from logboom.wire.errors import (
    InvalidRequest,
    LogboomError,
    Refused,
    Unauthenticated,
    Unavailable,
)
from logboom.wire.frames import Frame, decode_request, encode
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
    Watch,
    Welcome,
)
from logboom.wire.operation_commands import (
    AlterSettings,
    CancelReassign,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.sight import Sight
from logboom.wire.stats import Histogram, Statistics
from logboom.wire.transactions import Decide, OpenApplication

IDLE: Final = 30.0
"""Seconds of silence after which a session is forgotten."""
MAX_SESSIONS: Final = 20_000
"""Maximum number of sessions of a listener; beyond it the longest silent are dropped first."""
PROVE_S: Final = 10.0
"""Seconds that a node has to answer a challenge."""
LOOKED_AT_ONCE: Final = 1_000
"""Sessions whose keys a turn checks after a change."""
MAX_GREETINGS: Final = 1_000
"""Maximum number of unanswered challenges; beyond it the oldest are dropped first."""
MAX_BEYOND_QUOTA: Final = 16
"""Connections of a user that may wait for its quota; beyond it the oldest are reset first."""
MAX_CLIENT_ID: Final = 256
"""Maximum length of a client id, in characters."""
MAX_CREDENTIALS: Final = 8 * 1024
"""Maximum length of the credentials in HELLO, in bytes."""
MAX_NONCE: Final = 64
"""Maximum length of a nonce, in bytes."""
MAX_STRANGERS_FRAME: Final = SMALL_FRAME
"""Maximum message frame that is decoded without a session, in bytes: HELLO and PROVE are small."""
MAX_PINGS_PER_S: Final = 10
"""Pings of a session that are answered in a second; clients and nodes send one."""
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
OPERATOR_COMMANDS: Final = (
    RemoveBroker,
    DiscardLostTopic,
    CreateUser,
    AlterUser,
    DeleteUser,
    AddUserKey,
    RemoveUserKey,
    CreateRole,
    DeleteRole,
    AddRule,
    RemoveRule,
    SetDefaultQuota,
    Reassign,
    CancelReassign,
    SetBrokerMode,
    AlterSettings,
    RestoreCounters,
    RestoreTopic,
    RestoreGroup,
    RestoreDecisions,
    FinishRestore,
)
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
    principal: str | None = None
    """The user and the key with which its connection was opened; None on a listener without keys.
    """
    opened: float = 0.0
    """When it greeted, in monotonic seconds."""
    under_way: dict[int, tuple[Histogram, float]] = field(default_factory=dict)
    """Requests that are timed: number → where their duration is counted, and when they arrived."""

    user: str = field(init=False)
    """The user, or "" on a listener without keys."""
    pings_since: float = 0.0
    """Begin of the second in which its pings are counted."""
    pings: int = 0

    def __post_init__(self) -> None:
        # Every request asks for it.
        self.user = "" if self.principal is None else user_of(self.principal)

    def may_ping(self, now: float) -> bool:
        """Note a ping; return False if there were too many in this second to answer it."""
        if now - self.pings_since >= 1.0:
            self.pings_since, self.pings = now, 0
        self.pings += 1
        return self.pings <= MAX_PINGS_PER_S


@dataclass(slots=True)
class _Handshake:
    """The HELLO of a node that was challenged."""

    hello: Hello
    nonce: bytes
    version: int
    at: float
    principal: str | None


OnDenial: TypeAlias = Callable[
    [PeerAddress, str | None, PeerSession | None, AnyMessage, LogboomError], None
]
"""Takes an address, its principal, its session if it has one, what it asked, and the error."""


def _ignore(
    _address: PeerAddress,
    _principal: str | None,
    _session: PeerSession | None,
    _asked: AnyMessage,
    _error: LogboomError,
) -> None:
    return


class Acceptor:
    """The sessions of one or more listeners of a node."""

    def __init__(
        self, node_id: str, cluster_key: bytes, rng: random.Random, cluster_id: str = ""
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.stats = Statistics()
        """Where sessions and refusals are counted; the owner may set its own."""
        self.version_max = PROTOCOL_VERSION
        self.max_request_bytes = 0
        """Largest frame that the node accepts, as WELCOME tells it."""
        self._keys: tuple[bytes, ...] = (cluster_key,)
        """The cluster key, and that which counts besides while it is changed."""
        self._proven_by: dict[PeerAddress, bytes] = {}
        """Session of a holder of the cluster key → the key."""
        self._rng = rng
        self._peers: dict[PeerAddress, PeerSession] = {}
        self._of_kinds: dict[PeerKind, int] = {"client": 0, "broker": 0, "name-server": 0}
        """Kind → number of its sessions."""
        self._of_users: dict[str, dict[PeerAddress, None]] = {}
        """User → its sessions, in the order of their greetings: sessions end in the same order everywhere."""
        self._beyond_quota: dict[str, dict[PeerAddress, None]] = {}
        """User → its connections that were turned away by its quota, the latest last."""
        self._greetings: dict[PeerAddress, _Handshake] = {}
        self._swept = self._revoked_at = 0.0
        self._to_look_at: list[PeerAddress] = []
        """Sessions that `end_revoked` has yet to look at, the next one last."""
        self._revoked_version = -1
        """Version of the rules by which `end_revoked` has looked."""
        self._expelled: frozenset[str] = frozenset()
        self._rivals: dict[str, int] = {}
        self._rival_text: Callable[[str], str] = str
        self.authorizer = Authorizer(AccessBook)
        """Decides on listeners with keys; it knows nobody until its owner sets another."""
        self.on_denial: OnDenial = _ignore
        """Is told of each peer that is not served, for the audit log."""
        self.postpones: Callable[[PeerSession, AnyMessage, LogboomError, Effects, float], bool] = (
            lambda *_: False
        )
        """Returns True if a user's quota makes a refusal wait: somebody else answers then."""
        self.is_connected: Callable[[PeerAddress], bool] = lambda _: True
        """Returns False if the connection of a session has ended; the skin sets this."""
        self.inspect: Callable[[PeerAddress], ConnectionInfo | None] = lambda _: None
        """Returns what the system says of a connection; the skin sets this."""
        self.decided_later: tuple[type[WireMessage], ...] = ()
        """Requests of users about whose rights their handler decides, since it knows newer rules."""

    def take_cluster_keys(self, keys: Sequence[bytes]) -> None:
        """Prove this node with the first of these keys from now on, and accept each.

        Sessions of holders of other keys end: their peers greet again.
        """
        self._keys = tuple(keys)
        for address in [peer for peer, key in self._proven_by.items() if key not in self._keys]:
            self.end(address)

    def expel(self, name_servers: Collection[str]) -> None:
        """End the sessions of name servers that were removed from the group for good.

        They are told so when they greet again.
        """
        if len(name_servers) == len(self._expelled):
            return
        self._expelled = frozenset(name_servers)
        for address, peer in list(self._peers.items()):
            if peer.kind == "name-server" and peer.client_id in self._expelled:
                self.end(address)

    def refuse_processes(self, rivals: Mapping[str, int], text: Callable[[str], str]) -> None:
        """End the sessions of name servers' second processes (name server → number of the process).

        They are told `text` when they greet again.
        """
        if self._rivals == rivals:
            return
        self._rivals, self._rival_text = dict(rivals), text
        for address, peer in list(self._peers.items()):
            if self._is_rival(peer.kind, peer.client_id, peer.instance_epoch):
                self.end(address)

    def _is_rival(self, kind: PeerKind, name: str, process: int) -> bool:
        return kind == "name-server" and process != 0 and self._rivals.get(name) == process

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def greetings(self) -> int:
        """The number of unanswered challenges to nodes."""
        return len(self._greetings)

    def figures(self) -> dict[str, int]:
        """Return the number of sessions by the kind of their peers, for STATS."""
        return {f"sessions.{kind}": count for kind, count in self._of_kinds.items()}

    def sessions(self) -> Iterable[PeerSession]:
        """Return all sessions."""
        return self._peers.values()

    def end(self, address: PeerAddress) -> None:
        """End the session at an address, if there is one; its peer has to greet again."""
        peer = self._peers.pop(address, None)
        if peer is None:
            return
        self._proven_by.pop(address, None)
        self._of_kinds[peer.kind] -= 1
        self.stats.counters["sessions_closed"] += 1
        if peer.user:
            of_user = self._of_users[peer.user]
            of_user.pop(address, None)
            if not of_user:
                del self._of_users[peer.user]

    def end_revoked(self, now: float) -> list[PeerAddress]:
        """End the sessions of keys that are no longer accepted, and return their addresses.

        Their requests are refused anyway; this is for connections that say nothing. It looks once
        after each change of the rules, and at most once a second, at some sessions in each turn.
        """
        version = self.authorizer.book.version
        if not self._to_look_at:
            if version == self._revoked_version or now - self._revoked_at < 1.0:
                return []
            self._revoked_at, self._revoked_version = now, version
            self._to_look_at = [each for of_user in self._of_users.values() for each in of_user]
            self._to_look_at.reverse()
        part = self._to_look_at[: -LOOKED_AT_ONCE - 1 : -1]
        del self._to_look_at[-LOOKED_AT_ONCE:]
        found = [
            peer.address
            for peer in map(self._peers.get, part)
            if peer is not None and isinstance(self.authorizer.outside(peer), Unauthenticated)
        ]
        for address in found:
            self.end(address)
        return found

    def peer(self, address: PeerAddress) -> PeerSession | None:
        """Return the session at an address, if there is one."""
        return self._peers.get(address)

    def kind_of(self, address: PeerAddress) -> PeerKind | None:
        """Return the kind of the session at an address, if there is one."""
        peer = self._peers.get(address)
        return None if peer is None else peer.kind

    def admit(
        self,
        address: PeerAddress,
        frames: Sequence[Frame],
        out: Effects,
        now: float,
        principal: str | None = None,
    ) -> tuple[PeerSession, AnyMessage, Sequence[Frame]] | None:
        """Decode a request; return it with its session, or None if it needs no further service.

        `principal` is who sent these very frames (`Received.principal`). A session is its own only
        if it greeted as the same: a routing id can be taken over by others (S1).
        """
        peer = self._session_of(address, principal)
        try:
            if peer is None and frames and len(frames[0]) > MAX_STRANGERS_FRAME:
                # This may be a request after a reconnect. It is repeated after the greeting.
                out.sends.append(Send(address, encode(NeedHello(0))))
                return None
            if len(frames) > MAX_FRAMES:
                text = f"a message of {len(frames)} frames; at most {MAX_FRAMES} are accepted"
                raise InvalidRequest(text, "MALFORMED")
            of_client = peer is None or peer.kind == "client"
            message = decode_request(frames, of_client=of_client)
        except InvalidRequest as error:
            number = error.fields.get("id")
            self.stats.count_failure(error.code)
            out.sends.append(
                Send(address, error_frames(number if isinstance(number, int) else 0, error))
            )
            return None
        if peer is not None:
            peer.heard = now
        match message:
            case Hello():
                self._greet(address, message, out, now, principal)
            case Prove():
                self._check(address, message, out, now, principal)
            case _ if peer is None:
                out.sends.append(Send(address, encode(NeedHello(0))))
            case Ping():
                if peer.may_ping(now):
                    out.sends.append(Send(address, encode(Pong(message.id))))
            case _:
                if principal is None:
                    denied = _denial(peer, message)
                elif peer.kind == "client" and isinstance(message, self.decided_later):
                    denied = self.authorizer.outside(peer)
                else:
                    denied = self.authorizer.refusal(peer, message)
                if denied is None:
                    return peer, message, frames[1:]
                self.on_denial(address, principal, peer, message, denied)
                if isinstance(denied, Unauthenticated):
                    # The key was removed, or its user disabled: nobody is behind this address.
                    self.end(address)
                elif principal is not None and self.postpones(peer, message, denied, out, now):
                    return None
                self.stats.count_failure(denied.code)
                # Who wants no answer gets none.
                if message.id or principal is None:
                    out.sends.append(Send(address, error_frames(message.id, denied)))
        return None

    def sight(self, address: PeerAddress) -> Sight | None:
        """Return what the session at an address may see; None: everything.

        Who has no session any more sees nothing.
        """
        peer = self._peers.get(address)
        return Sight(AccessBook, "") if peer is None else self.authorizer.sight(peer)

    def recheck(self, address: PeerAddress, message: WireMessage) -> LogboomError | None:
        """Return why a request that waits here may not be answered any more, or None.

        For requests that were admitted before the rules changed.
        """
        peer = self._peers.get(address)
        if peer is None:
            return Unavailable("the session of this request has ended: greet, and ask again")
        if isinstance(message, self.decided_later):
            return self.authorizer.outside(peer)
        return self.authorizer.refusal(peer, message)

    def _session_of(self, address: PeerAddress, principal: str | None) -> PeerSession | None:
        """Return the session at an address if it is of this principal."""
        peer = self._peers.get(address)
        return None if peer is None or peer.principal != principal else peer

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
            self.end(address)
        for address in [a for a, g in self._greetings.items() if now - g.at > PROVE_S]:
            del self._greetings[address]
        return gone

    def _greet(
        self,
        address: PeerAddress,
        hello: Hello,
        out: Effects,
        now: float,
        principal: str | None,
    ) -> None:
        fault = _fault_of(hello)
        if fault is not None:
            self.stats.count_failure("TOO_LARGE")
            out.sends.append(
                Send(address, error_frames(hello.id, InvalidRequest(fault, "TOO_LARGE")))
            )
            return
        foreign = _foreign_key(hello, principal) or self._foreign_kind(hello, principal)
        if foreign is not None:
            self._turn_away(address, principal, hello, Unauthenticated(foreign), out)
            return
        ended = None if principal is None else self.authorizer.ended(principal)
        if ended is not None:
            self._turn_away(address, principal, hello, ended, out)
            return
        if self._is_beyond_quota(address, principal, hello, out):
            return
        version = min(hello.version_max, self.version_max)
        if version < max(hello.version_min, OLDEST_VERSION):
            text = (
                f"{self.node_id} speaks protocol {OLDEST_VERSION} to {self.version_max}, you speak "
                f"{hello.version_min} to {hello.version_max}: upgrade the older side"
            )
            self._turn_away(address, principal, hello, Refused(text, "UNSUPPORTED_VERSION"), out)
            return
        if hello.kind == "client" and not hello.nonce:
            self._open(address, hello, version, out, now, principal)
            return
        nonce = self._rng.randbytes(16)
        self._greetings.pop(address, None)
        while len(self._greetings) >= MAX_GREETINGS:
            del self._greetings[next(iter(self._greetings))]
        self._greetings[address] = _Handshake(hello, nonce, version, now, principal)
        shown = proof(self._keys[0], "listener", hello.nonce, nonce, hello.client_id)
        # The id is not that of HELLO, because a challenge is no answer yet.
        out.sends.append(Send(address, encode(Challenge(0, nonce, shown))))

    def _foreign_kind(self, hello: Hello, principal: str | None) -> str | None:
        """Return the text of the error if a node greets as another kind than it is, else None (A7)."""
        if principal is None or hello.kind == "client":
            return None
        if self.authorizer.is_node_of(user_of(principal), hello.kind):
            return None
        return f"{hello.client_id!r} is known as another kind of node: it cannot be a {hello.kind}"

    def _check(
        self,
        address: PeerAddress,
        message: Prove,
        out: Effects,
        now: float,
        principal: str | None,
    ) -> None:
        greeting = self._greetings.pop(address, None)
        if greeting is None or greeting.principal != principal:
            out.sends.append(Send(address, encode(NeedHello(0))))
            return
        hello = greeting.hello
        found: bytes | None = None
        for key in self._keys:
            expected = proof(key, "dialer", hello.nonce, greeting.nonce, hello.client_id)
            if verify_proof(expected, message.proof):
                found = key
        if found is None:
            mend = "give all nodes the same key file"
            if hello.kind == "client":
                mend = "use the key file that this cluster's nodes have"
            text = f"{self.node_id} has another cluster key: {mend}"
            error = Refused(text, "UNAUTHENTICATED")
            self._turn_away(address, principal, hello, error, out)
            return
        if hello.kind == "name-server" and hello.client_id in self._expelled:
            error = Refused(removed_text(hello.client_id), "FENCED")
            self._turn_away(address, principal, hello, error, out)
            return
        if self._is_rival(hello.kind, hello.client_id, hello.instance_epoch):
            error = Refused(self._rival_text(hello.client_id), "FENCED")
            self._turn_away(address, principal, hello, error, out)
            return
        # Others of the same user may have greeted while it proved itself.
        if self._is_beyond_quota(address, principal, hello, out):
            return
        self._open(address, hello, greeting.version, out, now, principal, proven=True)
        if address in self._peers:
            self._proven_by[address] = found

    def _turn_away(
        self,
        address: PeerAddress,
        principal: str | None,
        hello: Hello,
        error: LogboomError,
        out: Effects,
    ) -> None:
        """Refuse a greeting; PROVE has the number of its HELLO."""
        self.on_denial(address, principal, None, hello, error)
        self.stats.count_failure(error.code)
        out.sends.append(Send(address, error_frames(hello.id, error)))

    def _open(
        self,
        address: PeerAddress,
        hello: Hello,
        version: int,
        out: Effects,
        now: float,
        principal: str | None,
        *,
        proven: bool = False,
    ) -> None:
        # It may greet again, and as somebody else.
        self.end(address)
        user = "" if principal is None else user_of(principal)
        if user:
            self._of_users.setdefault(user, {})[address] = None
            self._forget_beyond(user, address)
        self._of_kinds[hello.kind] += 1
        self.stats.counters["sessions_opened"] += 1
        self._peers[address] = PeerSession(
            address,
            hello.client_id,
            hello.kind,
            hello.instance_epoch,
            version,
            now,
            proven,
            principal,
            now,
        )
        welcome = Welcome(0, version, self.node_id, self.cluster_id, self.max_request_bytes)
        out.sends.append(Send(address, encode(welcome)))

    def _is_beyond_quota(
        self, address: PeerAddress, principal: str | None, hello: Hello, out: Effects
    ) -> bool:
        """Turn a greeting away if its user has as many connections as its quota allows.

        Its connection may go on trying. Of many that do, the oldest are reset.
        """
        user = "" if principal is None else user_of(principal)
        busy = self._too_many(user, address) if user and not is_node_user(user) else None
        if busy is None:
            return False
        self.end(address)
        self._turn_away(address, principal, hello, busy, out)
        self._forget_beyond(user, address)
        beyond = self._beyond_quota.setdefault(user, {})
        beyond[address] = None
        if len(beyond) > MAX_BEYOND_QUOTA:
            oldest = next(iter(beyond))
            del beyond[oldest]
            out.kicks.append(oldest)
        return True

    def _forget_beyond(self, user: str, address: PeerAddress) -> None:
        beyond = self._beyond_quota.get(user)
        if beyond is not None:
            beyond.pop(address, None)
            if not beyond:
                del self._beyond_quota[user]

    def _too_many(self, user: str, address: PeerAddress) -> LogboomError | None:
        """Return the error if a user has as many other connections as its quota allows, else None."""
        limit = self.authorizer.book.quota_of(user).connections
        if not limit or self._others(user, address) < limit:
            return None
        # A client that has lost its connection greets over another one, before its session ends.
        for each in [a for a in self._of_users[user] if not self.is_connected(a)]:
            self.end(each)
        if self._others(user, address) < limit:
            return None
        text = (
            f"user {user!r} has {limit} connections to {self.node_id}, which is its quota: close "
            f"some, or raise it (`logboom quota set {user} --connections {2 * limit}`)"
        )
        return Unavailable(text, "BUSY", limit=limit)

    def _others(self, user: str, address: PeerAddress) -> int:
        of_user = self._of_users.get(user, {})
        return len(of_user) - (address in of_user)


def removed_text(name_server: str) -> str:
    """Return the text that a removed name server gets."""
    return (
        f"{name_server} was removed from the group of name servers: it serves nobody any more; to "
        "take part again, join with an empty data folder under an id never used before"
    )


def _foreign_key(hello: Hello, principal: str | None) -> str | None:
    """Return the text of the error if a peer greets as something that its key is not, else None."""
    if principal is None:
        return None
    user = user_of(principal)
    if hello.kind == "client":
        if is_node_user(user):
            return f"{user} is a node's key: connect with the credentials file of a user"
        return None
    wanted = node_user(hello.client_id)
    if user == wanted:
        return None
    return (
        f"{hello.kind} {hello.client_id!r} has a key of {user!r}: give it a credentials file of "
        f"{wanted!r} (logboom node add {hello.client_id})"
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
    if isinstance(message, Watch) and message.access:
        return Refused("users and access rules are told to nodes only", "UNAUTHENTICATED")
    if isinstance(message, Propose):
        open_to_clients = isinstance(message.command, CLIENT_COMMANDS)
    if open_to_clients:
        return None
    return Refused(f"{name} is only for nodes that hold the cluster key", "UNAUTHENTICATED")


def error_frames(number: int, error: LogboomError) -> list[Frame]:
    """Return the frames that answer request `number` with an error."""
    fields = {k: v for k, v in error.fields.items() if k != "id"}
    return encode(Failure(number, error.code, error.text, error.retryable, fields))
