"""With which public key of a node to dial it, pure: it may be about to have another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

ServerKeys: TypeAlias = Callable[[str], Sequence[str]]
"""Returns the public keys (Z85) that the node at an endpoint may have, the likeliest first."""

MAX_ENDPOINTS: Final = 1_000
"""Endpoints whose wrong keys are remembered; beyond it all are tried again."""


class KeyChoice:
    """The key to dial each endpoint with: the first that was not found wrong."""

    def __init__(self) -> None:
        self._wrong: dict[str, set[str]] = {}

    def choose(self, endpoint: str, keys: Sequence[str]) -> str | None:
        """Return the key for the next dial, or None if there is none."""
        wrong = self._wrong.get(endpoint, ())
        found = next((key for key in keys if key not in wrong), None)
        if found is None and keys:
            # All are wrong, as it seems: from the beginning, since a break looks the same.
            self._wrong.pop(endpoint, None)
            found = keys[0]
        return found

    def failed(self, endpoint: str, key: str) -> None:
        """Try another key at the next dial."""
        if len(self._wrong) >= MAX_ENDPOINTS:
            self._wrong.clear()
        self._wrong.setdefault(endpoint, set()).add(key)
