"""Proofs that a user's member of a group owns a queue in an owner epoch.

The group's coordinator gives one with each assignment; the queue's leader keeps no owner epoch without
it, so an invented one locks nobody out (G7). It is made with a key that brokers alone have. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from logboom.wire.key_pair import SecretBytes

PROOF_BYTES: Final = 16
"""Length of a proof."""
_encode: Final = msgspec.msgpack.Encoder().encode


class OwnerProver:
    """Makes and checks proofs with a key derived from that of the cluster."""

    def __init__(self, cluster_key: bytes) -> None:
        self._keys: list[SecretBytes] = []
        self.take_cluster_keys((cluster_key,))

    def take_cluster_keys(self, keys: Sequence[bytes]) -> None:
        """Prove with the first of these keys from now on, and accept each."""
        made = (hmac.new(key, b"logboom owners", hashlib.sha256).digest() for key in keys)
        self._keys = [SecretBytes(key) for key in made]

    def prove(self, user: str, group: str, topic_id: int, queue: int, epoch: int) -> bytes:
        """Return the proof that a member of this user owns a queue in an epoch."""
        return self._mac(self._keys[0], user, group, topic_id, queue, epoch)

    def proves(
        self, proof: bytes, user: str, group: str, topic_id: int, queue: int, epoch: int
    ) -> bool:
        """Return True if this is that proof."""
        return any(
            hmac.compare_digest(proof, self._mac(key, user, group, topic_id, queue, epoch))
            for key in self._keys
        )

    @staticmethod
    def _mac(key: bytes, user: str, group: str, topic_id: int, queue: int, epoch: int) -> bytes:
        text = _encode((user, group, topic_id, queue, epoch))
        return hashlib.blake2b(text, key=key, digest_size=PROOF_BYTES).digest()
