"""A connection that has the file descriptor of one that ended, whatever reports are read when."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
import zmq

from logboom.wire.accepted_connections import AcceptedConnections
from logboom.wire.actor import PeerAddress, Received, Send
from logboom.wire.authenticator import Verdict
from logboom.wire.sockets import Sockets, make_key_pair

NODE, ALICE = make_key_pair(), make_key_pair()
LISTENERS = ("main", "raft", "open", "also open")
CURVE = ("main", "raft")
ATTEMPTS = 20
"""Connections until one has the descriptor of its predecessor, which the system decides."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ ends no handshake because a busy machine is slow."""
    monkeypatch.setattr("logboom.wire.sockets.HANDSHAKE_MS", 300_000)


@pytest.fixture
def node() -> Iterator[Sockets]:
    addresses = dict.fromkeys(LISTENERS, "127.0.0.1:0")
    with closing(Sockets(addresses, key_pair=NODE, curve=CURVE)) as sockets:
        sockets.authenticate = lambda *_: Verdict("accepted", "alice/a#1")
        yield sockets


@contextmanager
def connection(node: Sockets, listener: str) -> Iterator[zmq.Socket[bytes]]:
    """A connection to a listener over which a message was sent."""
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        if listener in CURVE:
            socket.setsockopt(zmq.CURVE_PUBLICKEY, ALICE.public.encode())
            socket.setsockopt(zmq.CURVE_SECRETKEY, ALICE.secret.reveal().encode())
            socket.setsockopt(zmq.CURVE_SERVERKEY, NODE.public.encode())
        socket.connect(f"tcp://{node.endpoints[listener]}")
        socket.send(b"hello")
        yield socket
    finally:
        socket.close()
        context.term()


def hear(node: Sockets) -> PeerAddress:
    """Poll until a message comes; return its peer."""
    found: list[object] = []
    until = time.monotonic() + 100
    while not found and time.monotonic() < until:
        found += node.poll(0.01)
    (asked,) = found
    assert isinstance(asked, Received)
    assert isinstance(asked.peer, PeerAddress)
    return asked.peer


def descriptor_of(node: Sockets, peer: PeerAddress) -> int:
    descriptor = node._connections.account.connection_of(peer)  # noqa: SLF001 - nobody else knows it
    assert descriptor is not None
    return int(descriptor)


def until_closed(descriptor: int) -> None:
    """Wait until ZeroMQ has closed a connection, and so has reported its end."""
    until = time.monotonic() + 100
    with suppress(OSError):
        while time.monotonic() < until:
            os.fstat(descriptor)
            time.sleep(0.001)  # it is closed by another thread, which tells nobody
        raise AssertionError("the connection is still there")


def reports_of(node: Sockets, listener: str) -> zmq.Socket[bytes]:
    monitors = node._monitors  # noqa: SLF001 - the order of its reports is what matters
    return next(socket for socket, (name, _) in monitors.items() if name == listener)


def assert_answered(node: Sockets, peer: PeerAddress, socket: zmq.Socket[bytes]) -> None:
    """The node knows the connection, and an answer arrives there."""
    node.send([Send(peer, [b"welcome"])])
    assert node.dropped == 0
    assert node.is_connected(peer)
    assert node.inspect(peer) is not None
    assert socket.poll(100_000)
    assert socket.recv() == b"welcome"


@pytest.mark.parametrize("listener", ["main", "open"])
def test_a_newcomer_is_not_taken_for_who_had_its_descriptor(
    node: Sockets, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The reports come when a poll has just looked for them: they are never found by a poll.
    monkeypatch.setattr(AcceptedConnections, "due", lambda *_: False)
    for reports in node._monitors:  # noqa: SLF001 - nothing else would hold them back
        node._poller.modify(reports, zmq.POLLERR)  # noqa: SLF001 - likewise
    before = -1
    for _ in range(ATTEMPTS):
        with connection(node, listener) as socket:
            peer = hear(node)
            descriptor = descriptor_of(node, peer)
            node._look(time.monotonic())  # noqa: SLF001 - now they are read
            assert_answered(node, peer, socket)
        until_closed(descriptor)
        if descriptor == before:
            return
        before = descriptor
    raise AssertionError("no descriptor came again")


@pytest.mark.parametrize("curve", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_the_end_of_another_listeners_connection_is_not_that_of_a_newcomer(
    node: Sockets, curve: bool, turned: bool
) -> None:
    listeners = list(CURVE if curve else LISTENERS[2:])
    if turned:
        listeners.reverse()
    first, second = listeners
    for _ in range(ATTEMPTS):
        with connection(node, first):
            before = descriptor_of(node, hear(node))
        until_closed(before)
        with connection(node, second) as socket:
            # Neither report was read so far.
            assert reports_of(node, first).poll(100_000)
            assert reports_of(node, second).poll(100_000)
            peer = hear(node)
            descriptor = descriptor_of(node, peer)
            node._look(time.monotonic())  # noqa: SLF001 - whatever is still unread
            assert_answered(node, peer, socket)
        if descriptor == before:
            return
        until_closed(descriptor)
    raise AssertionError("no descriptor came again")


@pytest.mark.parametrize("listener", ["main", "open"])
def test_a_message_before_the_report_on_its_connection_is_answered(
    node: Sockets, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_accepted = AcceptedConnections.is_accepted
    waited_for = threading.Event()

    def asked(self: AcceptedConnections, descriptor: int, name: str, port: int) -> bool:
        waited_for.set()
        return is_accepted(self, descriptor, name, port)

    monkeypatch.setattr(AcceptedConnections, "is_accepted", asked)
    monkeypatch.setattr("logboom.wire.sockets.REPORT_S", 100.0)
    with held_back(node, listener, waited_for), connection(node, listener) as socket:
        assert_answered(node, hear(node), socket)


@contextmanager
def held_back(node: Sockets, listener: str, waited_for: threading.Event) -> Iterator[None]:
    """The reports of a listener come only once the node waits for them."""
    reports = reports_of(node, listener)
    context, monitors = node._context, node._monitors  # noqa: SLF001 - takes the place of ZeroMQ
    with ExitStack() as stack:
        near, far = (stack.enter_context(context.socket(zmq.PAIR)) for _ in range(2))
        near.bind("inproc://held-back")
        far.connect("inproc://held-back")
        node._poller.modify(reports, zmq.POLLERR)  # noqa: SLF001 - likewise
        monitors[near] = monitors.pop(reports)

        def relay() -> None:
            waited_for.wait(100)
            far.send_multipart(reports.recv_multipart())

        thread = threading.Thread(target=relay)
        thread.start()
        try:
            yield
        finally:
            thread.join()
            monitors[reports] = monitors.pop(near)
