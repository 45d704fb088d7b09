"""Quotas of connections, the list of connections, and kicks."""

from __future__ import annotations

import random

import pytest

from logboom.wire.acceptor import Acceptor
from logboom.wire.access.access_book import AccessBook
from logboom.wire.access.access_rules import (
    AccessRule,
    AccessView,
    Quota,
    UserKey,
    UserView,
    principal_of,
)
from logboom.wire.actor import Effects, PeerAddress
from logboom.wire.authorizer import Authorizer
from logboom.wire.connection_info import ConnectionInfo
from logboom.wire.connection_requests import kick_connection, list_connections
from logboom.wire.errors import InvalidRequest, TimedOut
from logboom.wire.frames import decode, encode
from logboom.wire.hello import Identity
from logboom.wire.messages import (
    AnyMessage,
    Failure,
    Hello,
    KickConnection,
    ListConnections,
    NeedHello,
    Ok,
    Ping,
    Stats,
    Welcome,
)
from logboom.wire.session import Reply, Session

KEYS = {name: UserKey("laptop", name[:1] * 40, 0) for name in ("ann", "bob", "node:b1")}
RULE = AccessRule(True, "admin", "cluster", "cluster")


class Door:
    """A node's acceptor, and peers that greet."""

    def __init__(self, **limits: int) -> None:
        self.book = AccessBook()
        self.now = 100.0
        self.gate = Acceptor("b1", b"", random.Random(1))
        self.gate.authorizer = Authorizer(lambda: self.book)
        self.gate.inspect = lambda peer: ConnectionInfo(
            f"10.0.0.1:{peer.routing_id.decode()}", 5, 7
        )
        self.version = 0
        self.grant((), **limits)

    def grant(self, disabled: tuple[str, ...] = (), **limits: int) -> None:
        """Set the quota of ann, and who is disabled."""
        self.version += 1
        users = [
            UserView(
                name,
                [key],
                [],
                [RULE],
                name in disabled,
                Quota(**limits) if name == "ann" else Quota(),
            )
            for name, key in KEYS.items()
        ]
        self.book.update(AccessView(True, users), self.version)

    def greet(self, routing_id: int, user: str = "ann") -> AnyMessage:
        """HELLO over a new connection; the answer."""
        return self.send(routing_id, Hello(-1, 1, 1, f"c{routing_id}", "client", 0), user)

    def send(self, routing_id: int, message: AnyMessage, user: str = "ann") -> AnyMessage:
        """A message of a user; the answer, or the message itself if it was admitted."""
        out = Effects()
        address = PeerAddress("main", b"%d" % routing_id)
        principal = principal_of(user, KEYS[user]) if user else None
        admitted = self.gate.admit(address, encode(message), out, self.now, principal)
        if admitted is not None:
            return admitted[1]
        return decode(out.sends[0].frames)


def test_a_user_has_as_many_connections_as_its_quota_allows() -> None:
    door = Door(connections=2)
    assert isinstance(door.greet(1), Welcome)
    assert isinstance(door.greet(2), Welcome)
    refused = door.greet(3)
    assert isinstance(refused, Failure)
    assert (refused.id, refused.code, refused.retryable) == (-1, "BUSY", True)
    assert "logboom quota set ann --connections 4" in refused.text
    # Others, and a second greeting over the same connection, are not concerned.
    assert isinstance(door.greet(4, "bob"), Welcome)
    assert isinstance(door.greet(5, ""), Welcome)
    assert isinstance(door.greet(2), Welcome)
    door.grant(connections=3)
    assert isinstance(door.greet(3), Welcome)
    door.grant(connections=0)
    assert all(isinstance(door.greet(n), Welcome) for n in range(10, 30))


def test_a_connection_that_was_lost_does_not_count() -> None:
    door = Door(connections=1)
    door.greet(1)
    assert isinstance(door.greet(2), Failure)
    door.gate.is_connected = lambda peer: peer.routing_id != b"1"
    assert isinstance(door.greet(2), Welcome)
    assert isinstance(door.greet(3), Failure)


def test_a_session_that_ends_makes_room() -> None:
    door = Door(connections=1)
    door.greet(1)
    door.now += 40
    door.gate.sweep(door.now)
    assert isinstance(door.greet(2), Welcome)
    door.gate.end(PeerAddress("main", b"2"))
    door.gate.end(PeerAddress("main", b"2"))
    assert isinstance(door.greet(3), Welcome)


def test_the_client_says_why_it_could_not_connect() -> None:
    door = Door(connections=1)
    door.greet(1)
    session = Session("b1:1", Identity("c2"), random.Random(2), door.now)
    out = Effects()
    session.request(Stats(0, 1_000), (), None, door.now + 1.0, out, door.now)
    replies: list[Reply] = []
    gate_out = Effects()
    principal = principal_of("ann", KEYS["ann"])
    for _ in range(40):
        for send in out.sends:
            door.gate.admit(PeerAddress("main", b"2"), send.frames, gate_out, door.now, principal)
        out.sends.clear()
        for send in gate_out.sends:
            replies += session.receive(send.frames, out, door.now)
        gate_out.sends.clear()
        door.now += 0.05
        replies += session.tick(out, door.now)
    (reply,) = replies
    assert reply.error is not None
    assert not isinstance(reply.error, TimedOut)
    assert (reply.error.code, reply.error.retryable) == ("BUSY", True)
    door.gate.end(PeerAddress("main", b"1"))
    session.request(Stats(0, 60_000), (), None, door.now + 60.0, out, door.now)
    for _ in range(200):
        for send in out.sends:
            door.gate.admit(PeerAddress("main", b"2"), send.frames, gate_out, door.now, principal)
        out.sends.clear()
        for send in gate_out.sends:
            session.receive(send.frames, out, door.now)
        gate_out.sends.clear()
        door.now += 0.05
        session.tick(out, door.now)
    assert (session.state, session.hindrance) == ("open", None)


def test_connections_are_listed_with_all_that_is_known() -> None:
    door = Door()
    door.greet(1)
    door.now += 2.0
    door.greet(2, "bob")
    door.now += 1.5
    door.send(1, Ping(-2))
    door.now += 0.25
    waited = {PeerAddress("main", b"1"): 30}
    listed = list_connections(
        door.gate, ListConnections(7, 1), door.now, lambda a: waited.get(a, 0)
    )
    assert (listed.id, listed.total) == (7, 2)
    first, second = listed.connections
    assert (first.endpoint, first.user, first.key) == ("10.0.0.1:1", "ann", "laptop")
    assert (first.client_id, first.kind, first.listener) == ("c1", "client", "main")
    assert (first.since_ms, first.idle_ms, first.throttled_ms) == (3_750, 250, 30)
    assert (first.received_bytes, first.sent_bytes) == (5, 7)
    assert (second.user, second.idle_ms, second.throttled_ms) == ("bob", 1_750, 0)
    only = list_connections(door.gate, ListConnections(0, 1, "bob"), door.now)
    assert [each.user for each in only.connections] == ["bob"]
    few = list_connections(door.gate, ListConnections(0, 1, "", 1), door.now)
    assert (len(few.connections), few.total) == (1, 2)
    door.gate.is_connected = lambda peer: peer.routing_id != b"1"
    connected = list_connections(door.gate, ListConnections(0, 1), door.now)
    assert ([each.user for each in connected.connections], connected.total) == (["bob"], 1)
    door.gate.inspect = lambda _: None
    unknown = list_connections(door.gate, ListConnections(0, 1), door.now).connections[0]
    assert (unknown.endpoint, unknown.received_bytes, unknown.sent_bytes) == ("", -1, -1)


def test_a_kick_ends_the_session_and_the_connection() -> None:
    door = Door()
    door.greet(1)
    door.greet(2)
    out = Effects()
    answer = kick_connection(door.gate, KickConnection(9, 1, "10.0.0.1:2"), out)
    assert answer == Ok(9)
    assert out.kicks == [PeerAddress("main", b"2")]
    assert isinstance(door.send(2, Stats(1, 1)), NeedHello)
    assert isinstance(door.send(1, Stats(1, 1)), Stats)
    for wrong in ("10.0.0.1:2x", "10.0.0.1", ""):
        missing = kick_connection(door.gate, KickConnection(9, 1, wrong), Effects())
        assert isinstance(missing, InvalidRequest)
        assert "logboom connections list --node b1" in missing.text


def test_silent_connections_of_revoked_keys_are_reset() -> None:
    door = Door()
    for routing_id, user in ((1, "ann"), (2, "bob"), (3, "ann"), (4, "")):
        door.greet(routing_id, user)
    assert door.gate.end_revoked(door.now) == []
    door.grant(("ann",))
    assert door.gate.end_revoked(door.now + 0.5) == []
    found = door.gate.end_revoked(door.now + 1.5)
    assert sorted(each.routing_id for each in found) == [b"1", b"3"]
    assert len(door.gate) == 2
    assert door.gate.end_revoked(door.now + 9.0) == []


@pytest.mark.parametrize("proven", [True, False])
def test_on_an_open_listener_a_kick_needs_the_cluster_key(proven: bool) -> None:
    door = Door()
    door.greet(1, "")
    session = door.gate.peer(PeerAddress("main", b"1"))
    assert session is not None
    session.proven = proven
    answer = door.send(1, KickConnection(5, 1, "x"), "")
    assert isinstance(answer, KickConnection if proven else Failure)
    assert isinstance(door.send(1, ListConnections(5, 1), ""), ListConnections)
