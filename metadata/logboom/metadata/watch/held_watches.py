"""Held WATCH requests, woken by the changes they are interested in, with exact deadlines (R14)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final, NamedTuple

from logboom.wire.actor import PeerAddress
from logboom.wire.sight import Sight

MAX_HOLDS: Final = 25_000
"""Maximum number of requests that wait; more are answered BUSY."""
MAX_OF_USER: Final = 10_000
"""The same of one user."""
MAX_OF_CONNECTION: Final = 100
"""The same of one connection. A client waits with one or two."""
NAME_BYTES: Final = 64
"""Memory of a name in addition to its characters and its place in a set."""
MAX_NAME_BYTES: Final = 64 * 1024 * 1024
"""Maximum memory of the topic and group names in all held requests. Their number and length are up to
whoever asks."""
MAX_NAME_BYTES_OF_USER: Final = 16 * 1024 * 1024
"""The same of one user."""
MAX_NAME_BYTES_OF_CONNECTION: Final = 8 * 1024 * 1024
"""The same of one connection."""
MAX_WAIT_S: Final = 60.0
"""Maximum seconds for which a request is held."""
COMPARED_UNITS: Final = 1_000
"""Units of comparing requests with what has changed that are spent at once: one for each request, …"""
ASKED_UNITS: Final = 8
"""… and so many for each name of which it is asked whether a user may learn of it: some milliseconds
where users have the most rules."""
MOST_ASKED: Final = 16
"""Names of that kind. A request that waits for more than so many which have changed is answered; its
view shows what its user may see."""


class Change(NamedTuple):
    """What has changed up to a version."""

    version: int
    topics: Collection[str]
    groups: Collection[str]
    everybody: bool = False
    """True if brokers or name servers changed too, or the changes are not known."""
    decisions: bool = False
    """True if a decision on a transaction did."""
    access: bool = False
    """True if a user or an access rule did."""

    @property
    def concerns_clients(self) -> bool:
        """True if it is more than decisions, for which few ask."""
        return self.everybody or self.access or bool(self.topics) or bool(self.groups)

    def joined(self, later: Change) -> Change:
        """Return what has changed in both."""
        return Change(
            later.version,
            {*self.topics, *later.topics},
            {*self.groups, *later.groups},
            self.everybody or later.everybody,
            self.decisions or later.decisions,
            self.access or later.access,
        )


@dataclass(slots=True)
class HeldWatch:
    """One held request."""

    address: PeerAddress
    id: int
    version: int
    """The answer must not be older than this."""
    topics: frozenset[str] | None
    """Topics of interest; None: all."""
    deadline: float
    """Monotonic seconds."""
    groups: frozenset[str] | None = frozenset()
    """Consumer groups of interest; None: all."""
    members_at: str = ""
    """A broker that gets the members of the groups it coordinates, and of no others."""
    decisions: bool = False
    """True if it wants decisions on transactions."""
    access: bool = False
    """True if it wants users and access rules."""
    from_node: bool = False
    """True if a node asks, which is shown all listeners of each node."""
    sight: Sight | None = None
    """What its user may see; None: everything."""
    user: str = ""
    """Its user; "" if it came to a listener without keys."""
    name_bytes: int = field(init=False)
    """Memory of the names that it holds."""

    def __post_init__(self) -> None:
        self.name_bytes = _memory_of(self.topics) + _memory_of(self.groups)


def _memory_of(names: frozenset[str] | None) -> int:
    if not names:
        return 0
    # One character beyond ASCII may widen all others of its string to four bytes.
    size = sum(len(name) if name.isascii() else 4 * len(name) for name in names)
    return size + NAME_BYTES * len(names) + getsizeof(names)


def _is_concerned(hold: HeldWatch, change: Change) -> bool:
    if hold.version >= change.version:
        return False
    if change.everybody or (change.decisions and hold.decisions) or (change.access and hold.access):
        return True
    topics, groups = change.topics, change.groups
    if hold.sight is not None:
        return _may_learn(hold, hold.sight, topics, groups, access=change.access)
    return _is_interested(hold, topics, groups)


def _is_interested(hold: HeldWatch, topics: Collection[str], groups: Collection[str]) -> bool:
    return (
        hold.topics is None
        or not hold.topics.isdisjoint(topics)
        or (bool(groups) if hold.groups is None else not hold.groups.isdisjoint(groups))
    )


def _may_learn(
    hold: HeldWatch,
    sight: Sight,
    topics: Collection[str],
    groups: Collection[str],
    *,
    access: bool,
) -> bool:
    """True if a user asked for what changed, and may describe it, or if its rights changed."""
    if access and sight.changed_after(hold.version):
        return True
    named_topics = topics if hold.topics is None else hold.topics.intersection(topics)
    named_groups = groups if hold.groups is None else hold.groups.intersection(groups)
    if len(named_topics) + len(named_groups) > MOST_ASKED:
        return True
    return any(map(sight.topic, named_topics)) or any(map(sight.group, named_groups))


class HeldWatches:
    """The held requests of one name server."""

    def __init__(self) -> None:
        self._holds: dict[tuple[PeerAddress, int], HeldWatch] = {}
        self._of_brokers: dict[tuple[PeerAddress, int], HeldWatch] = {}
        """Requests for decisions or access rules: from brokers, few among many clients."""
        self._deadlines: list[tuple[float, int, HeldWatch]] = []
        self._count = 0
        self._ready: dict[tuple[PeerAddress, int], HeldWatch] = {}
        """Requests of clients that are to be answered, in their order."""
        self._ready_nodes: dict[tuple[PeerAddress, int], HeldWatch] = {}
        """The same of nodes, which come first."""
        self._of_owners: dict[PeerAddress | str, tuple[int, int]] = {}
        """Connection or user → number of its requests, and memory of their names."""
        self._name_bytes = 0
        """Memory of the topic and group names in all held requests."""
        self._unseen: Change | None = None
        """What requests have yet to be compared with, once they are with …"""
        self._change = Change(0, (), ())
        """… this, …"""
        self._compared: deque[tuple[PeerAddress, int]] = deque()
        """… as these are not yet."""

    def __len__(self) -> int:
        return len(self._holds) + len(self._ready) + len(self._ready_nodes)

    def add(self, hold: HeldWatch) -> bool:
        """Hold a request, replacing an earlier copy of the same one; False if there are too many."""
        key = (hold.address, hold.id)
        replaced = self._holds.get(key)
        if replaced is not None:
            self._remove(replaced)
        if not self._has_room(hold):
            return False
        self._holds[key] = hold
        self._account(hold, 1)
        if hold.decisions or hold.access:
            self._of_brokers[key] = hold
        self._count += 1
        heapq.heappush(self._deadlines, (hold.deadline, self._count, hold))
        if len(self._deadlines) > 64 + 4 * len(self._holds):
            # Most of them were answered or replaced.
            self._deadlines = [entry for entry in self._deadlines if self._is_held(entry[2])]
            heapq.heapify(self._deadlines)
        return True

    def make_ready(self, hold: HeldWatch) -> bool:
        """Let a request that is not held wait for its answer; False if clients have too many."""
        key, ready = (hold.address, hold.id), self._ready_nodes if hold.from_node else self._ready
        replaced = ready.pop(key, None)
        if replaced is not None:
            self._account(replaced, -1)
        if not hold.from_node and not self._has_room(hold):
            return False
        ready[key] = hold
        self._account(hold, 1)
        return True

    def first_ready(self) -> HeldWatch | None:
        """Return the first request that is to be answered; `answered` removes it."""
        return next(iter((self._ready_nodes or self._ready).values()), None)

    def answered(self, hold: HeldWatch) -> None:
        """Remove a request that is to be answered."""
        ready = self._ready_nodes if hold.from_node else self._ready
        del ready[hold.address, hold.id]
        self._account(hold, -1)

    def _has_room(self, hold: HeldWatch) -> bool:
        if len(self) >= MAX_HOLDS or self._name_bytes + hold.name_bytes > MAX_NAME_BYTES:
            return False
        if hold.from_node:
            return True
        count, size = self._of_owners.get(hold.address, (0, 0))
        if count >= MAX_OF_CONNECTION or size + hold.name_bytes > MAX_NAME_BYTES_OF_CONNECTION:
            return False
        count, size = self._of_owners.get(hold.user, (0, 0))
        return not hold.user or (
            count < MAX_OF_USER and size + hold.name_bytes <= MAX_NAME_BYTES_OF_USER
        )

    def _account(self, hold: HeldWatch, sign: int) -> None:
        """Count a request that begins (1) or ends (-1) to wait."""
        self._name_bytes += sign * hold.name_bytes
        for owner in (hold.address, hold.user):
            count, size = self._of_owners.get(owner, (0, 0))
            if count + sign:
                self._of_owners[owner] = (count + sign, size + sign * hold.name_bytes)
            else:
                del self._of_owners[owner]

    def take_due(self, now: float, most: int = MAX_HOLDS) -> list[HeldWatch]:
        """Remove and return the requests that have expired, up to `most` of them."""
        due: list[HeldWatch] = []
        while self._deadlines and self._deadlines[0][0] <= now and len(due) < most:
            _, _, hold = heapq.heappop(self._deadlines)
            if self._remove(hold):
                due.append(hold)
        return due

    @property
    def compares(self) -> bool:
        """True if some requests have yet to be compared with what has changed."""
        return bool(self._compared) or self._unseen is not None

    def follow(self, change: Change) -> list[HeldWatch]:
        """Let `take_woken` compare all requests with a change.

        Remove and return those of nodes that it concerns, which are few and are told at once.
        """
        self._unseen = change if self._unseen is None else self._unseen.joined(change)
        nodes = [key for key, hold in self._of_brokers.items() if hold.from_node]
        return self._take(nodes, change)

    def take_woken(self) -> list[HeldWatch]:
        """Compare some requests with what has changed; remove and return those that it concerns."""
        if not self._compared and self._unseen is not None:
            change = self._change = self._unseen
            self._unseen = None
            self._compared = deque(self._holds if change.concerns_clients else self._of_brokers)
        change = self._change
        asked = min(len(change.topics) + len(change.groups), MOST_ASKED)
        most = COMPARED_UNITS // (1 + ASKED_UNITS * asked)
        looked = [self._compared.popleft() for _ in range(min(len(self._compared), most))]
        return self._take(looked, change)

    def _take(self, keys: Iterable[tuple[PeerAddress, int]], change: Change) -> list[HeldWatch]:
        held = (self._holds.get(key) for key in keys)
        woken = [hold for hold in held if hold is not None and _is_concerned(hold, change)]
        for hold in woken:
            self._remove(hold)
        return woken

    def forget(self, addresses: Collection[PeerAddress]) -> list[HeldWatch]:
        """Drop the requests of peers that are gone, and return them."""
        if not addresses:
            return []
        gone = set(addresses)
        dropped = [h for h in self._holds.values() if h.address in gone]
        for hold in dropped:
            self._remove(hold)
        waiting = (*self._ready_nodes.values(), *self._ready.values())
        ready = [hold for hold in waiting if hold.address in gone]
        for hold in ready:
            self.answered(hold)
        return dropped + ready

    def deadline(self) -> float | None:
        """Return when the first request expires; at once if any may have to be answered."""
        if self._ready or self._ready_nodes or self.compares:
            return float("-inf")
        while self._deadlines and not self._is_held(self._deadlines[0][2]):
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _is_held(self, hold: HeldWatch) -> bool:
        return self._holds.get((hold.address, hold.id)) is hold

    def _remove(self, hold: HeldWatch) -> bool:
        if not self._is_held(hold):
            return False
        del self._holds[hold.address, hold.id]
        self._account(hold, -1)
        self._of_brokers.pop((hold.address, hold.id), None)
        return True
