"""The rules W1 to W3 taken out of the real code; as `queues.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import zstandard

from logboom.wire import compression, validation
from logboom.wire.acceptor import Acceptor
from logboom.wire.frames import decode
from logboom.wire.messages import NeedHello
from logboom.wire.session import Session

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
        self: Acceptor, address: PeerAddress, frames: Sequence[Frame], out: Effects, now: float
    ) -> Any:
        before = len(out.sends)
        found = admit(self, address, frames, out, now)
        asks = [send for send in out.sends[before:] if _asks_for_hello(send.frames)]
        out.sends[before:] = [send for send in out.sends[before:] if send not in asks]
        return found

    patch.setattr(Acceptor, "admit", silent)


def _asks_for_hello(frames: Sequence[Frame]) -> bool:
    return isinstance(decode(frames), NeedHello)


def requests_are_not_sent_again(patch: Patch) -> None:
    """W1: outstanding requests are not sent again after a new HELLO."""
    welcomed = vars(Session)["_welcomed"]

    def quiet(self: Session, message: Welcome, out: Effects, now: float) -> None:
        before, again = len(out.sends), self.generation > 0
        welcomed(self, message, out, now)
        if again:
            del out.sends[before:]

    patch.setattr(Session, "_welcomed", quiet)


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
