"""The addresses of peers on listeners with keys (S3)."""

from logboom.wire.peer_routes import PeerRoutes

ALICE, MALLORY = "alice/a#1", "mallory/m#2"


def test_an_address_is_of_one_connection_and_principal() -> None:
    routes = PeerRoutes()
    for listener, descriptor in (("main", 7), ("main", 8), ("raft", 9)):
        routes.opened(listener, descriptor)
    assert routes.known("main", b"x", ALICE, 7) is None
    one = routes.heard("main", b"x", ALICE, 7)
    assert routes.heard("main", b"x", ALICE, 7) is one
    assert routes.known("main", b"x", ALICE, 7) is one
    assert routes.known("main", b"x", MALLORY, 7) is routes.known("main", b"x", ALICE, 8) is None
    other, beside = routes.heard("main", b"y", ALICE, 8), routes.heard("raft", b"x", ALICE, 9)
    assert len({one, other, beside}) == len(routes) == 3
    assert [routes.routing_id(each) for each in (one, other, beside)] == [b"x", b"y", b"x"]


def test_s3_an_address_leads_nowhere_once_its_connection_ended() -> None:
    routes = PeerRoutes()
    routes.opened("main", 7)
    alice = routes.heard("main", b"x", ALICE, 7)
    routes.gone("main", 7)
    assert routes.routing_id(alice) is None
    # Its last message may be taken after its end was reported.
    assert routes.heard("main", b"x", ALICE, 7) == alice
    assert routes.routing_id(alice) is None
    routes.opened("main", 8)
    assert routes.routing_id(alice) is None
    mallory = routes.heard("main", b"x", MALLORY, 8)
    assert routes.routing_id(alice) is None
    assert routes.routing_id(mallory) == b"x"
    routes.gone("main", 8)
    assert len(routes) == 0


def test_s3_an_end_that_is_not_reported_is_noticed() -> None:
    routes = PeerRoutes()
    routes.opened("main", 7)
    routes.opened("main", 8)
    alice = routes.heard("main", b"x", ALICE, 7)
    # Another connection has the routing id, so the first has ended.
    mallory = routes.heard("main", b"x", MALLORY, 8)
    assert routes.routing_id(alice) is None
    # The descriptor stands for another peer.
    routes.opened("main", 8)
    assert routes.routing_id(mallory) is None
    routes.opened("main", 9)
    first = routes.heard("main", b"z", ALICE, 9)
    second = routes.heard("main", b"w", ALICE, 9)
    assert routes.routing_id(first) is None
    assert routes.routing_id(second) == b"w"
    assert len(routes) == 1


def test_the_same_user_on_a_new_connection_is_answered_there() -> None:
    routes = PeerRoutes()
    routes.opened("main", 7)
    routes.opened("main", 8)
    before = routes.heard("main", b"x", ALICE, 7)
    after = routes.heard("main", b"x", ALICE, 8)
    assert routes.routing_id(after) == b"x"
    assert before == after, "both are of the same user"
    routes.gone("main", 7)
    assert routes.routing_id(after) == b"x"


def test_the_end_of_a_connection_is_of_its_listener_only() -> None:
    routes = PeerRoutes()
    routes.opened("raft", 7)
    before = routes.heard("raft", b"x", ALICE, 7)
    # Two listeners report in no order: this has the same descriptor, so the first has ended.
    routes.opened("main", 7)
    after = routes.heard("main", b"x", ALICE, 7)
    routes.gone("raft", 7)
    assert routes.routing_id(before) is None
    assert routes.routing_id(after) == b"x"
    assert (routes.is_open("raft", 7), routes.is_open("main", 7)) == (False, True)


def test_s3_a_late_message_of_an_ended_connection_takes_no_route() -> None:
    routes = PeerRoutes()
    routes.opened("main", 7)
    alice = routes.heard("main", b"\0one", ALICE, 7)
    routes.gone("main", 7)
    routes.opened("main", 7)
    assert routes.heard("main", b"\0one", ALICE, 7) == alice
    assert routes.routing_id(alice) is None
    mallory = routes.heard("main", b"\0two", MALLORY, 7)
    assert routes.heard("main", b"\0one", ALICE, 7) == alice
    assert routes.routing_id(alice) is None
    assert routes.routing_id(mallory) == b"\0two"
    # Routing ids that peers choose are used again.
    routes.opened("main", 7)
    again = routes.heard("main", b"me", ALICE, 7)
    routes.opened("main", 7)
    assert routes.heard("main", b"me", ALICE, 7) == again
    assert routes.routing_id(again) == b"me"
