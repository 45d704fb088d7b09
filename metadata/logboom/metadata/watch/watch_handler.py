"""The handler of WATCH: every name server answers from its own applied state (R14)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import msgspec

from logboom.metadata.tables.cluster_state import ClusterState
from logboom.metadata.watch.held_watches import MAX_WAIT_S, Change, HeldWatch, HeldWatches
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.acceptor import PeerSession, error_frames
from logboom.wire.actor import Effects, PeerAddress, Send
from logboom.wire.errors import LogboomError, Unauthenticated, Unavailable
from logboom.wire.frames import encode
from logboom.wire.listeners import Security
from logboom.wire.messages import EncodedWatchResult, Watch
from logboom.wire.sight import Sight
from logboom.wire.told_endpoints import endpoints_told
from logboom.wire.view import NameServerView, View

NOTHING_SHOWN: Final = -1
LARGE_NEWS: Final = 500
"""Changed queues after which a turn answers nobody: to apply that has taken long enough. The next one
answers, whatever it has applied."""
TURN_ANSWERS: Final = 200
"""Requests that one turn answers, and that one turn ends; the others follow in the next."""
TURN_BUILT_BYTES: Final = 256 * 1024
"""Bytes of views after which a turn builds no other; some milliseconds."""
TURN_SENT_BYTES: Final = 1024 * 1024
"""Bytes of answers after which a turn sends no other."""


class WatchHost(Protocol):
    """The name server, as the handler of WATCH sees it."""

    @property
    def cluster(self) -> ClusterState:
        """The applied tables."""

    @property
    def raft_leader(self) -> str | None:
        """The leader of the Raft group, if it is known."""

    @property
    def in_touch(self) -> bool:
        """True if this node hears the Raft group."""


class WatchHandler:
    """The handler of WATCH: it answers at once if there is news, and holds other requests."""

    def __init__(
        self,
        node_id: str,
        insight: WatchHost,
        securities: Mapping[str, Security],
        sight_of: Callable[[PeerSession], Sight | None],
    ) -> None:
        """Create the handler.

        Args:
            node_id: this name server.
            insight: the name server's state.
            securities: the security of each listener of this node, by name.
            sight_of: returns what a peer may see (`Authorizer.sight`).
        """
        self.watches = HeldWatches()
        self.members: list[NameServerView] = []
        """The name servers, which every answer lists."""
        self._id = node_id
        self._insight = insight
        self._securities = securities
        self._sight_of = sight_of
        self._shown = NOTHING_SHOWN
        """Version that all held requests have been compared with."""
        self._large_news = False
        """Whether this turn has applied a large change."""
        self._rested = False
        """Whether the last turn has answered nobody."""

    def take(self, peer: PeerSession, message: Watch, out: Effects, now: float) -> None:
        """Answer or hold a request."""
        topics = None if message.topics is None else frozenset(message.topics)
        wait = min(MAX_WAIT_S, max(0, min(message.wait_ms, message.timeout_ms)) / 1000)
        groups = None if message.groups is None else frozenset(message.groups)
        sight = self._sight_of(peer)
        hold = HeldWatch(
            peer.address,
            message.id,
            message.version,
            topics,
            now + wait,
            groups,
            message.members_at,
            message.decisions and sight is None,
            message.access and peer.kind != "client",
            peer.kind != "client",
            sight,
            peer.user,
        )
        # Compared with the version that the held requests have seen: a change in this turn still
        # wakes this one.
        if self._insight.cluster.cluster_id and hold.version < self._shown:
            self._answer(hold, out)
        elif not self.watches.add(hold):
            self._refuse(hold, "holds too many watches", out, "BUSY")

    def wake(self, change: Change, out: Effects) -> None:
        """Answer the held requests that a growth of the applied version concerns."""
        cluster = self._insight.cluster
        self._shown = change.version
        changed = (cluster.topics[name] for name in change.topics if name in cluster.topics)
        self._large_news = sum(len(topic.queues) for topic in changed) > LARGE_NEWS
        if cluster.cluster_id:
            for hold in self.watches.follow(change):
                self._answer(hold, out)
            self._compare(out)

    def _compare(self, out: Effects) -> None:
        """Answer some of the held requests of clients that what has changed concerns."""
        for hold in self.watches.take_woken():
            self._answer(hold, out)

    def _answer(self, hold: HeldWatch, out: Effects) -> None:
        """Let a request wait for its answer, which may come in this turn."""
        if hold.sight is not None and not hold.sight.is_current():
            self._end(hold, out)
        elif not self.watches.make_ready(hold):
            self._refuse(hold, "holds too many watches", out, "BUSY")

    def serve(self, out: Effects) -> None:
        """Answer nodes, then clients, as far as the bounds of a turn allow; equal views are built once.

        A large topic, or many queues that a failed broker led, are told to all brokers.
        """
        self._compare(out)
        self._rested = self._large_news and not self._rested
        self._large_news = False
        if self._rested:
            return
        views: dict[tuple[object, ...], bytes] = {}
        built = sent = 0
        for _ in range(TURN_ANSWERS):
            hold = self.watches.first_ready()
            if hold is None or sent >= TURN_SENT_BYTES:
                return
            if hold.sight is not None and not hold.sight.is_current():
                self.watches.answered(hold)
                self._end(hold, out)
                continue
            listener = hold.address.listener
            wanted = (hold.version, hold.topics, hold.groups, hold.decisions, hold.access)
            reader = (
                ""
                if hold.from_node and hold.sight is None
                else (hold.user, hold.sight is None, listener)
            )
            name = (*wanted, reader)
            # Whose members are told makes a difference if there is a group.
            view = views.get((*name, "")) or views.get((*name, hold.members_at))
            if view is None:
                if built >= TURN_BUILT_BYTES:
                    return
                made = self._view(hold)
                if not hold.from_node:
                    made = endpoints_told(made, listener, self._securities[listener])
                view = msgspec.msgpack.encode(made)
                views[*name, hold.members_at if made.groups else ""] = view
                built += len(view)
            self.watches.answered(hold)
            frames = encode(EncodedWatchResult(hold.id, msgspec.Raw(view)))
            out.sends.append(Send(hold.address, frames))
            sent += len(view)

    def end_sessions(self, addresses: Collection[PeerAddress], out: Effects) -> None:
        """Refuse the held requests of sessions whose keys are not accepted any more."""
        for hold in self.watches.forget(addresses):
            self._end(hold, out)

    def _end(self, hold: HeldWatch, out: Effects) -> None:
        error = Unauthenticated("the key of this connection is not accepted any more")
        out.sends.append(Send(hold.address, error_frames(hold.id, error)))

    def end_due(self, out: Effects, now: float) -> None:
        """Answer held requests that have expired: nothing changed, or this node is behind."""
        for hold in self.watches.take_due(now, TURN_ANSWERS):
            cluster = self._insight.cluster
            if not cluster.cluster_id or cluster.version < hold.version:
                # Never with an older view (R14); another name server may know more.
                self._refuse(hold, "is behind the version asked for", out)
            elif not self._insight.in_touch:
                self._refuse(hold, "reaches no raft leader", out)
            else:
                self._answer(hold, out)

    def _view(self, hold: HeldWatch) -> View:
        return view_since(
            self._insight.cluster,
            hold.version,
            hold.topics,
            self.members,
            self._insight.raft_leader,
            hold.groups,
            hold.members_at,
            decisions=hold.decisions,
            access=hold.access,
            sight=hold.sight,
        )

    def _refuse(self, hold: HeldWatch, why: str, out: Effects, code: str = "UNAVAILABLE") -> None:
        error: LogboomError = Unavailable(f"{self._id} {why}: ask another name server", code)
        out.sends.append(Send(hold.address, error_frames(hold.id, error)))
