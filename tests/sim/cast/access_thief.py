"""Somebody with a key of her own who takes the routing ids of others when their connections break."""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from logboom.wire.access.access_commands import AlterUser
from logboom.wire.actor import HandshakeFailed, PeerAddress, Received
from logboom.wire.base import WireMessage
from logboom.wire.batch import encode_batch
from logboom.wire.errors import InvalidRequest
from logboom.wire.frames import decode, encode
from logboom.wire.messages import NeedHello, Ping, Produce, Propose, Pull, Watch
from tests.sim.judges.access_watch import IDENTITIES
from tests.sim.world.network import Host
from tests.sim.world.trace import BrokenProperty
from tests.sim.world.world import World

FIRST_ID: Final = 1 << 40
"""Her requests are numbered from here on: what answers those of others is not hers to be judged."""
REST_S: Final = 0.4


class Thief:
    """A host without a session: it sends requests at once, and greets nobody."""

    def __init__(self, name: str, world: World, rng: random.Random) -> None:
        self.name = name
        self._world = world
        self._rng = rng
        self._left: deque[tuple[str, PeerAddress]] = deque(maxlen=12)
        """(node, routing id) of connections that broke lately."""
        self._asked = FIRST_ID
        self._working = False
        world.network.on_break = self._broken

    def _broken(self, listener: Host, peer: PeerAddress, dialler: Host) -> None:
        if dialler is not self:
            self._left.append((listener.name, peer))

    def begin(self) -> None:
        """Steal now and again."""
        self._working = True
        self._steal()

    def rest(self) -> None:
        """Steal no more."""
        self._working = False

    def _steal(self) -> None:
        if not self._working:
            return
        self._world.scheduler.after(self._rng.expovariate(1 / REST_S), self._steal)
        if not self._left:
            return
        node, peer = self._left.pop()
        endpoint = self._world.machines[node].listeners[peer.listener]
        network = self._world.network
        network.hang_up(self, endpoint)
        network.take_over(self, endpoint, peer)
        for message, batches in self._wishes():
            self._asked += 1
            message.id = self._asked
            network.send(self, endpoint, encode(message, batches))
        self._world.trace.count("routing ids taken")

    def _wishes(self) -> list[tuple[WireMessage, list[bytes]]]:
        stolen = encode_batch([b"stolen"], now_ms=1)
        promoted = AlterUser("mallory", None, ["administrator"], None, 1)
        return [
            (Produce(0, 1_000, "safe", 0, "all"), [stolen]),
            (Propose(0, 1_000, "thief", self._asked, promoted), []),
            (Pull(0, 1_000, "safe", 0, 0, 4096, 0), []),
            (Watch(0, 1_000, -1, None, 1_000), []),
            (Ping(0), []),
        ]

    def deliver(self, event: Received | HandshakeFailed) -> None:
        """Whatever she asked under a routing id that is not hers, she is asked to greet."""
        if isinstance(event, HandshakeFailed):
            return
        try:
            message = decode(event.frames)
        except InvalidRequest:
            return
        if not isinstance(message, NeedHello) and message.id >= FIRST_ID:
            raise BrokenProperty(IDENTITIES, f"{event.peer} answered a thief: {message}")
        if isinstance(message, NeedHello):
            self._world.trace.count("thieves asked to greet")
