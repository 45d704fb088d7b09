"""State hashes, compared at equal index: the alarm for a state machine that is not deterministic."""

from __future__ import annotations

import hashlib

from logboom.wire.event_log import log_event

_KEPT = 16
"""Hashes kept of each side; followers that are further behind are compared later or not at all."""


class StateHashes:
    """The hashes of this node and of the leader, by the index after which they were taken."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._own: dict[int, bytes] = {}
        self._leaders: dict[int, bytes] = {}
        self.mismatches = 0
        """Number of hashes that differed; anything but 0 is an alarm."""
        self.compared = 0
        """Number of hashes compared."""

    @property
    def newest(self) -> tuple[int, bytes]:
        """(index, hash) of the newest state hashed, (0, b"") if there is none."""
        if not self._own:
            return 0, b""
        index = max(self._own)
        return index, self._own[index]

    def take(self, index: int, state: bytes) -> None:
        """Hash this node's state after an entry."""
        self._own[index] = hashlib.blake2b(state, digest_size=16).digest()
        self._compare(index)

    def hear(self, index: int, digest: bytes) -> None:
        """Note the leader's hash after an entry."""
        if index and index not in self._leaders:
            self._leaders[index] = digest
            self._compare(index)

    def _compare(self, index: int) -> None:
        for hashes in (self._own, self._leaders):
            while len(hashes) > _KEPT:
                del hashes[min(hashes)]
        own, leaders = self._own.get(index), self._leaders.get(index)
        if own is None or leaders is None:
            return
        self.compared += 1
        if own != leaders:
            self.mismatches += 1
            log_event(
                "state_diverged",
                index=index,
                text=f"{self._node_id}: the state after entry {index} differs from the leader's; stop "
                "this member, keep its folder, and join again under a new raft id",
            )
