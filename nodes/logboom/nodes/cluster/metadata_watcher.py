"""This broker's copy of the metadata, followed by WATCH from a name server.

The copy never goes back (see docs/SAFETY.md, R14).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.nodes.cluster.peer_connections import PeerConnections
from logboom.nodes.turn import BrokerTurn, Figures, Service
from logboom.wire.group_routes import GroupRoutes
from logboom.wire.messages import Watch, WatchResult
from logboom.wire.name_servers import NameServers
from logboom.wire.routes import Routes
from logboom.wire.session import Reply
from logboom.wire.session_table import RequestHandle
from logboom.wire.told_endpoints import endpoints_dialled

HOLD_MS: Final = 10_000
"""Milliseconds for which a name server may hold the WATCH of this broker."""
GRACE: Final = 1.0
"""Seconds after which another name server is asked: beyond the hold, or without a session."""
BEHIND: Final = 0.5
"""Seconds for which a WATCH must have been held before its holder counts as lagging behind. It doubles
with each WATCH that was left so, until one is answered: to build an answer of thousands of queues and
to carry it takes time, and asking again begins anew."""
MOST_BEHIND: Final = 8.0
"""Maximum of these seconds."""


class MetadataWatcher(Service):
    """The one WATCH that is always under way; it moves to the next name server when one fails."""

    def __init__(
        self,
        routes: Routes,
        links: PeerConnections,
        servers: NameServers,
        groups: GroupRoutes,
        on_change: Callable[[list[str], list[str], BrokerTurn], None],
        *,
        encrypt: bool = False,
    ) -> None:
        """Create a watcher.

        `on_change` gets the names of changed and deleted topics and groups. `encrypt` is True if
        this broker has a key pair.
        """
        self._encrypt = encrypt
        self._routes = routes
        self._groups = groups
        self._links = links
        self._servers = servers
        self._on_change = on_change
        self._endpoint: str | None = None
        self._asked: RequestHandle | None = None
        self._asked_at = 0.0
        self._ask_at = float("-inf")
        self._wants_all = False
        """True if changes of access rules came that this broker has no copy of."""
        self.failures = 0
        self._behind_s = BEHIND

    def step(self, turn: BrokerTurn) -> None:
        """Send the WATCH if it is due, or leave a name server that is not connected."""
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
            -1 if self._wants_all else self._routes.version,
            None,
            HOLD_MS,
            groups=None,
            members_at=members_at,
            decisions=True,
            access=True,
        )
        self._asked_at = turn.mono
        self._asked = self._links.request(
            self._endpoint, message, turn, self._answered, turn.mono + HOLD_MS / 1000 + GRACE
        )

    def heard_of(self, version: int, turn: BrokerTurn) -> None:
        """Leave the holder of the WATCH if it missed `version`, which the Raft leader has."""
        if (
            version > self._routes.version
            and self._asked is not None
            and self._endpoint is not None
            and turn.mono - self._asked_at > self._behind_s
        ):
            self._asked.cancel()
            self._asked = None
            self._endpoint = self._servers.leader()
            self._behind_s = min(MOST_BEHIND, 2 * self._behind_s)
            self._ask_at = turn.mono
            self.step(turn)

    def deadline(self) -> float:
        """Return when `step` is due next."""
        if self._asked is None:
            return self._ask_at
        assert self._endpoint is not None
        # Check again each second: a name server may stop while it holds the WATCH.
        return float("inf") if self._links.is_open(self._endpoint) else self._asked_at + GRACE

    def figures(self, now: float) -> Figures:
        """Return the version of the broker's copy."""
        return {"metadata_version": self._routes.version}

    def _answered(self, reply: Reply, turn: BrokerTurn) -> None:
        self._asked = None
        if isinstance(reply.message, WatchResult):
            self.failures = 0
            self._behind_s = BEHIND
            self._ask_at = turn.mono
            view = endpoints_dialled(reply.message.view, encrypt=self._encrypt)
            before = self._routes.version
            # The first answers may have come from an older version that knows no access rules.
            self._wants_all = (
                view.access is not None and not view.full and not self._routes.access.known
            )
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
        """Switch to the Raft leader, which knows decisions a round trip before the others.

        Only a connected one is chosen, so that a silent leader is not asked again and
        again.
        """
        leader = self._servers.leader()
        if self._links.is_open(leader):
            self._endpoint = leader

    def _failed(self, turn: BrokerTurn) -> None:
        self.failures += 1
        self._endpoint = self._servers.next_any(self._endpoint)
        # The first round over all name servers is fast, further rounds are slow.
        self._ask_at = turn.mono + (0.02 if self.failures < 4 else 0.25)
