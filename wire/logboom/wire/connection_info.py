"""An accepted connection, as the system sees it."""

from __future__ import annotations

from typing import NamedTuple


class ConnectionInfo(NamedTuple):
    """The other end of a connection, and what went over it."""

    endpoint: str
    """host:port of the peer."""
    received_bytes: int
    """Bytes on the wire, from the peer."""
    sent_bytes: int
    """Bytes on the wire, as far as the peer has acknowledged them."""
