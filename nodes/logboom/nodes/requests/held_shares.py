"""The requests that wait at a broker, and their bytes: bounded for each user, connection, and in all.

What one user or one connection lets wait leaves room for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import Unavailable


class Bound(NamedTuple):
    """A number of requests, and a number of bytes of memory."""

    requests: int
    size: int


IN_ALL: Final = Bound(100_000, 64 * 1024 * 1024)
"""What may wait of one kind; further requests are refused and have to be repeated."""
OF_USER: Final = Bound(25_000, 16 * 1024 * 1024)
"""The same of one user."""
OF_CONNECTION: Final = Bound(10_000, 8 * 1024 * 1024)
"""The same of one connection."""


class Share(NamedTuple):
    """What one request counts for."""

    owners: tuple[Hashable, ...]
    """Its connection, and its user if there is one."""
    size: int


class HeldShares:
    """Counts of what waits, by user and by connection."""

    def __init__(
        self, find_session: Callable[[PeerAddress], PeerSession | None] = lambda _: None
    ) -> None:
        """Make an empty table; `find_session` returns the session at an address."""
        self._find_session = find_session
        self._held: dict[Hashable, tuple[int, int]] = {}
        self.count = 0
        """Requests in all."""
        self.size = 0
        """Bytes in all."""

    def share_of(self, address: PeerAddress, size: int) -> Share:
        """Return what a request of `size` bytes counts for."""
        session = self._find_session(address)
        if session is None or not session.user:
            return Share((address,), size)
        return Share((address, session.user), size)

    def check(self, share: Share) -> None:
        """Check that one more request may wait.

        Raises:
            Unavailable: BUSY, because too many wait.
        """
        if self.count >= IN_ALL.requests or self.size >= IN_ALL.size:
            raise Unavailable("too many requests wait at this node: ask again in a moment", "BUSY")
        for owner in share.owners:
            count, size = self._held.get(owner, (0, 0))
            bound, whose = OF_CONNECTION, "connection"
            if isinstance(owner, str):
                bound, whose = OF_USER, "user"
            # One request may always wait, however large it is.
            if count >= bound.requests or (count and size + share.size > bound.size):
                text = (
                    f"too many requests of this {whose} wait at this node: wait for their answers"
                )
                raise Unavailable(f"{text} before you send more", "BUSY")

    def add(self, share: Share) -> None:
        """Count a request that begins to wait."""
        self.count += 1
        self.size += share.size
        for owner in share.owners:
            count, size = self._held.get(owner, (0, 0))
            self._held[owner] = (count + 1, size + share.size)

    def remove(self, share: Share) -> None:
        """Count a request that no longer waits."""
        self.count -= 1
        self.size -= share.size
        for owner in share.owners:
            count, size = self._held[owner]
            if count == 1:
                del self._held[owner]
            else:
                self._held[owner] = (count - 1, size - share.size)
