"""This broker's copy of the metadata: followed by WATCH from a name server, told on to clients.

It only goes forward (R14). Clients ask any broker, so bootstrap may name any node; a delta for
them is made from a short memory of which topics changed or went, and when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.turn import BrokerTurn
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.group_routes import GroupRoutes
from logboom.wire.messages import Watch, WatchResult
from logboom.wire.name_servers import NameServers
from logboom.wire.routes import Routes
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.view import View

HOLD_MS: Final = 10_000
"""Milliseconds that a name server may hold our WATCH."""
GRACE: Final = 1.0
"""Seconds beyond the hold, or without a session, after which another name server is asked."""
BEHIND: Final = 0.5
"""Seconds that a WATCH must have been held before news from elsewhere speaks against its holder."""
REMEMBERED: Final = 20_000
"""Changes of topics remembered for deltas; a client further behind gets the whole."""
LONGEST_HOLD_MS: Final = 60_000


class MetadataWatcher:
    """One WATCH under way, always; from one name server to the next when it fails."""

    def __init__(
        self,
        routes: Routes,
        links: PeerConnections,
        servers: NameServers,
        groups: GroupRoutes,
        on_change: Callable[[list[str], list[str], BrokerTurn], None],
    ) -> None:
        """`on_change` gets the names of topics, and of groups, that changed or went."""
        self._routes = routes
        self._groups = groups
        self._links = links
        self._servers = servers
        self._on_change = on_change
        self._endpoint: str | None = None
        self._asked: RequestHandle | None = None
        self._asked_at = 0.0
        self._ask_at = float("-inf")
        self.failures = 0

    def step(self, turn: BrokerTurn) -> None:
        """Ask, or leave a name server that is not there."""
        if self._asked is not None and self._endpoint is not None:
            silent = turn.mono >= self._asked_at + GRACE and not self._links.is_open(self._endpoint)
            if not silent:
                return
            self._asked.cancel()
            self._asked = None
            self._failed(turn)
        if turn.mono < self._ask_at:
            return
        if self._endpoint is None:
            self._endpoint = self._servers.next_any(None)
        timeout_ms = HOLD_MS + int(GRACE * 1000)
        members_at = self._groups.members_at
        message = Watch(
            0,
            timeout_ms,
            self._routes.version,
            None,
            HOLD_MS,
            groups=None,
            members_at=members_at,
            decisions=True,
        )
        self._asked_at = turn.mono
        self._asked = self._links.request(
            self._endpoint, message, turn, self._answered, turn.mono + HOLD_MS / 1000 + GRACE
        )

    def heard_of(self, version: int, turn: BrokerTurn) -> None:
        """The raft leader is at `version`: whoever holds our WATCH and did not tell is left."""
        if (
            version > self._routes.version
            and self._asked is not None
            and self._endpoint is not None
            and turn.mono - self._asked_at > BEHIND
        ):
            self._asked.cancel()
            self._asked = None
            self._endpoint = self._servers.leader()
            self._ask_at = turn.mono
            self.step(turn)

    def deadline(self) -> float:
        """When `step` is wanted next."""
        if self._asked is None:
            return self._ask_at
        assert self._endpoint is not None
        # Look again each second: a name server may stop in the middle of a hold.
        return float("inf") if self._links.is_open(self._endpoint) else self._asked_at + GRACE

    def _answered(self, reply: Reply, turn: BrokerTurn) -> None:
        self._asked = None
        if isinstance(reply.message, WatchResult):
            self.failures = 0
            self._ask_at = turn.mono
            view = reply.message.view
            before = self._routes.version
            changed = self._routes.update(view)
            groups = self._groups.update(view)
            self._servers.learn(self._routes)
            self._prefer_leader()
            if changed or groups or self._routes.version != before:
                self._on_change(changed, groups, turn)
        else:
            self._failed(turn)
        self.step(turn)

    def _prefer_leader(self) -> None:
        """The raft leader knows what is decided a round trip before all others. Only where it is
        heard: who does not answer is not asked again and again."""
        leader = self._servers.leader()
        if self._links.is_open(leader):
            self._endpoint = leader

    def _failed(self, turn: BrokerTurn) -> None:
        self.failures += 1
        self._endpoint = self._servers.next_any(self._endpoint)
        # Once around at full speed, then gently.
        self._ask_at = turn.mono + (0.02 if self.failures < 4 else 0.25)


class ClientWatchHandler:
    """Answers WATCH of clients from our own copy, at once or when something changes.

    A broker that the name servers do not hear may have been replaced long ago, and would never be
    told. Clients that reach it still must not wait with it: who has waited its time there is sent on.
    """

    def __init__(self, routes: Routes, in_touch: Callable[[float], bool]) -> None:
        """`in_touch`: whether our copy is not older than a lease, at a monotonic time."""
        self._routes = routes
        self._in_touch = in_touch
        self._holds: Holds[None, Watch] = Holds()
        self._changes: deque[tuple[int, str]] = deque()
        self._floor = -1
        """Deltas reach back to this version."""
        self._brokers: set[str] = set()
        self._brokers_gone: dict[str, int] = {}
        """Removed brokers, and the version from which on they are not there."""

    def __len__(self) -> int:
        return len(self._holds)

    def ask(self, address: PeerAddress, message: Watch, turn: BrokerTurn) -> None:
        """A client's WATCH."""
        if not self._answer(address, message, turn, ripe=False):
            try:
                self._holds.check_room()
            except LogboomError as error:
                turn.refuse(address, message.id, error)
                return
            wait = min(max(0, message.wait_ms), LONGEST_HOLD_MS) / 1000
            self._holds.add(None, message.id, Hold(address, message, turn.mono + wait))

    def changed(self, names: list[str], turn: BrokerTurn) -> None:
        """Our copy went forward; `names` of topics changed or went."""
        # What came and went between our last version and a whole was never heard of here.
        self._floor = max(self._floor, self._routes.whole_at)
        self._changes.extend((self._routes.version, name) for name in names)
        while len(self._changes) > REMEMBERED:
            self._floor = self._changes.popleft()[0]
        brokers = self._routes.brokers
        for broker in self._brokers - brokers.keys():
            self._brokers_gone[broker] = self._routes.version
        self._brokers = set(brokers)
        while len(self._brokers_gone) > REMEMBERED:
            oldest = next(iter(self._brokers_gone))
            self._floor = max(self._floor, self._brokers_gone.pop(oldest))
        for hold in self._holds.take(None):
            if not self._answer(hold.address, hold.message, turn, ripe=False):
                self._holds.add(None, hold.message.id, hold)

    def expire(self, turn: BrokerTurn) -> None:
        """Answer what has waited its time."""
        for _, hold in self._holds.expired(turn.mono):
            self._answer(hold.address, hold.message, turn, ripe=True)

    def deadline(self) -> float:
        """When `expire` is wanted next."""
        return self._holds.deadline()

    def _answer(
        self, address: PeerAddress, message: Watch, turn: BrokerTurn, *, ripe: bool
    ) -> bool:
        """Answer if there is something to say; with `ripe`, in any case."""
        routes = self._routes
        if routes.version < 0 or routes.version < message.version:
            if ripe:
                text = "this broker has no metadata as new as asked yet: ask again, or another node"
                turn.refuse(address, message.id, Unavailable(text))
            return ripe
        view = self._view(message)
        if message.version >= 0 and not view.full and not _says_something(view):
            if not ripe:
                return False
            if not self._in_touch(turn.mono):
                text = "this broker hears no name server: it may not know what changed; ask another node"
                turn.refuse(address, message.id, Unavailable(text))
                return True
        turn.answer(address, WatchResult(message.id, view))
        return True

    def _view(self, message: Watch) -> View:
        routes, since = self._routes, message.version
        full = since < max(0, self._floor)
        wanted = None if message.topics is None else set(message.topics)
        names = dict.fromkeys(routes.topics) if full else self._since(since)
        if wanted is not None:
            names = {name: None for name in names if name in wanted}
        topics = [routes.topics[name] for name in names if name in routes.topics]
        deleted = [] if full else [name for name in names if name not in routes.topics]
        return View(
            routes.version,
            full,
            routes.cluster_id,
            [b for b in routes.brokers.values() if full or b.version > since],
            topics,
            deleted,
            [] if full else self._gone_since(since),
            routes.name_servers,
            routes.raft_leader,
        )

    def _gone_since(self, version: int) -> list[str]:
        """Brokers that were removed after `version` and did not come back."""
        gone = self._brokers_gone.items()
        return [b for b, at in gone if at > version and b not in self._routes.brokers]

    def _since(self, version: int) -> dict[str, None]:
        """Names of topics that changed or went after `version`."""
        names: dict[str, None] = {}
        for changed_at, name in reversed(self._changes):
            if changed_at <= version:
                break
            names[name] = None
        return names


def _says_something(view: View) -> bool:
    return bool(view.topics or view.brokers or view.deleted or view.deleted_brokers)
