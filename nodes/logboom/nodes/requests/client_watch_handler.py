"""The handler of clients' WATCH, which is answered from this broker's copy of the metadata.

Clients may ask any broker, so that bootstrap servers may name any node. Deltas are built from a
short memory of the topics that were changed or removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from logboom.nodes.requests.held_shares import HeldShares
from logboom.nodes.requests.holds import Hold, Holds
from logboom.nodes.turn import BrokerTurn, Figures, Handler, Service
from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import LogboomError, Unavailable
from logboom.wire.listeners import Security
from logboom.wire.messages import EncodedWatchResult, Watch
from logboom.wire.routes import Routes
from logboom.wire.sight import Sight
from logboom.wire.told_endpoints import endpoints_told
from logboom.wire.view import View

REMEMBERED: Final = 20_000
"""Topic changes remembered for deltas; a client further behind gets a full view."""
LONGEST_HOLD_MS: Final = 60_000
HELD: Final = "held"
"""Requests that wait for a change."""
LATE: Final = "late"
"""Requests for which the turn in which they came had no room."""
TURN_ANSWERS: Final = 200
"""Requests that one turn looks at after a change, and as many whose time is up."""
TURN_BUILT_BYTES: Final = 256 * 1024
"""Bytes of views after which a turn builds no other; some milliseconds."""
NAME_BYTES: Final = 16
"""Bytes for which a name in a request counts as built."""
TURN_SENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of answers after which a turn sends no other."""


class _Spent:
    """What one turn has spent on requests, and the views that it has built."""

    def __init__(self) -> None:
        self.views: dict[tuple[object, ...], bytes] = {}
        """What was asked for → the encoded view; empty: it says nothing."""
        self.sent = 0
        """Bytes of answers."""
        self._turn: BrokerTurn | None = None
        self._looks = 0
        self._built = 0

    def is_enough(self, turn: BrokerTurn) -> bool:
        """Return True if further requests have to wait for the next turn."""
        return self._turn is turn and (
            self._looks >= TURN_ANSWERS
            or self._built >= TURN_BUILT_BYTES
            or self.sent >= TURN_SENT_BYTES
        )

    def looked(self, turn: BrokerTurn) -> None:
        """Count a look at a request; views that an earlier turn has built may be out of date."""
        if self._turn is not turn:
            self._turn = turn
            self._looks = self._built = self.sent = 0
            self.views.clear()
        self._looks += 1

    def built(self, name: tuple[object, ...], view: bytes, names: int) -> None:
        """Keep a view for those who ask for the same in this turn."""
        self.views[name] = view
        self._built += len(view) + NAME_BYTES * names


class ClientWatchHandler(Service):
    """The handler of clients' WATCH: it answers immediately, or on the next change.

    A broker that the name servers do not hear may have been replaced long ago, and would not learn
    of it. Clients that still reach it must not wait with it: once its lease has expired, it
    redirects clients that are waiting for updates to another node.
    """

    def __init__(
        self,
        routes: Routes,
        in_touch: Callable[[float], bool],
        securities: Mapping[str, Security],
        acceptor: Acceptor,
    ) -> None:
        """Create the handler.

        Args:
            routes: the copy of the metadata.
            in_touch: returns True if our copy is not older than a lease at a monotonic time.
            securities: the security of each listener of this node, by name.
            acceptor: what each session may see.
        """
        self._routes = routes
        self._in_touch = in_touch
        self._securities = securities
        self._acceptor = acceptor
        self._holds: Holds[str, Watch] = Holds(HeldShares(acceptor.peer))
        self._changes: deque[tuple[int, str]] = deque()
        self._floor = -1
        """Deltas are possible from this version on."""
        self._brokers: set[str] = set()
        self._brokers_gone: dict[str, int] = {}
        """Removed brokers, and the versions of their removal."""
        self._woken = 0
        """The first so many of those that wait have not been looked at since the last change."""
        self._spent = _Spent()

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of WATCH."""
        return {Watch: self.ask}

    def figures(self, now: float) -> Figures:
        """Return how many clients wait for news."""
        return {"watches": len(self._holds)}

    def ask(self, peer: PeerSession, message: Watch, turn: BrokerTurn) -> None:
        """Answer or hold a client's WATCH."""
        address = peer.address
        late = self._spent.is_enough(turn)
        if late or not self._answer(address, message, turn, ripe=False):
            wait = min(max(0, message.wait_ms), LONGEST_HOLD_MS) / 1000
            try:
                hold = self._holds.checked(Hold(address, message, turn.mono + wait))
            except LogboomError as error:
                turn.refuse(address, message.id, error)
                return
            self._holds.add(LATE if late else HELD, message.id, hold)

    def learned(self, topics: Sequence[str], groups: Sequence[str], turn: BrokerTurn) -> None:
        """Answer the clients that wait for these changes."""
        # Changes between our last version and a full view were never received here.
        self._floor = max(self._floor, self._routes.whole_at)
        self._changes.extend((self._routes.version, name) for name in topics)
        while len(self._changes) > REMEMBERED:
            self._floor = self._changes.popleft()[0]
        brokers = self._routes.brokers
        for broker in self._brokers - brokers.keys():
            self._brokers_gone[broker] = self._routes.version
        self._brokers = set(brokers)
        while len(self._brokers_gone) > REMEMBERED:
            oldest = next(iter(self._brokers_gone))
            self._floor = max(self._floor, self._brokers_gone.pop(oldest))
        self._woken = self._holds.count_of(HELD)
        self._wake(turn)

    def _wake(self, turn: BrokerTurn) -> None:
        """Look at some of those that have not been looked at since the last change, or at all."""
        while not self._spent.is_enough(turn):
            found = self._holds.take_first(HELD if self._woken else LATE, 1)
            self._woken = max(0, self._woken - 1)
            if not found and not self._woken:
                return
            for hold in found:
                if not self._answer(hold.address, hold.message, turn, ripe=False):
                    self._holds.add(HELD, hold.message.id, hold)

    def step(self, turn: BrokerTurn) -> None:
        """Go on with what a change has woken, and answer requests that have expired."""
        self._wake(turn)
        while not self._spent.is_enough(turn):
            expired = self._holds.expired(turn.mono, 1)
            if not expired:
                break
            self._answer(expired[0][1].address, expired[0][1].message, turn, ripe=True)

    def deadline(self) -> float:
        """Return when `step` is due next."""
        behind = self._woken or self._holds.count_of(LATE)
        return float("-inf") if behind else self._holds.deadline()

    def _answer(
        self, address: PeerAddress, message: Watch, turn: BrokerTurn, *, ripe: bool
    ) -> bool:
        """Answer if there is news, or in any case if `ripe`."""
        routes = self._routes
        self._spent.looked(turn)
        if routes.version < 0 or routes.version < message.version:
            if ripe:
                text = "this broker has no metadata as new as asked yet: ask again, or another node"
                turn.refuse(address, message.id, Unavailable(text))
            return ripe
        refusal = self._acceptor.recheck(address, message)
        if refusal is not None:
            turn.refuse(address, message.id, refusal)
            return True
        sight = self._acceptor.sight(address)
        topics = None if message.topics is None else tuple(message.topics)
        name = (
            routes.version,
            message.version,
            topics,
            sight if sight is None else sight.user,
            address.listener,
        )
        encoded = self._spent.views.get(name)
        if encoded is None:
            view = self._view(message, sight)
            encoded = b""
            if message.version < 0 or view.full or _says_something(view):
                encoded = self._encoded(view, address)
            self._spent.built(name, encoded, len(topics or ()))
        if not encoded:
            if not ripe:
                return False
            if not self._in_touch(turn.mono):
                text = "this broker hears no name server: it may not know what changed; ask another node"
                turn.refuse(address, message.id, Unavailable(text))
                return True
            encoded = self._encoded(self._view(message, sight), address)
        self._spent.sent += len(encoded)
        turn.answer(address, EncodedWatchResult(message.id, msgspec.Raw(encoded)))
        return True

    def _encoded(self, view: View, address: PeerAddress) -> bytes:
        told = endpoints_told(view, address.listener, self._securities[address.listener])
        return msgspec.msgpack.encode(told)

    def _view(self, message: Watch, sight: Sight | None) -> View:
        routes, since = self._routes, message.version
        full = since < max(0, self._floor) or (sight is not None and sight.changed_after(since))
        wanted = None if message.topics is None else set(message.topics)
        names = dict.fromkeys(routes.topics) if full else self._since(since)
        if wanted is not None:
            names = {name: None for name in names if name in wanted}
        if sight is not None:
            # A name that the user could never see is not told when it goes, either.
            names = {name: None for name in names if sight.topic(name)}
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
        """Return brokers that were removed after `version` and not added again."""
        gone = self._brokers_gone.items()
        return [b for b, at in gone if at > version and b not in self._routes.brokers]

    def _since(self, version: int) -> dict[str, None]:
        """Return names of topics that were changed or removed after `version`."""
        names: dict[str, None] = {}
        for changed_at, name in reversed(self._changes):
            if changed_at <= version:
                break
            names[name] = None
        return names


def _says_something(view: View) -> bool:
    return bool(view.topics or view.brokers or view.deleted or view.deleted_brokers)
