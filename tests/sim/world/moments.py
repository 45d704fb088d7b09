"""Moments at which a crash hurts most, recognised by the messages that arrive."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, TypeAlias

from logboom.wire.actor import Address
from logboom.wire.commands import AlterIsr, RegisterBroker, ReportDamage
from logboom.wire.frames import decode
from logboom.wire.messages import Propose, WatchResult
from logboom.wire.transactions import Decide, ReportDecided

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
    "decision asked",
    "decision told",
    "decision reported",
]
"""What happened, and the node it is about: a client got an `ack` from a broker, or `read` messages
from it; a follower `copied` entries of a leader; a broker is `registering` (the name server has
not answered); the answer to its command reached a broker (`decided`); a leader's `isr asked` reached
the name server; a broker's `damage reported` did; a name server begins to write a `snapshot`; a
broker was `elected`; the ISR of a leader's queue changed; a `decision asked` for on a transaction
reached a name server, a broker was a `decision told`, its `decision reported` reached the name
server."""

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
    Decide: "decision asked",
    ReportDecided: "decision reported",
}
_TOLD: Final = b"\xabwatchr"


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
    if head == _TOLD:
        return _told(kind, frames) if "decision told" in watched else None
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
    moment = _ASKED.get(type(command))
    if moment is None or moment not in watched:
        return None
    return moment, getattr(command, "broker", "")


def _told(kind: str, frames: Sequence[bytes]) -> tuple[Moment, str] | None:
    """A broker hears of decisions."""
    if kind != "broker":
        return None
    message = decode(frames)
    told = isinstance(message, WatchResult) and bool(message.view.decisions)
    return ("decision told", "") if told else None
