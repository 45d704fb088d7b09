"""Requests that are carried out in parts, since one may cost much more than its bytes say.

What a turn spends on parts is bounded, for each user and in all; what is left of a request waits for
the next turn, and users take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Hashable
from typing import Final, TypeAlias

from logboom.nodes.requests.held_shares import HeldShares, Share
from logboom.nodes.turn import BrokerTurn, Service
from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.actor import PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.errors import LogboomError

PEER_UNITS: Final = 8_000
"""Units of work, some 0.25 µs each, of one user, or of one connection on a listener without keys, after
which a turn begins no further part for it."""
TURN_UNITS: Final = 2 * PEER_UNITS
"""The same of all users."""
REQUEST_UNITS: Final = 20
"""Units of a request that waits, each time that a turn looks at it, if only to refuse it."""

PART_UNITS: Final = 1_000
"""Units of one part of a request that lists something of all led queues, …"""
QUEUE_UNITS: Final = 4
"""… of a look at a queue, …"""
BATCH_UNITS: Final = 50
"""… and of a batch that is listed."""
LIST_BYTES: Final = 64 * 1024
"""What such a request takes of memory while it waits."""

Parts: TypeAlias = Generator[int, BrokerTurn, None]
"""The parts of a request: each is sent its turn, and yields the units of work that it has cost. The first
is 0, to get the first turn. The last answers; any may raise LogboomError."""


class LongRequests(Service):
    """The requests that are not finished, by user or connection."""

    def __init__(self, acceptor: Acceptor) -> None:
        self._recheck = acceptor.recheck
        self._shares = HeldShares(acceptor.peer)
        self._waiting: dict[Hashable, deque[_LongRequest]] = {}
        """In the order of their turns."""

    def serve(
        self,
        peer: PeerSession,
        message: WireMessage,
        parts: Parts,
        size: int,
        turn: BrokerTurn,
    ) -> None:
        """Carry out a request as far as the turn has room, and the rest in the next turns.

        Args:
            peer: who sent it.
            message: the request.
            parts: its parts.
            size: bytes that it takes while it waits.
            turn: the turn.
        """
        whose = _whose(peer)
        next(parts)
        request = _LongRequest(peer.address, message, parts)
        waiting = self._waiting.get(whose)
        if waiting is None and _advance(request, whose, turn):
            return
        request.share = self._shares.share_of(peer.address, size)
        if waiting is not None:
            try:
                self._shares.check(request.share)
            except LogboomError as error:
                turn.refuse(peer.address, message.id, error)
                return
        self._shares.add(request.share)
        self._waiting.setdefault(whose, deque()).append(request)

    def step(self, turn: BrokerTurn) -> None:
        """Continue with what is not finished.

        The first in line gets one part even of a turn whose room is spent on reading new requests.
        """
        due = True
        for whose in list(self._waiting):
            if not due and turn.parted_in_all >= TURN_UNITS:
                break
            if not (due or _has_room(whose, turn)):
                continue
            waiting = self._waiting.pop(whose)
            while (
                waiting
                and (due or _has_room(whose, turn))
                and self._continue(waiting[0], whose, turn, due=due)
            ):
                self._shares.remove(waiting.popleft().share)
                due = False
            due = False
            if waiting:
                self._waiting[whose] = waiting

    def deadline(self) -> float:
        """Return minus infinity while something is not finished."""
        return float("-inf") if self._waiting else float("inf")

    def _continue(
        self, request: _LongRequest, whose: Hashable, turn: BrokerTurn, *, due: bool
    ) -> bool:
        """Go on with a request whose user may have lost the right; return whether it is answered."""
        _spend(whose, REQUEST_UNITS, turn)
        error = self._recheck(request.address, request.message)
        if error is None:
            return _advance(request, whose, turn, due=due)
        turn.refuse(request.address, request.message.id, error)
        return True


class _LongRequest:
    """A request, and what is left of it."""

    __slots__ = ("address", "message", "parts", "share")

    def __init__(self, address: PeerAddress, message: WireMessage, parts: Parts) -> None:
        self.address = address
        self.message = message
        self.parts = parts
        self.share = Share((), 0)


def count_read(peer: PeerSession, units: int, turn: BrokerTurn) -> None:
    """Count the units that it has cost to read a request, at most what a user may spend."""
    _spend(_whose(peer), min(units, PEER_UNITS), turn)


def _whose(peer: PeerSession) -> Hashable:
    return peer.user or peer.address


def _advance(
    request: _LongRequest, whose: Hashable, turn: BrokerTurn, *, due: bool = False
) -> bool:
    """Carry out parts while the turn has room, and one that is `due` in any case.

    Return whether the request is answered.
    """
    try:
        while due or _has_room(whose, turn):
            due = False
            _spend(whose, request.parts.send(turn), turn)
    except StopIteration:
        return True
    except LogboomError as error:
        turn.refuse(request.address, request.message.id, error)
        return True
    return False


def _spend(whose: Hashable, units: int, turn: BrokerTurn) -> None:
    turn.parted[whose] = turn.parted.get(whose, 0) + units
    turn.parted_in_all += units


def _has_room(whose: Hashable, turn: BrokerTurn) -> bool:
    """True if a turn may begin another part for a user or connection."""
    return turn.parted_in_all < TURN_UNITS and turn.parted.get(whose, 0) < PEER_UNITS
