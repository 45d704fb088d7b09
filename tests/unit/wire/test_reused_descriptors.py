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


@pytest.fixture(params=["in one turn", "in slices"], autouse=True)
def turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one turn reads all reports, or one."""
    if request.param == "in slices":
        monkeypatch.setattr("logboom.wire.sockets.TURN_REPORTS", 1)
        monkeypatch.setattr("logboom.wire.sockets.TURN_CALLERS", 1)


class Node(Sockets):
    """A node's sockets whose reports on connections come when a test wants them to."""

    def descriptor_of(self, peer: PeerAddress) -> int:
        """Return the descriptor of a peer's connection."""
        descriptor = self._connections.account.connection_of(peer)
        assert descriptor is not None
        return descriptor

    def reports_of(self, listener: str) -> zmq.Socket[bytes]:
        """Return the socket that reports the connections of a listener."""
        return next(each for each, (name, _) in self._monitors.items() if name == listener)

    def poll_without_reports(self) -> None:
        """From now on no report ends a `poll`."""
        for reports in self._monitors:
            self._poller.modify(reports, zmq.POLLERR)

    def read_reports(self) -> None:
        """Read whatever reports there are, as `poll` does now and then."""
        while self._connections.has_callers or any(each.poll(0) for each in self._monitors):
            self._reports_read.clear()
            self._look(time.monotonic())

    @contextmanager
    def reporting_after(self, listener: str, event: threading.Event) -> Iterator[None]:
        """The first report of a listener arrives only after `event`."""
        reports = self.reports_of(listener)
        with ExitStack() as stack:
            near, far = (stack.enter_context(self._context.socket(zmq.PAIR)) for _ in range(2))
            near.bind("inproc://held-back")
            far.connect("inproc://held-back")
            self._poller.modify(reports, zmq.POLLERR)
            self._monitors[near] = self._monitors.pop(reports)

            def relay() -> None:
                event.wait(100)
                far.send_multipart(reports.recv_multipart())

            thread = threading.Thread(target=relay)
            thread.start()
            try:
                yield
            finally:
                thread.join()
                self._monitors[reports] = self._monitors.pop(near)


@pytest.fixture
def node() -> Iterator[Node]:
    addresses = dict.fromkeys(LISTENERS, "127.0.0.1:0")
    with closing(Node(addresses, key_pair=NODE, curve=CURVE)) as sockets:
        sockets.authenticate = lambda *_: Verdict("accepted", "alice/a#1")
        yield sockets


@contextmanager
def connection(node: Node, listener: str) -> Iterator[zmq.Socket[bytes]]:
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


def hear(node: Node) -> PeerAddress:
    """Poll until a message comes; return its peer."""
    found: list[object] = []
    until = time.monotonic() + 100
    while not found and time.monotonic() < until:
        found += node.poll(0.01)
    (asked,) = found
    assert isinstance(asked, Received)
    assert isinstance(asked.peer, PeerAddress)
    return asked.peer


def until_closed(descriptor: int) -> None:
    """Wait until ZeroMQ has closed a connection, and so has reported its end."""
    until = time.monotonic() + 100
    with suppress(OSError):
        while time.monotonic() < until:
            os.fstat(descriptor)
            time.sleep(0.001)  # ZeroMQ closes it in a thread of its own, and no event tells when
        raise AssertionError("the connection is still there")


def assert_answered(node: Node, peer: PeerAddress, socket: zmq.Socket[bytes]) -> None:
    """The node knows the connection, and an answer arrives there."""
    node.send([Send(peer, [b"welcome"])])
    assert node.dropped == 0
    assert node.is_connected(peer)
    assert node.inspect(peer) is not None
    assert socket.poll(100_000)
    assert socket.recv() == b"welcome"


@pytest.mark.parametrize("listener", ["main", "open"])
def test_a_newcomer_is_not_taken_for_who_had_its_descriptor(
    node: Node, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The reports come when a poll has just looked for them: they are never found by a poll.
    monkeypatch.setattr(AcceptedConnections, "due", lambda *_: False)
    node.poll_without_reports()
    before = -1
    for _ in range(ATTEMPTS):
        with connection(node, listener) as socket:
            peer = hear(node)
            descriptor = node.descriptor_of(peer)
            node.read_reports()
            assert_answered(node, peer, socket)
        until_closed(descriptor)
        if descriptor == before:
            return
        before = descriptor
    raise AssertionError("no descriptor came again")


@pytest.mark.parametrize("curve", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_the_end_of_another_listeners_connection_is_not_that_of_a_newcomer(
    node: Node, curve: bool, turned: bool
) -> None:
    listeners = list(CURVE if curve else LISTENERS[2:])
    if turned:
        listeners.reverse()
    first, second = listeners
    for _ in range(ATTEMPTS):
        with connection(node, first):
            before = node.descriptor_of(hear(node))
        until_closed(before)
        with connection(node, second) as socket:
            # Neither report was read so far.
            assert node.reports_of(first).poll(100_000)
            assert node.reports_of(second).poll(100_000)
            peer = hear(node)
            descriptor = node.descriptor_of(peer)
            node.read_reports()  # whatever is still unread
            assert_answered(node, peer, socket)
        if descriptor == before:
            return
        until_closed(descriptor)
    raise AssertionError("no descriptor came again")


@pytest.mark.parametrize("listener", ["main", "open"])
def test_a_message_before_the_report_on_its_connection_is_answered(
    node: Node, listener: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_accepted = AcceptedConnections.is_accepted
    waited_for = threading.Event()

    def asked(self: AcceptedConnections, descriptor: int, name: str, port: int) -> bool:
        waited_for.set()
        return is_accepted(self, descriptor, name, port)

    monkeypatch.setattr(AcceptedConnections, "is_accepted", asked)
    monkeypatch.setattr("logboom.wire.sockets.REPORT_S", 100.0)
    with node.reporting_after(listener, waited_for), connection(node, listener) as socket:
        assert_answered(node, hear(node), socket)
