"""Requests that wait for their user's quota, in order for each peer, peers in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from logboom.wire.acceptor import PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.errors import LogboomError
from logboom.wire.frames import Frame
from logboom.wire.messages import AnyMessage

REQUEST_BYTES: Final = 512
"""Estimated memory of a waiting request beside its message and its batches."""


@dataclass(slots=True)
class WaitingRequest:
    """One request that was received and is not served yet."""

    session: PeerSession
    message: AnyMessage
    batches: Sequence[Frame]
    size: int
    """Bytes of its batches."""
    since: float
    deadline: float
    """Monotonic seconds after which its sender does not wait, unless it is told to."""
    message_bytes: int = 0
    """Memory of its message, which costs no quota: tags may take megabytes."""
    refusal: LogboomError | None = None
    """What it is answered in its turn, if it is not to be served."""

    @property
    def held_bytes(self) -> int:
        """Bytes of memory."""
        return self.size + self.message_bytes + REQUEST_BYTES


class WaitingLine:
    """The requests of one kind of one user.

    Those of a peer keep their order. The peer that was served least recently comes first, so no
    peer starves others of the same user.
    """

    def __init__(self) -> None:
        self._peers: dict[PeerAddress, dict[int, WaitingRequest]] = {}
        self._unnumbered = 0
        self._count = 0
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[WaitingRequest]:
        for requests in self._peers.values():
            yield from requests.values()

    def add(self, request: WaitingRequest) -> None:
        """Add a request; one that was sent again keeps its place."""
        requests = self._peers.setdefault(request.session.address, {})
        number = request.message.id
        if not number:
            self._unnumbered -= 1
            number = self._unnumbered
        earlier = requests.get(number)
        if earlier is None:
            self._count += 1
        else:
            self.waiting_bytes -= earlier.held_bytes
            request.since = earlier.since
        self.waiting_bytes += request.held_bytes
        requests[number] = request

    def find(self, address: PeerAddress, number: int) -> WaitingRequest | None:
        """Return the waiting request with this id, or None."""
        return self._peers.get(address, {}).get(number) if number else None

    def has(self, address: PeerAddress) -> bool:
        """True if a request of this peer waits."""
        return address in self._peers

    def take(self) -> WaitingRequest:
        """Remove and return the next request."""
        address, requests = next(iter(self._peers.items()))
        request = requests.pop(next(iter(requests)))
        del self._peers[address]
        if requests:
            self._peers[address] = requests
        self._count -= 1
        self.waiting_bytes -= request.held_bytes
        return request

    def remove(self, request: WaitingRequest) -> None:
        """Remove a request, wherever it stands."""
        address = request.session.address
        requests = self._peers[address]
        for number, each in requests.items():
            if each is request:
                del requests[number]
                break
        if not requests:
            del self._peers[address]
        self._count -= 1
        self.waiting_bytes -= request.held_bytes
