"""The rules W1 to W3 and S1 to S4 taken out of the real code; as `queues.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zmq
import zstandard

from logboom.wire import acceptor, compression, validation
from logboom.wire.acceptor import Acceptor
from logboom.wire.frames import decode
from logboom.wire.messages import NeedHello
from logboom.wire.peer_routes import PeerRoutes
from logboom.wire.session import Session
from logboom.wire.sockets import Sockets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logboom.wire.actor import Effects, PeerAddress
    from logboom.wire.frames import Frame
    from logboom.wire.messages import Welcome
    from tests.sim.breaks.queues import Patch


def strangers_get_no_answer(patch: Patch) -> None:
    """W1: a request before its HELLO is dropped without an answer."""
    admit = Acceptor.admit

    def silent(
        self: Acceptor,
        address: PeerAddress,
        frames: Sequence[Frame],
        out: Effects,
        now: float,
        principal: str | None = None,
    ) -> Any:
        before = len(out.sends)
        found = admit(self, address, frames, out, now, principal)
        asks = [send for send in out.sends[before:] if _asks_for_hello(send.frames)]
        out.sends[before:] = [send for send in out.sends[before:] if send not in asks]
        return found

    patch.setattr(Acceptor, "admit", silent)


def _asks_for_hello(frames: Sequence[Frame]) -> bool:
    return isinstance(decode(frames), NeedHello)


def requests_are_not_sent_again(patch: Patch) -> None:
    """W1: outstanding requests are not sent again after a new HELLO."""
    welcomed = vars(Session)["_welcomed"]

    def quiet(self: Session, message: Welcome, out: Effects, now: float) -> Any:
        before, again = len(out.sends), self.generation > 0
        ended = welcomed(self, message, out, now)
        if again:
            del out.sends[before:]
        return ended

    patch.setattr(Session, "_welcomed", quiet)


def routing_ids_are_identities(patch: Patch) -> None:
    """S1: a session is found by the routing id alone."""

    def whose(self: Acceptor, address: PeerAddress, _principal: str | None) -> Any:
        return self.peer(address)

    patch.setattr(Acceptor, "_session_of", whose)


def any_key_greets_as_a_node(patch: Patch) -> None:
    """S2: whoever holds the cluster key is any node, with whatever key it connected."""
    patch.setattr(acceptor, "_foreign_key", lambda _hello, _principal: None)


def answers_follow_the_routing_id(patch: Patch) -> None:
    """S3: an answer goes to whoever has the routing id by now."""

    def whoever(_self: PeerRoutes, address: PeerAddress) -> bytes:
        return address.routing_id.rpartition(b"/")[0]

    patch.setattr(PeerRoutes, "routing_id", whoever)


def keys_count_if_nobody_refuses_them(patch: Patch) -> None:
    """S4: a listener encrypts, and leaves it to ZAP alone to refuse a key."""

    def encrypt(self: Sockets, socket: zmq.Socket[bytes], _name: str) -> None:
        pair = vars(self)["_key_pair"]
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.reveal().encode())

    patch.setattr(Sockets, "_encrypt_listener", encrypt)
    patch.setattr(Sockets, "_answer_zap", lambda _self: None)


class _Anything(int):
    """A checksum that equals every other."""

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False

    __hash__ = int.__hash__


def checksums_are_not_compared(patch: Patch) -> None:
    """W2: a batch is accepted whatever its checksums are."""
    patch.setattr(validation, "crc32c", lambda _data: _Anything())


def lengths_are_not_bounded(patch: Patch) -> None:
    """W3: a body is decompressed to any length, and its length is compared only then."""
    patch.setattr(validation, "MAX_BODY", 1 << 62)

    def unpacked(stored: bytes, _plain_length: int) -> bytes:
        unpack = zstandard.ZstdDecompressor().decompressobj()
        plain: bytes = unpack.decompress(bytes(stored))
        return plain

    patch.setattr(compression, "_zstd", unpacked)
