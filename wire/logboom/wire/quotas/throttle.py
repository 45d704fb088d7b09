"""The quotas of users at one node: requests beyond them wait here, and are answered late.

A request that waits is not served yet: nothing of it is written or read. It is served as soon as
none of its user's buckets is overdrawn, so the window of a throttled peer is what a bucket holds:
one second of the rate. While requests wait, their peers are told so (`Throttled`), and let their
deadlines begin anew. Requests without a quota pass by at the cost of one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from logboom.wire.acceptor import PeerSession, error_frames
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import is_node_user
from logboom.wire.actor import Effects, PeerAddress, Send
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.frames import Frame, encode, memory_of
from logboom.wire.group_messages import (
    GroupCommit,
    GroupHeartbeat,
    GroupJoin,
    GroupLeave,
    GroupRelease,
)
from logboom.wire.messages import (
    AnyMessage,
    DescribeConfig,
    Heartbeat,
    KickConnection,
    ListConnections,
    Produced,
    Pulled,
    Replicate,
    Stats,
    Throttled,
)
from logboom.wire.quotas.user_throttle import BATCH_LANES, NEVER, Lane, UserThrottle, lane_of
from logboom.wire.quotas.waiting_line import WaitingRequest
from logboom.wire.stats import Statistics
from logboom.wire.subscription_messages import Delivered, Detach, Receive, SettleMessages
from logboom.wire.transactions import AwaitDecided, CheckHalves, EndHalf

EXEMPT: Final[frozenset[type[WireMessage]]] = frozenset(
    {
        AwaitDecided,
        CheckHalves,
        DescribeConfig,
        ListConnections,
        Detach,
        EndHalf,
        GroupCommit,
        GroupHeartbeat,
        GroupJoin,
        GroupLeave,
        GroupRelease,
        Heartbeat,
        KickConnection,
        Replicate,
        SettleMessages,
        Stats,
    }
)
"""Requests that never wait: signs of life, what ends or confirms work, replication, and what an
administrator needs in trouble."""
MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one user's requests that may wait; further ones are refused and have to be repeated."""
MAX_WAITING: Final = 10_000
"""The same limit in requests."""
MAX_ALL_WAITING_BYTES: Final = 256 * 1024 * 1024
"""Bytes of all users' requests that may wait."""
TICK_S: Final = 0.25
"""Seconds between two looks at the waiting requests. It is less than half of the shortest session of
a subscription's consumer, which must not end while its request waits."""
NOTICE_AFTER_S: Final = 1.0
"""Seconds that a request waits before its peer is told."""
NOTICE_EVERY_S: Final = 2.0
"""Seconds between two notices to a peer."""
PAUSE_EVERY_S: Final = 0.5
"""Seconds between two notices to a peer whose requests are not answered."""
DEAD_S: Final = 3.0
"""Seconds of silence after which a connection counts as dead; a live one is pinged each second."""
LAST_MOMENT_S: Final = 0.5
"""Seconds before its deadline at which a request is refused that its sender does not extend."""
PRUNE_EVERY_S: Final = 30.0
"""Seconds between two removals of peers that are gone."""
MAX_NOTED: Final = 10_000
"""Waits of one peer that are remembered until the answers are sent."""
MAX_SHOWN: Final = 100
"""Users in STATS, those that have waited longest."""


class ThrottledTurn(Protocol):
    """One turn of a node, as its throttle sees it."""

    @property
    def mono(self) -> float:
        """The monotonic time."""
        ...

    @property
    def out(self) -> Effects:
        """The effects."""
        ...

    def refuse(self, address: PeerAddress, number: int, error: LogboomError) -> None:
        """Answer request `number` with an error. Number 0 wants no answer."""
        ...


class PlainTurn:
    """A turn of a node that notes nothing else of what it answers."""

    def __init__(self, out: Effects, now: float, stats: Statistics) -> None:
        self.out = out
        self.mono = now
        self._stats = stats

    def refuse(self, address: PeerAddress, number: int, error: LogboomError) -> None:
        """Answer request `number` with an error. Number 0 wants no answer."""
        self._stats.count_failure(error.code)
        if number:
            self.out.sends.append(Send(address, error_frames(number, error)))


class Released(NamedTuple):
    """A request that has waited, and is served now."""

    session: PeerSession
    message: AnyMessage
    batches: Sequence[Frame]


class _Peer:
    """One connection of a user."""

    __slots__ = ("noticed_at", "paused_at", "principal", "throttled_ms", "user", "waits")

    def __init__(self, principal: str | None, user: UserThrottle) -> None:
        self.principal = principal
        self.user = user
        self.throttled_ms = 0
        self.waits: dict[int, int] = {}
        """Request → milliseconds for which it has waited; not answered yet."""
        self.noticed_at = self.paused_at = float("-inf")
        """When it was told of waiting requests, and to send nothing that is not answered."""


class Throttle:
    """All users that are connected with a key, and their waiting requests."""

    def __init__(
        self,
        books: Callable[[], AccessBook],
        find_session: Callable[[PeerAddress], PeerSession | None],
        recheck: Callable[[PeerAddress, WireMessage], LogboomError | None],
        stats: Statistics,
        keep_attached: Callable[[Receive, str, float], None] = lambda *_of: None,
        exempt: Collection[type[WireMessage]] = EXEMPT,
    ) -> None:
        """Create a throttle without users.

        Args:
            books: returns the newest copy of users and rules.
            find_session: returns the session at an address.
            recheck: returns why a request that has waited may not be served any more, or None.
            keep_attached: called with a waiting Receive, its user and the time, while its connection
                is alive.
            exempt: requests that never wait: those of `EXEMPT` that the node serves.
        """
        self._books = books
        self._find_session = find_session
        self._recheck = recheck
        self._stats = stats
        self._keep_attached = keep_attached
        self._exempt = exempt
        self._users: dict[str, UserThrottle] = {}
        self._peers: dict[PeerAddress, _Peer] = {}
        self._waiting: dict[str, UserThrottle] = {}
        """Users with waiting requests."""
        self._due = NEVER
        self._ticked = 0.0
        self._pruned = 0.0

    @property
    def meter(self) -> Throttle | None:
        """What has to see the answers: nothing, while no peer has a key."""
        return self if self._peers else None

    def figures(self) -> dict[str, int]:
        """Return how much waits, and for how long users have waited."""
        totals = [(user.throttled_ms, user.user) for user in self._users.values()]
        shown = sorted((each for each in totals if each[0]), reverse=True)[:MAX_SHOWN]
        return {
            "throttled_requests": sum(user.waiting for user in self._waiting.values()),
            "throttled_bytes": self._waiting_bytes(),
            **{f"throttle_ms.{name}": total for total, name in shown},
        }

    def deadline(self) -> float:
        """Return when a waiting request is due, or looked at."""
        return self._due

    def throttled_ms_of(self, address: PeerAddress) -> int:
        """Return for how long the requests of a connection have waited in all."""
        peer = self._peers.get(address)
        return peer.throttled_ms if peer is not None else 0

    # ── arrivals ────────────────────────────────────────────────────────────────────────────────

    def takes(
        self,
        session: PeerSession,
        message: AnyMessage,
        batches: Sequence[Frame],
        turn: ThrottledTurn,
        refusal: LogboomError | None = None,
    ) -> bool:
        """Return True if a request is to be served now. Otherwise it waits, or was refused.

        The session must be of a user. `refusal` is the answer, if the request is not to be served at
        all: it counts, too, and its answer waits like one.
        """
        now = turn.mono
        peer = self._peers.get(session.address)
        if peer is None or peer.principal != session.principal:
            peer = self._meet(session, now)
        user = peer.user
        if user.version != self._books().version:
            self._follow(user, now)
        if type(message) in self._exempt and refusal is None:
            return True
        if not user.limited and not user.waiting:
            # Those that wait, though the limit is gone, have to leave first.
            return True
        lane = Lane.OTHER if refusal is not None else lane_of(message)
        line = user.lines[lane]
        timeout_s = getattr(message, "timeout_ms", 0) / 1000
        size = sum(map(len, batches))
        request = WaitingRequest(
            session, message, batches, size, now, now + timeout_s, refusal=refusal
        )
        if not line and not user.wait_s(lane, now):
            user.charge(request, lane, now)
            return True
        request.message_bytes = memory_of(message)
        if self._has_room(user, request, lane):
            line.add(request)
            self._waiting[user.user] = user
            self._due = min(self._due, user.due(now), now + TICK_S)
            if not message.id and now - peer.paused_at >= PAUSE_EVERY_S:
                # Nothing is answered, so only a notice makes the sender pause.
                peer.paused_at = now
                _notify(session.address, [], user.outlook_s(lane, now), turn)
            return False
        self._refuse(request, lane, user, turn)
        return False

    def postpones(
        self,
        session: PeerSession,
        message: AnyMessage,
        refusal: LogboomError,
        out: Effects,
        now: float,
    ) -> bool:
        """Return True if a request's refusal waits (`Acceptor.postpones`)."""
        return not self.takes(session, message, (), PlainTurn(out, now, self._stats), refusal)

    def _meet(self, session: PeerSession, now: float) -> _Peer:
        if now - self._pruned >= PRUNE_EVERY_S:
            self._prune(now)
        name = "" if is_node_user(session.user) else session.user
        user = self._users.get(name)
        if user is None:
            user = self._users[name] = UserThrottle(name)
        peer = self._peers[session.address] = _Peer(session.principal, user)
        return peer

    def _prune(self, now: float) -> None:
        """Forget connections that are gone, and users that the cluster has deleted."""
        self._pruned = now
        for address in list(self._peers):
            if self._find_session(address) is None:
                del self._peers[address]
        present = {peer.user.user for peer in self._peers.values()} | set(self._waiting)
        for name in [name for name in self._users if name not in present]:
            if name not in self._books().users:
                del self._users[name]

    def _follow(self, user: UserThrottle, now: float) -> None:
        # Nodes have no quota.
        book = self._books()
        if user.user:
            user.follow(book.quota_of(user.user), book.version, now)
        else:
            user.version = book.version

    def _waiting_bytes(self) -> int:
        return sum(user.waiting_bytes for user in self._waiting.values())

    def _has_room(self, user: UserThrottle, request: WaitingRequest, lane: Lane) -> bool:
        line, address = user.lines[lane], request.session.address
        earlier = line.find(address, request.message.id)
        if earlier is not None:
            # It was sent again, and takes the earlier one's place. A larger one under the same id
            # needs room for what it has more, or the bounds would hold only for first copies.
            more = request.held_bytes - earlier.held_bytes
            return more <= 0 or (
                user.waiting_bytes + more <= MAX_WAITING_BYTES
                and self._waiting_bytes() + more <= MAX_ALL_WAITING_BYTES
            )
        if not user.waiting:
            # One request always may wait, however large it is.
            return self._waiting_bytes() < MAX_ALL_WAITING_BYTES
        held = request.held_bytes
        if request.message.id and line.has(address) and held > user.room_bytes(lane):
            # Who gets no answer cannot be told to send it again, so only the bounds below count.
            return False
        return (
            user.waiting < MAX_WAITING
            and user.waiting_bytes + held <= MAX_WAITING_BYTES
            and self._waiting_bytes() + held <= MAX_ALL_WAITING_BYTES
        )

    def _refuse(
        self, request: WaitingRequest, lane: Lane, user: UserThrottle, turn: ThrottledTurn
    ) -> None:
        """Refuse a request for which there is no room or no time; it has to be repeated."""
        self._stats.count("throttle_refusals")
        if not request.message.id:
            self._stats.count("throttle_unacknowledged_lost")
        text = (
            f"user {user.user!r} is over its quota and too much of it waits at this node: send "
            f"less, or raise the quota (`logboom quota show {user.user}`)"
        )
        wait_ms = int(user.outlook_s(lane, turn.mono) * 1000) + 1
        error = Unavailable(text, "BUSY", throttled_ms=wait_ms)
        turn.refuse(request.session.address, request.message.id, error)

    # ── releases ────────────────────────────────────────────────────────────────────────────────

    def release(self, turn: ThrottledTurn) -> Iterator[Released]:
        """Yield the requests whose wait is over, in their order; each is served before the next.

        What a request fetches is charged while it is served.
        """
        now = turn.mono
        if now < self._due:
            return
        for name, user in list(self._waiting.items()):
            if user.version != self._books().version:
                self._follow(user, now)
            for lane in Lane:
                line = user.lines[lane]
                while line and not user.wait_s(lane, now):
                    request = line.take()
                    session = self._current_session(request)
                    if session is None:
                        continue  # nobody waits for an answer
                    revoked = request.refusal or self._recheck(session.address, request.message)
                    if revoked is not None:
                        if request.refusal is not None:
                            user.charge(request, lane, now)
                        turn.refuse(session.address, request.message.id, revoked)
                        continue
                    user.charge(request, lane, now)
                    self._note(request, user, lane, now)
                    yield Released(session, request.message, request.batches)
            if not user.waiting:
                del self._waiting[name]
        if now - self._ticked >= TICK_S:
            self._tick(turn)
        self._due = min(
            (min(user.due(now), self._ticked + TICK_S) for user in self._waiting.values()),
            default=NEVER,
        )

    def _note(self, request: WaitingRequest, user: UserThrottle, lane: Lane, now: float) -> None:
        waited_ms = max(1, round((now - request.since) * 1000))
        user.throttled_ms += waited_ms
        self._stats.count("throttled")
        self._stats.seconds["throttle_seconds"] += now - request.since
        peer = self._peers.get(request.session.address)
        if peer is not None:
            peer.throttled_ms += waited_ms
            if request.message.id and lane in BATCH_LANES:
                if len(peer.waits) >= MAX_NOTED:
                    del peer.waits[next(iter(peer.waits))]
                peer.waits[request.message.id] = waited_ms

    def _tick(self, turn: ThrottledTurn) -> None:
        """Look at all waiting requests: some cannot wait longer, of others the peers are told."""
        now = self._ticked = turn.mono
        for name, user in list(self._waiting.items()):
            told: dict[PeerAddress, list[int]] = {}
            for lane in Lane:
                for request in list(user.lines[lane]):
                    if not self._may_wait(request, user, lane, turn):
                        user.lines[lane].remove(request)
                    elif request.message.id and request.since + NOTICE_AFTER_S <= now:
                        told.setdefault(request.session.address, []).append(request.message.id)
            for address, numbers in told.items():
                peer = self._peers.get(address)
                if peer is not None and now - peer.noticed_at >= NOTICE_EVERY_S:
                    peer.noticed_at = now
                    _notify(address, numbers, user.outlook_s(Lane.PRODUCE, now), turn)
            if not user.waiting:
                del self._waiting[name]

    def _may_wait(
        self, request: WaitingRequest, user: UserThrottle, lane: Lane, turn: ThrottledTurn
    ) -> bool:
        """Return True if a request goes on waiting; it may be refused here."""
        session = self._current_session(request)
        if session is None:
            return False
        if lane not in BATCH_LANES and request.deadline - LAST_MOMENT_S <= turn.mono:
            self._refuse(request, lane, user, turn)
            return False
        if isinstance(request.message, Receive) and turn.mono - session.heard < DEAD_S:
            self._keep_attached(request.message, request.session.user, turn.mono)
        return True

    def _current_session(self, request: WaitingRequest) -> PeerSession | None:
        """Return the session of a request, or None if its connection is gone."""
        session = self._find_session(request.session.address)
        same = session is not None and session.principal == request.session.principal
        return session if same else None

    # ── answers ─────────────────────────────────────────────────────────────────────────────────

    def answered(
        self, address: PeerAddress, message: WireMessage, batches: Sequence[Frame], now: float
    ) -> None:
        """Charge the batches of an answer, and say in it for how long its request has waited."""
        peer = self._peers.get(address)
        if peer is None:
            return
        if batches:
            peer.user.charge_fetched(sum(map(len, batches)), now)
        if peer.waits:
            waited_ms = peer.waits.pop(message.id, 0)
            if waited_ms and isinstance(message, Produced | Pulled | Delivered):
                message.throttled_ms = waited_ms

    def refused(self, address: PeerAddress, number: int) -> None:
        """Forget for how long a refused request has waited."""
        peer = self._peers.get(address)
        if peer is not None and peer.waits:
            peer.waits.pop(number, None)


def _notify(address: PeerAddress, numbers: list[int], wait_s: float, turn: ThrottledTurn) -> None:
    notice = Throttled(0, int(wait_s * 1000) + 1, numbers)
    turn.out.sends.append(Send(address, encode(notice)))
