"""Which connections an HTTP listener keeps, before it knows who is there; pure.

A connection waits while its request has not come in whole, or its answer is not taken. Where there is no
room for a new connection, the one that has waited longest gives way: of the same address if that has
too many, else of the address with the most waiting ones. So unfinished requests keep nobody out, and whose
request has come is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class HttpBounds(NamedTuple):
    """How many connections a listener has at once."""

    total: int
    per_address: int
    """Of one address; 0: as many as in all."""


DESCRIPTOR_SHARE: Final = 2
"""A listener has at most the descriptors of its process divided by this: whoever is served needs some too."""


def within_descriptors(bounds: HttpBounds, descriptors: int) -> HttpBounds:
    """Return bounds that a process with so many descriptors can keep."""
    total = max(1, min(bounds.total, descriptors // DESCRIPTOR_SHARE))
    return HttpBounds(total, min(bounds.per_address, total))


@dataclass(slots=True)
class _Connection:
    """An open connection."""

    address: str
    due: float = 0.0
    """When it ends, if it still waits then, in monotonic seconds."""


class HttpConnections:
    """The open connections of a listener, by a number that each has while it is open."""

    def __init__(self, bounds: HttpBounds, wait_s: float) -> None:
        """Begin without connections; each may wait for so many seconds."""
        self._bounds = bounds
        self._wait_s = wait_s
        self._open: dict[int, _Connection] = {}
        self._of_address: dict[str, int] = {}
        """Address → its connections."""
        self._waiting: dict[str, dict[int, float]] = {}
        """Address → its connections that wait, and since when; the longest first."""

    def __len__(self) -> int:
        return len(self._open)

    def opened(
        self, number: int, address: str, now: float, *, is_exempt: bool = False
    ) -> int | None:
        """Take in a new connection, which waits for its request.

        Args:
            is_exempt: its address has no bound of its own, as that of a proxy.

        Returns:
            The connection that must end for it, and is forgotten; its own number if there is no room, because
            all others are being answered. None: there was room.
        """
        leaving = self._leaving_for(address, is_exempt)
        if leaving == -1:
            return number
        if leaving is not None:
            self.closed(leaving)
        self._open[number] = _Connection(address)
        self._of_address[address] = self._of_address.get(address, 0) + 1
        self.waits(number, now)
        return leaving

    def _leaving_for(self, address: str, is_exempt: bool) -> int | None:
        """Return which connection makes room for one of an address; -1: none can, None: none must."""
        most = self._bounds.per_address
        if most and not is_exempt and self._of_address.get(address, 0) >= most:
            return next(iter(self._waiting.get(address, ())), -1)
        if len(self._open) < self._bounds.total:
            return None
        longest = max(self._waiting.values(), key=len, default={})
        return next(iter(longest), -1)

    def waits(self, number: int, now: float) -> None:
        """Note that a connection waits from now on, unless it does already."""
        found = self._open.get(number)
        if found is None:
            return
        waiting = self._waiting.setdefault(found.address, {})
        if number not in waiting:
            waiting[number] = now
            found.due = now + self._wait_s

    def served(self, number: int) -> None:
        """Note that a connection waits no longer: its request is answered."""
        found = self._open.get(number)
        if found is None:
            return
        waiting = self._waiting.get(found.address, {})
        waiting.pop(number, None)
        if not waiting:
            self._waiting.pop(found.address, None)

    def took(self, number: int, now: float) -> None:
        """Note that the peer has taken a part of an answer: it may wait as long again."""
        found = self._open.get(number)
        if found is not None:
            found.due = now + self._wait_s

    def closed(self, number: int) -> None:
        """Forget a connection that has ended."""
        self.served(number)
        found = self._open.pop(number, None)
        if found is None:
            return
        left = self._of_address[found.address] - 1
        if left:
            self._of_address[found.address] = left
        else:
            del self._of_address[found.address]

    def late(self, now: float) -> list[int]:
        """Return the connections that have waited too long; asking costs as much as there are."""
        return [
            number
            for waiting in self._waiting.values()
            for number in waiting
            if self._open[number].due <= now
        ]
