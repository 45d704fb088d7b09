"""Links between name servers: two one-way streams that begin and end together (R1, R10).

Each name server dials the "raft" listener of each other one, and sends it the numbered frames of a
session. A link is up once the peer has echoed our session; then our Raft node receives its frames.
A gap, silence or redial ends the link: we begin a new session, the peer sees a session that is new
to it, and begins one too. Within one pair of sessions, frames are therefore delivered in order or
not at all.

A name server that is unknown here, but has proved the cluster key and names its endpoint, is a
*guest*. It may have been added while this one was down, and may be the leader that has to tell it.
Its link works like any other until the membership is up to date.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from logboom.wire.actor import Effects, HandshakeFailed
from logboom.wire.errors import LogboomError
from logboom.wire.features import FEATURES, SOFTWARE
from logboom.wire.frames import Frame
from logboom.wire.hello import Identity
from logboom.wire.listeners import ListenerView
from logboom.wire.messages import RaftFrame
from logboom.wire.session import Session

KEEP_ALIVE: Final = 0.5
"""Seconds after which something is sent, if only an empty frame."""
SILENCE: Final = 2.0
"""Seconds without a frame after which a link is down."""
RESTART_AFTER: Final = 0.1
"""Minimum seconds between two sessions that we begin on one link."""
GREET_AGAIN: Final = 2.0
"""Seconds after which a peer that refused us is asked again."""

RIVAL_COUNT: Final = 4
"""Number of seconds in which two processes of one Raft id were heard, before one is refused."""

GUEST_SILENCE: Final = 30.0
"""Seconds without a frame after which a guest is forgotten."""
MAX_GUESTS: Final = 8


Announced: TypeAlias = tuple[list[ListenerView], list[ListenerView]]
"""The listeners of a name server: for clients and brokers, and for other name servers."""


class RaftLinksHost(Protocol):
    """The Raft node, as its links see it."""

    def peer_up(self, peer: str, session: int) -> None:
        """Begin a fresh FIFO session with a peer."""

    def peer_down(self, peer: str) -> None:
        """End the session with a peer."""

    def receive(self, peer: str, frame: bytes, session: int | None = None) -> bool:
        """Take a frame; False if it is malformed and the session must restart."""


@dataclass(slots=True)
class _Link:
    peer: str
    session: Session
    """The connection that we dial."""
    generation: int = -1
    """Generation of the connection on which our stream began; -1 before the first."""
    mine: int = 0
    """Session number of the stream that we send."""
    number: int = 0
    """Next number in that stream."""
    began: float = float("-inf")
    theirs: int = 0
    """Session number of the stream that we receive; 0 if there is none."""
    expected: int = 0
    """Next number in that stream."""
    heard: float = 0.0
    said: float = 0.0
    up: int = 0
    """Local number of the pair of sessions while the link is up, else 0."""
    greet_at: float | None = None
    """When to greet a peer again that refused us."""
    turned_away: bool = False
    """True if the peer did not accept our key when we dialled last."""
    guest: bool = False
    """True if it is not known here as a name server."""
    restart: bool = False
    """True if a new session is to begin once the connection is open and `RESTART_AFTER` has passed.
    """
    owner: int = 0
    """Number of the process that answers at the endpoint: it has heard our stream."""
    owner_heard: float = 0.0
    rival: int = 0
    """Number of another process with this Raft id, which has not heard our stream."""
    rival_count: int = 0
    """Number of seconds in which both were heard."""
    rival_at: float = 0.0
    """Time at which it was counted last."""


class RaftLinks:
    """The links to all other name servers."""

    def __init__(self, identity: Identity, user: RaftLinksHost, rng: random.Random) -> None:
        self._identity = identity
        self._user = user
        self._rng = rng
        self._links: dict[str, _Link] = {}
        self._by_endpoint: dict[str, _Link] = {}
        self._former: Collection[str] = ()
        self._ups = 0
        self.endpoint = ""
        """The host:port of our own Raft listener, as the others dial it; empty until it is known.
        """
        self.listeners: Announced = ([], [])
        """The listeners of this node, as it announces them."""
        self.announced: dict[str, Announced] = {}
        """The listeners that each peer announced last."""
        self.journal = ""
        """The id of this node's journal."""
        self.journals: dict[str, str] = {}
        """The id of the journal that each peer announced last."""
        self.noted: Callable[[str], str] = lambda _peer: ""
        """Returns the id of the journal that counts under a peer's Raft id; "" if that is unknown."""
        self.strangers: dict[str, str] = {}
        """Peers that have announced another journal than the one that counts; they are not heard."""
        self.rivals: dict[str, int] = {}
        """Peer → number of a process that has its Raft id, though another one answers at its endpoint;
        it is not heard."""
        self.stranger_to = ""
        """A peer that knows another journal of this node; "" if there is none."""
        self.software: dict[str, tuple[str, int]] = {}
        """The version of each peer's software, and its features level, as announced last."""
        self.gaps = 0
        """Number of streams that a gap ended (a counter for STATS)."""

    def set_peers(
        self,
        endpoints: Mapping[str, str],
        out: Effects,
        now: float,
        former: Collection[str] = (),
    ) -> None:
        """Keep links to exactly these peers (Raft id → Raft endpoint), and to guests.

        Ids in `former` were removed, and are not accepted as guests (R9).
        """
        self._former = former
        for peer, link in list(self._links.items()):
            kept = link.guest and peer not in endpoints and peer not in former
            if endpoints.get(peer) != link.session.endpoint and not kept:
                self._drop(link, out)
        for peer, endpoint in endpoints.items():
            if peer in self._links:
                self._links[peer].guest = False
            else:
                self._add(peer, endpoint, out, now)

    def _add(self, peer: str, endpoint: str, out: Effects, now: float) -> _Link:
        known = self._by_endpoint.get(endpoint)
        if known is not None:
            self._drop(known, out)
        session = Session(endpoint, self._identity, self._rng, now)
        link = _Link(peer, session, heard=now, restart=True)
        self._links[peer] = self._by_endpoint[endpoint] = link
        if endpoint in out.hangups:
            # Another name server has taken the place of one: reconnect.
            out.hangups.remove(endpoint)
            out.redials.append(endpoint)
        session.open(out, now)
        return link

    def _drop(self, link: _Link, out: Effects) -> None:
        self._take_down(link)
        del self._links[link.peer]
        del self._by_endpoint[link.session.endpoint]
        out.hangups.append(link.session.endpoint)

    def _guest(self, message: RaftFrame, out: Effects, now: float) -> _Link | None:
        """Return a link to a name server that is unknown here, if it may belong to the group."""
        guests = sum(link.guest for link in self._links.values())
        if (
            not message.endpoint
            or message.sender in self._former
            or message.endpoint in self._by_endpoint
            or guests >= MAX_GUESTS
        ):
            return None
        link = self._add(message.sender, message.endpoint, out, now)
        link.guest = True
        return link

    def is_up(self, peer: str) -> bool:
        """Return True if frames to and from this peer flow."""
        link = self._links.get(peer)
        return link is not None and link.up > 0

    def peer_at(self, endpoint: str) -> str:
        """Return the id of the peer at a Raft endpoint, or ""."""
        link = self._by_endpoint.get(endpoint)
        return "" if link is None else link.peer

    def dials(self, endpoint: str) -> bool:
        """Return True if there is a link to a Raft endpoint."""
        return endpoint in self._by_endpoint

    def is_open(self, endpoint: str, peer: str) -> bool:
        """Return True if `peer` has answered at a Raft endpoint."""
        link = self._by_endpoint.get(endpoint)
        return link is not None and link.session.state == "open" and link.session.peer_id == peer

    def up_count(self) -> int:
        """Number of links that are up."""
        return sum(link.up > 0 for link in self._links.values())

    def refusal(self, *, belongs: bool = False) -> LogboomError | None:
        """Return the peers' refusal if all refuse us and none ever heard us: a foreign cluster.

        If this node `belongs` to a cluster, a peer that does not know its key says nothing: it may
        lag behind the change that gave us this key, and it needs us to learn of it.
        """
        refusals = [link.session.refusal for link in self._links.values()]
        if self._ups or not refusals or None in refusals:
            return None
        if belongs and any(link.turned_away for link in self._links.values()):
            return None
        return refusals[0]

    def removal(self) -> LogboomError | None:
        """Return the error of a peer that knows this node as removed."""
        refusals = [link.session.refusal for link in self._links.values()]
        return next((r for r in refusals if r is not None and r.code == "FENCED"), None)

    def send(self, peer: str, payload: bytes, out: Effects, now: float) -> None:
        """Send a Raft frame; drop it if the link is not up, which the Raft node knows."""
        link = self._links.get(peer)
        if link is not None and link.up:
            self._tell(link, [payload], out, now)

    def from_dialled(
        self, endpoint: str, frames: Sequence[Frame], out: Effects, now: float
    ) -> bool:
        """Take a message from a connection that we dialled; False if it is not one of ours."""
        link = self._by_endpoint.get(endpoint)
        if link is None:
            return False
        link.turned_away = False
        link.session.receive(frames, out, now)
        self._check(link, out, now)
        return True

    def handshake_failed(self, failure: HandshakeFailed, out: Effects, now: float) -> bool:
        """Take the failure of a connection that we dialled; False if it is not one of ours."""
        link = self._by_endpoint.get(failure.endpoint)
        if link is None:
            return False
        link.turned_away = True
        link.session.handshake_failed(failure.reason, now)
        self._check(link, out, now)
        return True

    def from_peer(
        self,
        message: RaftFrame,
        batches: Sequence[Frame],
        out: Effects,
        now: float,
        process: int = 0,
    ) -> None:
        """Take a frame of an authenticated peer; one that is unknown here may be a guest.

        Args:
            process: the number of its process; 0: it has none.
        """
        link = self._links.get(message.sender) or self._guest(message, out, now)
        if link is None:
            return
        if process and self._is_rival(link, process, bool(message.echo), now):
            return
        if message.number == 0:
            self.announced[message.sender] = (message.listeners, message.raft_listeners)
            self.software[message.sender] = (message.software, message.features)
            self._compare_journals(link, message)
        if message.noted and self.journal and message.noted != self.journal:
            self.stranger_to = link.peer
        if link.peer in self.strangers:
            return
        if message.session != link.theirs:
            self._meet(link, message, now)
        elif message.number != link.expected:
            self.gaps += 1
            self._restart(link)
        else:
            link.expected += 1
            link.heard = now
            self._hear(link, message, batches)
        self._check(link, out, now)

    def _compare_journals(self, link: _Link, message: RaftFrame) -> None:
        """Hear a peer only with the journal that counts under its Raft id (R9)."""
        peer, noted = link.peer, self.noted(link.peer)
        self.journals[peer] = message.journal
        if message.journal and noted and message.journal != noted:
            self.strangers[peer] = message.journal
            self._take_down(link)
        else:
            self.strangers.pop(peer, None)

    def _is_rival(self, link: _Link, process: int, hears_us: bool, now: float) -> bool:
        """Return True if another process of this Raft id lives, and answers at its endpoint.

        Two live processes take the link from each other for ever: each begins a stream that is new to
        us. A process that was restarted is none, since the one before it is heard no more.
        """
        if hears_us:
            link.owner, link.owner_heard = process, now
            link.rival = 0 if link.rival == process else link.rival
        elif link.owner and process not in (link.owner, link.rival):
            link.rival, link.rival_count, link.rival_at = process, 0, now
        elif process == link.rival and link.owner_heard > link.rival_at <= now - 1.0:
            link.rival_count += 1
            link.rival_at = now
            if link.rival_count == RIVAL_COUNT:
                self.rivals[link.peer] = process
        return self.rivals.get(link.peer) == process

    def tick(self, out: Effects, now: float) -> None:
        """Redial, keep alive, and end silent links."""
        for link in [link for link in self._links.values() if link.guest]:
            if now - link.heard >= GUEST_SILENCE:
                self._drop(link, out)
        for link in self._links.values():
            link.session.tick(out, now)
            if link.greet_at is not None and now >= link.greet_at:
                link.greet_at = None
                link.session.open(out, now)
            if link.up and now - link.heard >= SILENCE:
                self._restart(link)
            self._check(link, out, now)
            if link.mine and not link.restart and now - link.said >= KEEP_ALIVE:
                self._tell(link, [], out, now)

    def deadline(self) -> float | None:
        """Return when `tick` is due next."""
        wanted: list[float] = []
        for link in self._links.values():
            session = link.session.deadline()
            if session is not None:
                wanted.append(session)
            if link.restart and link.session.state == "open":
                wanted.append(link.began + RESTART_AFTER)
            elif link.mine and not link.restart:
                wanted.append(link.said + KEEP_ALIVE)
            if link.up:
                wanted.append(link.heard + SILENCE)
            elif link.guest:
                wanted.append(link.heard + GUEST_SILENCE)
            if link.greet_at is not None:
                wanted.append(link.greet_at)
        return min(wanted, default=None)

    def _meet(self, link: _Link, message: RaftFrame, now: float) -> None:
        """Accept a stream that is new to us."""
        if message.number != 0:
            # Its beginning is lost, or it is the rest of a stream that we gave up.
            self._restart(link)
            return
        unknown = link.number > 1 and message.echo != link.mine
        stale = link.up > 0 or unknown
        link.theirs = message.session
        link.expected = 1
        link.heard = now
        if stale:
            # The peer has forgotten the stream that we sent it, or never heard its beginning.
            self._restart(link, forget=False)
        elif message.echo == link.mine and link.mine:
            self._bring_up(link)
        else:
            # Let the peer hear its own session as soon as possible.
            link.said = float("-inf")

    def _hear(self, link: _Link, message: RaftFrame, batches: Sequence[Frame]) -> None:
        if not link.up and link.mine and not link.restart and message.echo == link.mine:
            self._bring_up(link)
        if link.up and message.echo == link.mine:
            for payload in batches:
                if not self._user.receive(link.peer, bytes(payload), link.up):
                    self._restart(link)
                    return
        elif message.echo != link.mine:
            link.said = float("-inf")

    def _bring_up(self, link: _Link) -> None:
        self._ups += 1
        link.up = self._ups
        # The peer is up only when it hears its session: send it at once, not at the next
        # keep-alive.
        link.said = float("-inf")
        self._user.peer_up(link.peer, link.up)

    def _take_down(self, link: _Link) -> None:
        if link.up:
            link.up = 0
            self._user.peer_down(link.peer)

    def _restart(self, link: _Link, *, forget: bool = True) -> None:
        """End the link, and begin a new session when that is allowed."""
        self._take_down(link)
        if forget:
            link.theirs = 0
        link.restart = True

    def _check(self, link: _Link, out: Effects, now: float) -> None:
        """Follow the connection: a lost or new one ends our stream; begin one where one is wanted."""
        session = link.session
        if session.state == "refused" and link.greet_at is None:
            link.greet_at = now + GREET_AGAIN
        if link.generation not in (-1, session.generation) or session.state != "open":
            link.generation = -1
            if not link.restart:
                self._restart(link, forget=False)
        if link.restart and session.state == "open" and now - link.began >= RESTART_AFTER:
            link.restart = False
            link.began = now
            link.generation = session.generation
            link.mine = self._rng.getrandbits(62) | 1
            link.number = 0
            self._tell(link, [], out, now)
        elif link.mine and not link.restart and link.said == float("-inf"):
            self._tell(link, [], out, now)

    def _tell(self, link: _Link, payload: list[Frame], out: Effects, now: float) -> None:
        me = self._identity.client_id
        message = RaftFrame(0, me, link.mine, link.number, link.theirs)
        if not link.up:
            message.endpoint = self.endpoint
            message.listeners, message.raft_listeners = self.listeners
            message.software, message.features = SOFTWARE, FEATURES
            message.journal, message.noted = self.journal, self.noted(link.peer)
        if link.session.tell(message, payload, out, now):
            link.number += 1
            link.said = now
        else:
            self._restart(link, forget=False)
