"""Sockets over loopback: what the skin promises to every loop."""

import socket as tcp
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import zmq

from logboom.wire.actor import PeerAddress, Received, Send
from logboom.wire.errors import StartError
from logboom.wire.frames import decode, encode
from logboom.wire.messages import Failure, Pong
from logboom.wire.sockets import (
    FOLLOWED_BYTES,
    OUTBOX_BYTES,
    TURN_MESSAGES,
    Sockets,
    check_endpoint,
)
from logboom.wire.unfinished_messages import UnfinishedLimits
from tests.chaos.fuzz_peers import HANDSHAKE


@pytest.fixture
def node() -> Iterator[Sockets]:
    sockets = Sockets({"main": "127.0.0.1:0"})
    yield sockets
    sockets.close()


@pytest.fixture
def dialler() -> Iterator[Sockets]:
    sockets = Sockets()
    yield sockets
    sockets.close()


def gather(sockets: Sockets, count: int, *others: Sockets) -> list[Received]:
    """Poll until `count` messages came; others are polled too, so that their outboxes drain."""
    received: list[Received] = []
    end = time.monotonic() + 10
    while len(received) < count and time.monotonic() < end:
        for other in others:
            other.poll(0)
        received += sockets.poll(0.01)
    return received


def test_a_message_goes_there_and_back(node: Sockets, dialler: Sockets) -> None:
    endpoint = node.endpoints["main"]
    dialler.send([Send(endpoint, [b"hello", b"batch"])])
    (asked,) = gather(node, 1, dialler)
    assert isinstance(asked.peer, PeerAddress)
    assert list(asked.frames) == [b"hello", b"batch"]
    node.send([Send(asked.peer, [b"answer"])])
    (answer,) = gather(dialler, 1, node)
    assert answer == Received(endpoint, [b"answer"])


def test_a_turn_is_bounded_and_nothing_is_left_behind(node: Sockets, dialler: Sockets) -> None:
    endpoint = node.endpoints["main"]
    total = 3 * TURN_MESSAGES
    dialler.send([Send(endpoint, [b"%d" % n]) for n in range(total)])
    received: list[Received] = []
    while len(received) < total:
        dialler.poll(0)
        turn = node.poll(0.05)
        assert len(turn) <= TURN_MESSAGES
        received += turn
    assert [bytes(r.frames[0]) for r in received] == [b"%d" % n for n in range(total)]


def test_a_vanished_peer_costs_nothing(node: Sockets) -> None:
    node.send([Send(PeerAddress("main", b"nobody"), [b"answer"])])
    assert node.dropped == 1


def test_a_peer_that_never_takes_anything_is_bounded(dialler: Sockets, node: Sockets) -> None:
    endpoint = node.endpoints["main"]
    node.close()
    block = bytes(8 * 1024 * 1024)
    # Eight wait in ZeroMQ, eight in the outbox.
    dialler.send([Send(endpoint, [block])] * 18)
    assert dialler.backlog(endpoint) <= OUTBOX_BYTES
    assert dialler.dropped == 2
    dialler.redial(endpoint)
    assert dialler.backlog(endpoint) == 0


def test_a_connection_that_breaks_within_a_message_does_no_harm() -> None:
    """With ZMQ_IMMEDIATE libzmq aborts the whole process here, so it is done in another one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.wire.breaking_off"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_wake_ends_a_poll_from_another_thread(node: Sockets) -> None:
    waker = threading.Timer(0.05, node.wake)
    waker.start()
    # If it did not end, the time-out of the test would.
    assert node.poll(10_000) == []
    waker.join()


def test_a_port_in_use_is_said_with_the_mend(node: Sockets) -> None:
    with pytest.raises(StartError, match="in use") as caught:
        Sockets({"main": node.endpoints["main"]})
    assert caught.value.code == "PORT_IN_USE"


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartError, match="host:port of this machine"):
        Sockets({"main": "192.0.2.1:7711"})


@pytest.mark.parametrize("text", ["", "7711", "host:", "host:x", "host:70000", ":7711"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="host:port"):
        check_endpoint(text)
    assert check_endpoint("127.0.0.1:7711") == "127.0.0.1:7711"


def test_a_port_that_cannot_be_is_not_taken_for_another() -> None:
    with pytest.raises(StartError, match="is not an endpoint"):
        Sockets({"main": "127.0.0.1:99999"})


def test_a_node_that_does_not_listen_still_hears_whom_it_dialled() -> None:
    node, other = Sockets({"main": "127.0.0.1:0"}), Sockets({"main": "127.0.0.1:0"})
    node.send([Send(other.endpoints["main"], [b"heartbeat"])])
    (asked,) = gather(other, 1, node)
    other.send([Send(node.endpoints["main"], [b"data"]), Send(asked.peer, [b"granted"])])
    heard: list[Received] = []
    end = time.monotonic() + 10
    while not heard and time.monotonic() < end:
        other.poll(0)
        heard += node.poll(0.01, listening=False)
    assert [list(received.frames) for received in heard] == [[b"granted"]]
    (later,) = gather(node, 1, other)
    assert list(later.frames) == [b"data"]
    node.close()
    other.close()


MIB = 1024 * 1024
TIGHT = UnfinishedLimits(message_bytes=9 * MIB, strangers_bytes=16 * MIB, clients_bytes=16 * MIB)
"""A message of 8 MiB just fits."""


@contextmanager
def tight_node() -> Iterator[Sockets]:
    """One that takes little of unfinished messages."""
    sockets = Sockets({"main": "127.0.0.1:0"}, limits=TIGHT)
    try:
        yield sockets
    finally:
        sockets.close()


def test_large_messages_that_wait_for_a_busy_node_all_arrive() -> None:
    with tight_node() as node, ExitStack() as closing:
        diallers = [Sockets() for _ in range(3)]
        for dialler in diallers:
            closing.callback(dialler.close)
            dialler.send([Send(node.endpoints["main"], [b"x", bytes(8 * MIB)])] * 5)
        # Busy: it takes nothing, while far more than any limit comes in.
        until = time.monotonic() + 1
        while time.monotonic() < until:
            node.poll(0.01, listening=False)
            for dialler in diallers:
                dialler.poll(0)
        assert len(gather(node, 15, *diallers)) == 15
        assert node.connections_closed == 0


@contextmanager
def stranger(node: Sockets) -> Iterator[tcp.socket]:
    """A bare connection whose handshake is done."""
    host, port = node.endpoints["main"].split(":")
    with tcp.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(HANDSHAKE)
        heard = b""
        while b"READY" not in heard:
            node.poll(0)
            heard += connection.recv(4096)
        yield connection


def test_one_who_never_ends_a_message_is_hung_up_on_and_others_are_served(
    dialler: Sockets, caplog: pytest.LogCaptureFixture
) -> None:
    piece = (b"\x03" + (1_000).to_bytes(8, "big") + bytes(1_000)) * 64
    with tight_node() as node, stranger(node) as endless:
        endless.setblocking(False)
        sent, left = 0, b""
        while not node.connections_closed:
            assert sent < 200 * MIB
            left = left or piece
            with suppress(BlockingIOError, ConnectionError):
                taken = endless.send(left)
                sent, left = sent + taken, left[taken:]
            node.poll(0)
        assert sent > 9 * MIB
        assert node.poll(0.3) == []
        dialler.send([Send(node.endpoints["main"], [b"hello"])])
        assert len(gather(node, 1, dialler)) == 1
        with pytest.raises(ConnectionError):
            endless.send(b"x")
        (line,) = caplog.messages
        assert "without its end" in line
        assert endless.getsockname()[0] in line


BIG = 15_000_000
"""More than the system takes from ZeroMQ for a peer that does not read."""


@contextmanager
def stuck(node: Sockets) -> Iterator[tuple[zmq.Socket[bytes], PeerAddress]]:
    """A peer that takes nothing more from the network until it is read, and its address."""
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.RCVHWM, 1)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://{node.endpoints['main']}")
        socket.send(b"here")
        (asked,) = gather(node, 1)
        assert isinstance(asked.peer, PeerAddress)
        # One for its queue, one in its hands, one in the way of all others.
        node.send([Send(asked.peer, [b"filler"])] * 3)
        yield socket, asked.peer
    finally:
        socket.close()
        context.term()


def test_who_has_not_taken_the_last_answer_gets_one_more_and_then_busy(
    node: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.wire.sockets.SHARED_BYTES", 40_000_000)
    with stuck(node) as (_, deaf), stuck(node) as (socket, late):
        node.send([Send(deaf, encode(Pong(5), [bytes(BIG)]))] * 3)
        assert node.dropped == 1, "past the bound, with two before it"
        node.send([Send(late, encode(Pong(number), [bytes(BIG)])) for number in (7, 8, 9)])
        assert node.dropped == 2
        for _ in range(3):
            socket.recv()
        told = [decode(socket.recv_multipart()) for _ in range(3)]
        assert told[:2] == [Pong(7), Pong(8)]
        busy = told[2]
        assert isinstance(busy, Failure)
        assert (busy.id, busy.code, busy.retryable) == (9, "BUSY", True)


def test_small_answers_go_though_large_ones_are_past_the_bound(
    node: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.wire.sockets.SHARED_BYTES", 16_000_000)
    with stuck(node) as (socket, late):
        node.send([Send(late, encode(Pong(number), [bytes(BIG)])) for number in (1, 2)])
        node.send([Send(late, encode(Pong(3)))])
        assert node.dropped == 0
        for _ in range(3):
            socket.recv()
        assert [decode(socket.recv_multipart()).id for _ in range(3)] == [1, 2, 3]


def test_small_answers_have_a_bound_too(node: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = 8_000_000
    monkeypatch.setattr("logboom.wire.sockets.SHARED_BYTES", shared)
    with stuck(node) as (_, deaf):
        node.send([Send(deaf, [bytes(BIG)])])
        node.send([Send(deaf, [bytes(15_000)])] * 700)
        assert node.waiting <= 3 * shared + FOLLOWED_BYTES
        assert 0 < node.dropped < 700


def test_of_what_no_request_asked_for_nothing_is_told_when_it_is_dropped(
    node: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logboom.wire.sockets.SHARED_BYTES", 16_000_000)
    with stuck(node) as (socket, late):
        node.send([Send(late, encode(Pong(0), [bytes(BIG)]))] * 3)
        assert node.dropped == 1
        node.send([Send(late, encode(Pong(9)))])
        for _ in range(3):
            socket.recv()
        assert [decode(socket.recv_multipart()).id for _ in range(3)] == [0, 0, 9]


def test_who_takes_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logboom.wire.sockets.UNTAKEN_S", 1)
    node = Sockets({"main": "127.0.0.1:0"})
    with stuck(node) as (_, deaf):
        node.send([Send(deaf, [bytes(BIG)])] * 2)
        assert node.unsent_bytes(deaf) >= BIG
        end = time.monotonic() + 20
        while node.unsent_bytes(deaf) and time.monotonic() < end:
            node.poll(0.05)
        assert node.unsent_bytes(deaf) == 0
        node.send([Send(deaf, [b"gone"])])
        assert node.dropped == 1
    node.close()


def test_all_who_never_read_share_one_bound(node: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = 8 * 1024 * 1024
    monkeypatch.setattr("logboom.wire.sockets.SHARED_BYTES", shared)
    endpoint = node.endpoints["main"]
    deaf = [Sockets() for _ in range(6)]
    for number, each in enumerate(deaf):
        each.send([Send(endpoint, [b"%d" % number])])
    addresses = [asked.peer for asked in gather(node, len(deaf), *deaf)]
    for _ in range(200):
        node.send([Send(address, [bytes(500_000)]) for address in addresses])
        node.send([Send(address, [bytes(2_000)]) for address in addresses])
        node.poll(0)
        assert node.waiting <= shared + 500_000 * len(deaf)
    dropped = node.dropped
    assert dropped > 0
    reader = Sockets()
    reader.send([Send(endpoint, [b"reader"])])
    (asked,) = gather(node, 1, reader)
    node.send([Send(asked.peer, [bytes(500_000)])])
    (answer,) = gather(reader, 1, node)
    assert len(answer.frames[0]) == 500_000
    assert node.dropped == dropped, "a peer for whom nothing waits is answered"
    for each in (*deaf, reader):
        each.close()
