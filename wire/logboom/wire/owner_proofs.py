"""Proofs that a user's member of a group owns a queue in an owner epoch.

The group's coordinator gives one with each assignment; the queue's leader keeps no owner epoch without
it, so an invented one locks nobody out (G7). It is made with a key that brokers alone have. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

import msgspec

PROOF_BYTES: Final = 16
"""Length of a proof."""
_encode: Final = msgspec.msgpack.Encoder().encode


class OwnerProver:
    """Makes and checks proofs with a key derived from that of the cluster."""

    def __init__(self, cluster_key: bytes) -> None:
        self._key = hmac.new(cluster_key, b"logboom owners", hashlib.sha256).digest()

    def prove(self, user: str, group: str, topic_id: int, queue: int, epoch: int) -> bytes:
        """Return the proof that a member of this user owns a queue in an epoch."""
        text = _encode((user, group, topic_id, queue, epoch))
        return hashlib.blake2b(text, key=self._key, digest_size=PROOF_BYTES).digest()

    def proves(
        self, proof: bytes, user: str, group: str, topic_id: int, queue: int, epoch: int
    ) -> bool:
        """Return True if this is that proof."""
        return hmac.compare_digest(proof, self.prove(user, group, topic_id, queue, epoch))
