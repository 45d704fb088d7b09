"""Moments are recognised by what arrives, and only when somebody watches for them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from logboom.wire.actor import Address, PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.commands import AlterIsr, AnyCommand, Barrier, CommandResult, RegisterBroker
from logboom.wire.frames import encode
from logboom.wire.messages import Produced, Propose, Proposed, Pulled, Replicated
from tests.sim.world.moments import Moment, moment_of

ALL: set[Moment] = {"ack", "read", "copied", "decided", "registering", "isr asked"}
DIALLED = "broker-2:7711"
CAME = PeerAddress("main", b"x")


def frames(message: WireMessage, batches: Sequence[bytes] = ()) -> list[bytes]:
    return [bytes(frame) for frame in encode(message, batches)]


def propose(command: AnyCommand) -> Propose:
    return Propose(7, 1_000, "broker-3", 1, command)


@pytest.mark.parametrize(
    ("kind", "peer", "message", "batches", "found"),
    [
        ("client", DIALLED, Produced(1, 5, 6), [], ("ack", "broker-2")),
        ("client", DIALLED, Pulled(1, "FOUND", 5, 0, 9), [b"x"], ("read", "broker-2")),
        ("client", DIALLED, Pulled(1, "NO_NEW_MESSAGE", 5, 0, 9), [], None),
        ("broker", DIALLED, Replicated(1, []), [b"x"], ("copied", "broker-2")),
        ("broker", DIALLED, Replicated(1, []), [], None),
        ("broker", "name-1:7701", Proposed(1, CommandResult(4)), [], ("decided", "")),
        ("client", "name-1:7701", Proposed(1, CommandResult(4)), [], None),
        (
            "name-server",
            CAME,
            propose(AlterIsr("broker-3", 4, [], 0)),
            [],
            ("isr asked", "broker-3"),
        ),
        (
            "name-server",
            CAME,
            propose(RegisterBroker("broker-3", "s", "i", "e:1", "", False, 0)),
            [],
            ("registering", "broker-3"),
        ),
        ("name-server", CAME, propose(Barrier()), [], None),
        ("broker", CAME, propose(AlterIsr("broker-3", 4, [], 0)), [], None),
    ],
)
def test_messages_bring_moments_about(
    kind: str,
    peer: Address,
    message: WireMessage,
    batches: Sequence[bytes],
    found: tuple[Moment, str] | None,
) -> None:
    assert moment_of(kind, peer, frames(message, batches), ALL) == found
    assert moment_of(kind, peer, frames(message, batches), set()) is None
    if found is not None:
        assert moment_of(kind, peer, frames(message, batches), ALL - {found[0]}) is None
