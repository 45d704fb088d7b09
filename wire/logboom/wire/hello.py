"""The proof that nodes and operators hold the cluster key: HMAC-SHA256 over both nonces.

listener → dialer: proof = HMAC(key, "listener" ‖ dialer nonce ‖ listener nonce ‖ dialer id)
dialer → listener: proof = HMAC(key, "dialer"   ‖ dialer nonce ‖ listener nonce ‖ dialer id)
Each covers the other's fresh nonce, so neither can be replayed; the first word keeps one side's
proof from being reflected as the other's.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from logboom.wire.messages import OLDEST_VERSION, PROTOCOL_VERSION

PeerKind: TypeAlias = Literal["client", "broker", "name-server"]


@dataclass(slots=True)
class Identity:
    """The sender of HELLO, one for all connections of a process: its keys may change meanwhile."""

    client_id: str
    kind: PeerKind = "client"
    instance_epoch: int = 0
    cluster_key: bytes = field(default=b"", repr=False)
    """The key of nodes, and of clients that operate the cluster; others have none."""
    user: str = ""
    """The user of the credentials, for texts; nodes know it by the key."""
    version_min: int = OLDEST_VERSION
    version_max: int = PROTOCOL_VERSION
    other_keys: tuple[bytes, ...] = field(default=(), repr=False)
    """Keys that count besides, while the cluster key is changed."""

    def take_cluster_keys(self, keys: Sequence[bytes]) -> None:
        """Greet with the first of these keys from now on, and accept each from those who are dialled."""
        self.cluster_key, *others = keys
        self.other_keys = tuple(others)


def proof(
    key: bytes,
    side: Literal["listener", "dialer"],
    dialer_nonce: bytes,
    listener_nonce: bytes,
    dialer_id: str,
) -> bytes:
    """Return the HMAC that one side presents to the other."""
    text = b"\0".join((side.encode(), dialer_nonce, listener_nonce, dialer_id.encode()))
    return hmac.new(key, text, hashlib.sha256).digest()


def verify_proof(expected: bytes, shown: bytes) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(expected, shown)
