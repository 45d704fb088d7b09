"""Requests about the connections of a node, which every node serves; pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logboom.wire.acceptor import Acceptor, PeerSession
from logboom.wire.access.access_rules import label_of
from logboom.wire.actor import Effects, PeerAddress
from logboom.wire.base import WireMessage
from logboom.wire.errors import InvalidRequest, LogboomError
from logboom.wire.messages import (
    ConnectionsListed,
    ConnectionState,
    KickConnection,
    ListConnections,
    Ok,
)

MAX_LISTED: Final = 10_000
"""Maximum number of connections in one answer."""


def list_connections(
    acceptor: Acceptor,
    message: ListConnections,
    now: float,
    throttled_ms_of: Callable[[PeerAddress], int] = lambda _: 0,
) -> ConnectionsListed:
    """Answer with the sessions of a node, the longest throttled and then the newest first.

    Sessions whose connection was lost are left out; they end soon.
    """
    meant = [
        each
        for each in acceptor.sessions()
        if message.user in ("", each.user) and acceptor.is_connected(each.address)
    ]
    meant.sort(key=lambda each: (-throttled_ms_of(each.address), -each.opened))
    shown = meant[: max(0, min(message.limit, MAX_LISTED))]
    states = [_state(acceptor, each, now, throttled_ms_of(each.address)) for each in shown]
    return ConnectionsListed(message.id, states, len(meant))


def kick_connection(
    acceptor: Acceptor, message: KickConnection, out: Effects
) -> WireMessage | LogboomError:
    """End the session with the peer at an address, and let its connection be reset."""
    for session in acceptor.sessions():
        info = acceptor.inspect(session.address)
        if info is not None and info.endpoint == message.endpoint:
            acceptor.end(session.address)
            out.kicks.append(session.address)
            return Ok(message.id)
    text = (
        f"{acceptor.node_id} has no connection from {message.endpoint!r}: give an address of "
        f"`logboom connections list --node {acceptor.node_id}`"
    )
    return InvalidRequest(text)


def _state(
    acceptor: Acceptor, session: PeerSession, now: float, throttled_ms: int
) -> ConnectionState:
    info = acceptor.inspect(session.address)
    return ConnectionState(
        info.endpoint if info is not None else "",
        session.address.listener,
        session.client_id,
        session.kind,
        session.user,
        "" if session.principal is None else label_of(session.principal),
        max(0, int((now - session.opened) * 1000)),
        max(0, int((now - session.heard) * 1000)),
        info.received_bytes if info is not None else -1,
        info.sent_bytes if info is not None else -1,
        throttled_ms,
    )
