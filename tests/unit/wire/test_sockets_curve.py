"""Encrypted sockets over loopback: who gets in, as whom, and what the others are told."""

import random
import socket as tcp
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
import zmq

from logboom.wire import sockets as sockets_module
from logboom.wire.actor import Address, HandshakeFailed, PeerAddress, Received, Send
from logboom.wire.authenticator import LATER, REFUSED, Verdict
from logboom.wire.connection_limits import ADMITTED
from logboom.wire.errors import StartError
from logboom.wire.key_pair import KeyPair
from logboom.wire.sockets import Sockets, make_key_pair
from logboom.wire.zap_requests import domain_of

NODE, ALICE, BOB, MALLORY = (make_key_pair() for _ in range(4))
PRINCIPALS = {ALICE.public: "alice/a#1", BOB.public: "bob/b#2"}


def registered(key: str, _address: str, _listener: str) -> Verdict:
    """Accept Alice and Bob."""
    principal = PRINCIPALS.get(key)
    return REFUSED if principal is None else Verdict("accepted", principal)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ ends no handshake because a busy machine is slow."""
    monkeypatch.setattr(sockets_module, "HANDSHAKE_MS", 300_000)


@contextmanager
def listening() -> Iterator[Sockets]:
    """A node with the encrypted listener "main" and the open one "open"."""
    listeners = {"main": "127.0.0.1:0", "open": "127.0.0.1:0"}
    with closing(Sockets(listeners, key_pair=NODE, curve={"main"})) as sockets:
        yield sockets


@pytest.fixture
def node() -> Iterator[Sockets]:
    with listening() as sockets:
        sockets.authenticate = registered
        yield sockets


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def dialler(clients: ExitStack, pair: KeyPair | None, *server_keys: str) -> Sockets:
    """Sockets that know these keys of every node."""
    sockets = Sockets(key_pair=pair)
    clients.callback(sockets.close)
    sockets.server_keys = lambda _endpoint: server_keys
    return sockets


def gather(sockets: Sockets, count: int, *others: Sockets) -> list[Received | HandshakeFailed]:
    """Poll until `count` events came; others are polled too."""
    found: list[Received | HandshakeFailed] = []
    end = time.monotonic() + 100
    while len(found) < count and time.monotonic() < end:
        for other in others:
            other.poll(0)
        found += sockets.poll(0.01)
    return found


def test_a_message_is_encrypted_and_has_its_principal(node: Sockets, clients: ExitStack) -> None:
    endpoint = node.endpoints["main"]
    alice = dialler(clients, ALICE, NODE.public)
    with eavesdropper(endpoint) as (tapped, heard):
        alice.send([Send(tapped, [b"hello hello", b"batch batch"])])
        (asked,) = gather(node, 1, alice)
        assert isinstance(asked, Received)
        assert isinstance(asked.peer, PeerAddress)
        assert list(asked.frames) == [b"hello hello", b"batch batch"]
        assert asked.principal == "alice/a#1"
        node.send([Send(asked.peer, [b"answer answer"])])
        (answer,) = gather(alice, 1, node)
        assert answer == Received(tapped, [b"answer answer"])
        assert len(heard) > 500
        for plain in (b"hello", b"batch", b"answer", b"alice"):
            assert plain not in heard


@contextmanager
def eavesdropper(endpoint: str) -> Iterator[tuple[str, bytearray]]:
    """A relay of one connection that keeps all bytes; yields its endpoint and the bytes."""
    heard = bytearray()
    host, port = endpoint.split(":")
    with tcp.create_server(("127.0.0.1", 0)) as server:
        ends: list[tcp.socket] = []

        def copy(source: tcp.socket, target: tcp.socket) -> None:
            while True:
                try:
                    data = source.recv(65_536)
                    heard.extend(data)
                    target.sendall(data)
                except OSError:
                    return
                if not data:
                    return

        def serve() -> None:
            near, _ = server.accept()
            far = tcp.create_connection((host, int(port)))
            ends.extend((near, far))
            back = threading.Thread(target=copy, args=(far, near))
            back.start()
            copy(near, far)
            back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", heard
        finally:
            for end in ends:
                end.shutdown(tcp.SHUT_RDWR)
            thread.join()
            for end in ends:
                end.close()


def test_on_the_open_listener_nobody_has_a_principal(node: Sockets, clients: ExitStack) -> None:
    stranger = dialler(clients, None)
    stranger.send([Send(node.endpoints["open"], [b"hello"])])
    (asked,) = gather(node, 1, stranger)
    assert isinstance(asked, Received)
    assert asked.principal is None


def test_s4_without_an_authenticator_nobody_gets_in() -> None:
    """libzmq lets any key in where nobody answers at the ZAP endpoint, unless it is told not to."""
    with ExitStack() as clients, listening() as node:
        alice = dialler(clients, ALICE, NODE.public)
        alice.send([Send(node.endpoints["main"], [b"hello"])])
        assert gather(alice, 1, node) == [HandshakeFailed(node.endpoints["main"], "key")]
        assert node.poll(0.2) == []


def test_s4_without_an_answer_at_the_zap_endpoint_nobody_gets_in(
    clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sockets, "_answer_zap", lambda _self: None)
    with listening() as node:
        node.authenticate = registered
        alice = dialler(clients, ALICE, NODE.public)
        alice.send([Send(node.endpoints["main"], [b"hello"])])
        assert len(gather(alice, 1, node)) == 1
        assert node.poll(0.2) == []


def test_an_unknown_key_is_told_so_each_time(node: Sockets, clients: ExitStack) -> None:
    endpoint = node.endpoints["main"]
    mallory = dialler(clients, MALLORY, NODE.public)
    for _ in range(3):
        mallory.send([Send(endpoint, [b"hello"])])
        assert gather(mallory, 1, node) == [HandshakeFailed(endpoint, "key")]
    PRINCIPALS[MALLORY.public] = "mallory/m#3"
    try:
        mallory.send([Send(endpoint, [b"let in by now"])])
        (asked,) = gather(node, 1, mallory)
    finally:
        del PRINCIPALS[MALLORY.public]
    assert isinstance(asked, Received)
    assert asked.principal == "mallory/m#3"


def test_a_dialler_without_a_key_is_told_so(node: Sockets, clients: ExitStack) -> None:
    endpoint = node.endpoints["main"]
    stranger = dialler(clients, None)
    stranger.send([Send(endpoint, [b"hello"])])
    assert gather(stranger, 1, node) == [HandshakeFailed(endpoint, "no-key")]
    assert node.poll(0.2) == []


def test_a_dialler_with_a_key_does_not_fall_back(node: Sockets, clients: ExitStack) -> None:
    endpoint = node.endpoints["open"]
    alice = dialler(clients, ALICE, NODE.public)
    alice.send([Send(endpoint, [b"hello"])])
    assert gather(alice, 1, node) == [HandshakeFailed(endpoint, "server")]
    ignorant = dialler(clients, ALICE)
    for _ in range(2):
        ignorant.send([Send(endpoint, [b"hello"]), Send(endpoint, [b"hello"])])
        assert gather(ignorant, 1, node) == [HandshakeFailed(endpoint, "unknown-server")]
    assert node.poll(0.2) == []
    ignorant.plain_allowed = endpoint.__eq__
    ignorant.send([Send(endpoint, [b"hello"])])
    (asked,) = gather(node, 1, ignorant)
    assert isinstance(asked, Received)
    assert asked.principal is None


def test_a_wrong_server_gets_nothing(node: Sockets, clients: ExitStack) -> None:
    endpoint = node.endpoints["main"]
    alice = dialler(clients, ALICE, BOB.public)
    alice.send([Send(endpoint, [b"hello"])])
    assert gather(alice, 1, node) == [HandshakeFailed(endpoint, "server")]
    assert alice.poll(0.2) == [], "it is closed, and does not dial again by itself"
    assert node.poll(0.2) == []


def test_the_next_key_of_a_node_is_tried(node: Sockets, clients: ExitStack) -> None:
    endpoint = node.endpoints["main"]
    alice = dialler(clients, ALICE, BOB.public, MALLORY.public, NODE.public)
    for _ in range(2):
        alice.send([Send(endpoint, [b"hello"])])
        assert gather(alice, 1, node) == [HandshakeFailed(endpoint, "server")]
    alice.send([Send(endpoint, [b"hello"])])
    assert len(gather(node, 1, alice)) == 1
    alice.hang_up(endpoint)
    alice.send([Send(endpoint, [b"remembered"])])
    assert len(gather(node, 1, alice)) == 1


def test_who_cannot_be_judged_yet_waits(clients: ExitStack) -> None:
    with listening() as node:
        node.authenticate = lambda _key, _address, _listener: LATER
        alice = dialler(clients, ALICE, NODE.public)
        mallory = dialler(clients, MALLORY, NODE.public)
        endpoint = node.endpoints["main"]
        alice.send([Send(endpoint, [b"hello"])])
        mallory.send([Send(endpoint, [b"hello"])])
        assert node.poll(0.5) == alice.poll(0) == mallory.poll(0) == []
        node.authenticate = registered
        (asked,) = gather(node, 1, alice)
        assert isinstance(asked, Received)
        assert asked.principal == "alice/a#1"
        assert gather(mallory, 1, node) == [HandshakeFailed(endpoint, "key")]


def test_the_authenticator_is_told_where_and_from_where(clients: ExitStack) -> None:
    with listening() as node:
        asked: list[tuple[str, str, str]] = []

        def listen(*question: str) -> Verdict:
            asked.append((question[0], question[1], question[2]))
            return REFUSED

        node.authenticate = listen
        alice = dialler(clients, ALICE, NODE.public)
        alice.send([Send(node.endpoints["main"], [b"hello"])])
        gather(alice, 1, node)
        assert asked == [(ALICE.public, "127.0.0.1", "main")]


def test_identities_hold_while_many_talk_at_once(node: Sockets, clients: ExitStack) -> None:
    endpoint, rounds = node.endpoints["main"], 200
    talkers = [(b"alice", dialler(clients, ALICE, NODE.public)) for _ in range(3)]
    talkers += [(b"bob", dialler(clients, BOB, NODE.public)) for _ in range(3)]
    rng = random.Random(1)
    for number in range(rounds):
        who, sockets = rng.choice(talkers)
        sockets.send([Send(endpoint, [b"%b %d" % (who, number)])])
    others = [sockets for _, sockets in talkers]
    received = gather(node, rounds, *others)
    assert len(received) == rounds
    peers: dict[str | None, set[object]] = defaultdict(set)
    for each in received:
        assert isinstance(each, Received)
        said = bytes(each.frames[0]).split()[0]
        assert each.principal == {b"alice": "alice/a#1", b"bob": "bob/b#2"}[said]
        peers[each.principal].add(each.peer)
    assert [len(addresses) for addresses in peers.values()] == [3, 3]


def test_who_was_heard_may_say_more_though_others_never_greet(
    node: Sockets, clients: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody is let off because time has passed.
    monkeypatch.setattr("logboom.wire.connection_limits.HANDSHAKE_OVER_S", float("inf"))
    endpoint, body = node.endpoints["main"], bytes(1024 * 1024)
    host, port = endpoint.split(":")
    for _ in range(3 * ADMITTED):
        clients.enter_context(tcp.create_connection((host, int(port))))
    while node.figures()["connections"] < 3 * ADMITTED:
        node.poll(0.01)
    alice = dialler(clients, ALICE, NODE.public)
    for said in (b"hello", body):
        alice.send([Send(endpoint, [said])])
        (asked,) = gather(node, 1, alice)
        assert isinstance(asked, Received)
        assert [bytes(frame) for frame in asked.frames] == [said]


def test_a_key_is_needed_to_encrypt() -> None:
    with pytest.raises(StartError, match="set credentials_file"):
        Sockets({"main": "127.0.0.1:0"}, curve={"main"})


def test_nodes_connect_while_the_data_of_others_waits(node: Sockets, clients: ExitStack) -> None:
    alice = dialler(clients, ALICE, NODE.public)
    alice.send([Send(node.endpoints["main"], [b"hello"])])
    mallory = dialler(clients, MALLORY, NODE.public)
    mallory.send([Send(node.endpoints["main"], [b"hello"])])
    end = time.monotonic() + 100
    told: list[object] = []
    while not told and time.monotonic() < end:
        node.poll(0.01, listening=False)
        told += mallory.poll(0)
    assert told == [HandshakeFailed(node.endpoints["main"], "key")]
    assert len(gather(node, 1, alice)) == 1


# ── routing ids ───────────────────────────────────────────────────────────────────────────────


@contextmanager
def bare(pair: KeyPair, endpoint: str, routing_id: bytes = b"") -> Iterator[zmq.Socket[bytes]]:
    """A DEALER of its own context, which may claim any routing id."""
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        if routing_id:
            socket.setsockopt(zmq.ROUTING_ID, routing_id)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.encode())
        socket.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.reveal().encode())
        socket.setsockopt(zmq.CURVE_SERVERKEY, NODE.public.encode())
        socket.connect(f"tcp://{endpoint}")
        yield socket
    finally:
        socket.close()
        context.term()


def hear(node: Sockets) -> Received:
    (asked,) = gather(node, 1)
    assert isinstance(asked, Received)
    return asked


@pytest.mark.parametrize("speaks", [True, False])
def test_s3_a_late_answer_never_reaches_who_took_the_routing_id(
    node: Sockets, speaks: bool
) -> None:
    endpoint = node.endpoints["main"]
    with bare(ALICE, endpoint, b"taken") as alice:
        alice.send(b"long poll")
        asked = hear(node)
        assert isinstance(asked.peer, PeerAddress)
        with bare(BOB, endpoint) as bob:
            bob.send(b"beside")
            beside = hear(node).peer
            alice.close()
            until_gone(node, asked.peer)
            # ZeroMQ lets go of the routing id in a thread of its own and tells nobody. Whoever
            # claims it before is never heard.
            node.poll(0.5)
            with bare(BOB, endpoint, b"taken") as thief:
                if speaks:
                    # Until it is bound to the routing id, which its predecessor may still hold.
                    thief.send(b"now mine")
                    taken = hear(node)
                    assert taken.principal == "bob/b#2"
                    assert taken.peer != asked.peer
                    node.send([Send(taken.peer, [b"to the thief"])])
                else:
                    # For its handshake, of which nothing is to be seen.
                    node.poll(0.5)
                node.send([Send(asked.peer, [b"secret of alice"]), Send(beside, [b"to bob"])])
                assert node.dropped == 1
                node.poll(0.2)
                assert bob.recv() == b"to bob"
                if speaks:
                    assert thief.recv() == b"to the thief"
                assert thief.poll(200) == 0


def until_gone(node: Sockets, peer: Address) -> None:
    """Poll until the node knows that a connection has ended."""
    assert isinstance(peer, PeerAddress)
    end = time.monotonic() + 100
    while node.is_connected(peer) and time.monotonic() < end:
        node.poll(0.01)


def test_an_answer_to_a_connection_that_is_gone_is_dropped(node: Sockets) -> None:
    with bare(ALICE, node.endpoints["main"]) as alice:
        alice.send(b"hello")
        asked = hear(node)
    until_gone(node, asked.peer)
    node.send([Send(asked.peer, [b"answer"])])
    assert node.dropped == 1


def test_connections_that_come_and_go_leave_no_counts_behind(
    node: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "KNOWN_PEERS", 3)
    for _ in range(8):
        with bare(ALICE, node.endpoints["main"]) as alice:
            alice.send(b"hello")
            node.send([Send(hear(node).peer, [b"welcome"])])
            while not alice.poll(0):
                node.poll(0.01)
            assert alice.recv() == b"welcome"
    assert len(node._unfollowed) <= 4  # noqa: SLF001 - the memory is inside


# ── raw connections ───────────────────────────────────────────────────────────────────────────

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01"


@pytest.mark.parametrize(
    "said",
    [
        GREETING
        + b"NULL".ljust(20, b"\0")
        + bytes(32)
        + b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\6DEALER",
        GREETING + b"PLAIN".ljust(20, b"\0") + bytes(32) + b"\x04\x08\x05HELLO\0\0",
        GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x04\x06\x05READY",
        GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x04\xc8\x05HELLO" + bytes(194),
        GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x06" + struct.pack(">Q", 1 << 62),
        GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + b"\x00\x05hello",
        b"\x01\x00\x00\x05hello",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_who_does_not_shake_hands_is_not_heard(
    node: Sockets, clients: ExitStack, said: bytes
) -> None:
    host, port = node.endpoints["main"].split(":")
    with tcp.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(said)
        assert node.poll(0.2) == []
        alice = dialler(clients, ALICE, NODE.public)
        alice.send([Send(node.endpoints["main"], [b"hello"])])
        (asked,) = gather(node, 1, alice)
        assert isinstance(asked, Received)
        assert asked.principal == "alice/a#1"


def test_each_listener_has_a_domain_of_its_own() -> None:
    assert domain_of("main") != domain_of("raft")
