"""Moments at which a crash hurts most, recognised by the messages that arrive."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, TypeAlias

from logboom.wire.actor import Address
from logboom.wire.commands import AlterIsr, RegisterBroker, ReportDamage
from logboom.wire.frames import decode
from logboom.wire.messages import Propose

Moment: TypeAlias = Literal[
    "ack",
    "read",
    "copied",
    "registering",
    "decided",
    "isr asked",
    "damage reported",
    "snapshot",
    "elected",
    "isr changed",
]
"""What happened, and the node it is about: a client got an `ack` from a broker, or `read` messages
from it; a follower `copied` entries of a leader; a broker is `registering` (the name server has
not answered); the answer to its command reached a broker (`decided`); a leader's `isr asked` reached
the name server; a broker's `damage reported` did; a name server begins to write a `snapshot`; a
broker was `elected`; the ISR of a leader's queue changed."""

_ANSWERS: Final[dict[bytes, Moment]] = {
    b"\xa8produc": "ack",
    b"\xa6pulled": "read",
    b"\xaareplic": "copied",
    b"\xa8propos": "decided",
}
_PROPOSE: Final = b"\xa7propos"
_ASKED: Final[dict[type, Moment]] = {
    AlterIsr: "isr asked",
    RegisterBroker: "registering",
    ReportDamage: "damage reported",
}


def moment_of(
    kind: str, peer: Address, frames: Sequence[bytes], watched: AbstractSet[Moment]
) -> tuple[Moment, str] | None:
    """The moment that a message brings about as it arrives at a machine of this kind, and the node
    it is about ("" is the receiver); None: it is no such message, or nobody watches for it."""
    if not watched:
        return None
    head = frames[0][1:8]
    if head == _PROPOSE:
        return _asked(frames, watched) if kind == "name-server" else None
    moment = _ANSWERS.get(head)
    if moment is None or moment not in watched or not isinstance(peer, str):
        return None
    if moment == "decided":
        return (moment, "") if kind == "broker" else None
    if moment in ("copied", "read"):
        return (moment, peer.partition(":")[0]) if len(frames) > 1 else None
    return moment, peer.partition(":")[0]


def _asked(frames: Sequence[bytes], watched: AbstractSet[Moment]) -> tuple[Moment, str] | None:
    if watched.isdisjoint(_ASKED.values()):
        return None
    message = decode(frames)
    command = message.command if isinstance(message, Propose) else None
    if not isinstance(command, AlterIsr | RegisterBroker | ReportDamage):
        return None
    moment = _ASKED[type(command)]
    return (moment, command.broker) if moment in watched else None
