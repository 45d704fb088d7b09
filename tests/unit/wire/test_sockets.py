"""Sockets over loopback: what the skin promises to every loop."""

import errno
import resource
import select
import socket as tcp
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
import zmq

from logboom.wire.accepted_connections import AcceptedConnections
from logboom.wire.acceptor import MAX_CLIENT_ID
from logboom.wire.actor import HandshakeFailed, PeerAddress, Received, Send
from logboom.wire.connection_limits import ADMITTED, ConnectionLimits
from logboom.wire.errors import StartError
from logboom.wire.frames import decode, encode
from logboom.wire.listener_gate import ListenerGate
from logboom.wire.messages import Failure, Hello, Pong
from logboom.wire.packet_filters import MAX_SMALL_BYTES, NO_PACKET
from logboom.wire.sockets import (
    CURVE_FRAME_BYTES,
    FOLLOWED_BYTES,
    OUTBOX_BYTES,
    TURN_MESSAGES,
    Sockets,
    check_endpoint,
)
from logboom.wire.turn_pace import LEAST, LONG_S
from logboom.wire.unfinished_messages import UnfinishedLimits, limits_for
from tests.chaos.fuzz_peers import GREETING, HANDSHAKE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ ends no connection because a busy machine is slow to say hello on it."""
    monkeypatch.setattr("logboom.wire.sockets.HANDSHAKE_MS", 300_000)
    monkeypatch.setattr("logboom.wire.connection_limits.HANDSHAKE_OVER_S", 301.0)


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
    end = time.monotonic() + 100
    while len(received) < count and time.monotonic() < end:
        for other in others:
            other.poll(0)
        received += messages(sockets.poll(0.01))
    return received


def messages(events: list[Received | HandshakeFailed]) -> list[Received]:
    """The events, which are messages."""
    found = [event for event in events if isinstance(event, Received)]
    assert len(found) == len(events)
    return found


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
        turn = messages(node.poll(0.05))
        assert len(turn) <= TURN_MESSAGES
        received += turn
    assert [bytes(r.frames[0]) for r in received] == [b"%d" % n for n in range(total)]


def test_who_sends_what_costs_little_does_not_wait_for_much_that_costs_a_lot(
    node: Sockets, dialler: Sockets
) -> None:
    modest = Sockets()
    try:
        endpoint = node.endpoints["main"]
        for each in (dialler, modest):
            each.send([Send(endpoint, [b"hello"])])
        gather(node, 2, dialler, modest)
        dialler.send([Send(endpoint, [b"costly"])] * 2 * TURN_MESSAGES)
        turns: list[int] = []
        for _ in range(100):
            if len(turns) == 12:
                break
            dialler.poll(0)
            turn = node.poll(0.05)
            if turn:
                turns.append(len(turn))
                work(3 * LONG_S)
        assert turns[-1] == LEAST
        modest.send([Send(endpoint, [b"cheap"])])
        served: list[bytes] = []
        for _ in range(20):
            modest.poll(0)
            served += [bytes(each.frames[0]) for each in messages(node.poll(0.05))]
            if b"cheap" in served:
                break
            work(3 * LONG_S)
        assert b"cheap" in served
    finally:
        modest.close()


def work(seconds: float) -> None:
    """Take this thread's processor time, as a turn does."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


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
    end = time.monotonic() + 100
    while not heard and time.monotonic() < end:
        other.poll(0)
        heard += messages(node.poll(0.01, listening=False))
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
    with tcp.create_connection((host, int(port)), timeout=100) as connection:
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
        # Counted when it was sent: a busy machine may be hanging up by now.
        assert node.waiting >= BIG
        end = time.monotonic() + 100
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
    for turn in range(1, 201):
        node.send([Send(address, [bytes(500_000)]) for address in addresses])
        node.send([Send(address, [bytes(2_000)]) for address in addresses])
        node.poll(0)
        # A peer with one message gets another, and small ones have a reserve of their own.
        assert node.waiting <= shared + (500_000 + 2_000 * turn) * len(deaf)
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


def connected(node: Sockets) -> tcp.socket:
    host, port = node.endpoints["main"].split(":")
    return tcp.create_connection((host, int(port)), timeout=0.5)


def test_connections_past_the_limit_of_an_address_are_reset(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("logboom.wire.connection_limits.is_exempt", lambda _: False)
    node = Sockets({"main": "127.0.0.1:0"}, callers=ConnectionLimits(per_address=3))
    with ExitStack() as stack:
        stack.callback(node.close)
        known = [stack.enter_context(connected(node)) for _ in range(3)]
        while node.figures()["connections"] < 3:
            node.poll(0.01)
        others = [stack.enter_context(connected(node)) for _ in range(4)]
        while node.figures()["connections_refused"] < 4:
            node.poll(0.01)
        for other in others:
            # Its greeting may have come before the reset.
            with suppress(ConnectionError):
                while other.recv(100):
                    pass
        assert node.figures()["connections"] == 3
        known[0].close()
        while node.figures()["connections"] == 3:
            node.poll(0.01)
        stack.enter_context(connected(node))
        while node.figures()["connections"] < 3:
            node.poll(0.01)
        for each in known[1:]:
            assert each.recv(1) == b"\xff", "those before are served"
        assert 'connections_refused address=127.0.0.1 text="it has 3 already' in caplog.text


MIB = 1024 * 1024
SO_LOCK_FILTER = 44
"""socket(7): from now on no filter can be attached."""
ESTABLISHED = 1
"""State of a connection in struct tcp_info (linux/tcp.h)."""


def tcp_info(connection: tcp.socket) -> tuple[bool, int]:
    """Whether a connection is open, and how many of its bytes the other side's system has taken."""
    info = connection.getsockopt(tcp.IPPROTO_TCP, tcp.TCP_INFO, 128)
    return info[0] == ESTABLISHED, struct.unpack_from("<Q", info, 120)[0]


def test_what_giant_frames_within_the_handshake_cost_is_bounded(dialler: Sockets) -> None:
    node = Sockets({"main": "127.0.0.1:0"}, max_frame_bytes=MIB)
    head = GREETING + b"\x06" + (MIB - 1).to_bytes(8, "big")
    body = bytes(MIB // 2)
    with ExitStack() as stack:
        stack.callback(node.close)
        # Nobody looks meanwhile: what counts is what the system and ZeroMQ take by themselves.
        pushers = [stack.enter_context(connected(node)) for _ in range(3 * ADMITTED)]
        for pusher in pushers:
            pusher.setblocking(False)
            pusher.sendall(head)
        unsent = {pusher: memoryview(body) for pusher in pushers}

        def push() -> int:
            """Send what they take; return how many are open that have sent large packets."""
            for pusher in select.select([], [p for p, left in unsent.items() if left], [], 0)[1]:
                with suppress(OSError):
                    unsent[pusher] = unsent[pusher][pusher.send(unsent[pusher]) :]
            large = [pusher for pusher in pushers if tcp_info(pusher)[1] > 64 * 1024]
            return sum(tcp_info(pusher)[0] for pusher in large)

        for _ in range(20):
            assert push() == 0, "nobody is admitted yet"
            # That something does not happen has no event.
            time.sleep(0.01)
        while push() < ADMITTED:
            node.poll(0.01)
        # Meanwhile one with little to say is heard, and may say more then.
        endpoint = node.endpoints["main"]
        dialler.send([Send(endpoint, [b"hello"])])
        received = gather(node, 1, dialler)
        assert [each.frames for each in received] == [[b"hello"]]
        dialler.send([Send(endpoint, [body])])
        while not messages(node.poll(0.01)):
            assert push() <= ADMITTED
            dialler.poll(0)
        # Others are admitted once these have gone.
        before = {pusher for pusher in pushers if tcp_info(pusher)[1] > 64 * 1024}
        for pusher in before:
            pusher.close()
            pushers.remove(pusher)
            del unsent[pusher]
        while not push():
            node.poll(0.01)
        assert push() <= ADMITTED


def test_the_longest_hello_is_a_small_packet() -> None:
    hello = Hello(-1, 9, 9, "\U0010ffff" * MAX_CLIENT_ID, "name-server", 1 << 63, b"", bytes(16))
    said = encode(hello)
    size = sum(len(frame) + CURVE_FRAME_BYTES for frame in said)
    # What was lost is sent again together with the end of the handshake.
    assert size + len(HANDSHAKE) - len(GREETING) <= MAX_SMALL_BYTES


def test_a_listener_that_cannot_be_filtered_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "logboom.wire")
    gate = ListenerGate()
    with ExitStack() as stack:
        first, second, third = (
            stack.enter_context(tcp.create_server(("127.0.0.1", 0))) for _ in range(3)
        )
        gate.listening(first.fileno())
        assert not caplog.records
        for listener in (second, third):
            listener.setsockopt(tcp.SOL_SOCKET, SO_LOCK_FILTER, 1)
            gate.listening(listener.fileno())
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "large packets of new connections" in caplog.text


def test_while_descriptors_run_out_nobody_gets_in_and_those_inside_are_served(
    node: Sockets, dialler: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = limit // 2
    monkeypatch.setattr("logboom.wire.listener_gate._descriptors_in_use", lambda: (used, True))
    endpoint = node.endpoints["main"]
    dialler.send([Send(endpoint, [b"hello"])])
    (asked,) = gather(node, 1, dialler)
    used = limit - 1
    while node.figures()["accepting"]:
        node.poll(0.01)
    with pytest.raises(TimeoutError):
        connected(node)
    node.send([Send(asked.peer, [b"answer"])])
    assert gather(dialler, 1, node) == [Received(endpoint, [b"answer"])]
    used = limit // 2
    while not node.figures()["accepting"]:
        node.poll(0.01)
    connected(node).close()
    dialler.send([Send(endpoint, [b"still here"])])
    (again,) = gather(node, 1, dialler)
    assert again.peer == asked.peer


def test_what_the_system_had_accepted_when_the_listeners_shut_is_reset() -> None:
    connections = AcceptedConnections(limits_for(MIB))
    with (
        closing(connections),
        tcp.create_server(("127.0.0.1", 0)) as server,
        tcp.create_connection(server.getsockname()) as caller,
        server.accept()[0] as inside,
    ):
        port = server.getsockname()[1]
        connections.accepted(inside.fileno(), "main", port, 0.0, shut="descriptors")
        assert (connections.refused, len(connections.book)) == (1, 0)
        with pytest.raises(ConnectionResetError):
            caller.recv(1)


def test_a_connection_can_be_looked_at_and_reset(node: Sockets, dialler: Sockets) -> None:
    endpoint = node.endpoints["main"]
    dialler.send([Send(endpoint, [b"hello", bytes(100_000)])])
    (asked,) = gather(node, 1, dialler)
    assert isinstance(asked.peer, PeerAddress)
    seen = node.inspect(asked.peer)
    assert seen is not None
    assert seen.endpoint.startswith("127.0.0.1:")
    assert seen.endpoint != endpoint
    assert 100_000 < seen.received_bytes < 110_000
    node.send([Send(asked.peer, [bytes(50_000)])])
    gather(dialler, 1, node)
    sent_bytes = 0
    until = time.monotonic() + 100
    while sent_bytes < 50_000 and time.monotonic() < until:
        node.poll(0.01)
        now_seen = node.inspect(asked.peer)
        assert now_seen is not None
        sent_bytes = now_seen.sent_bytes  # what the peer's system has acknowledged
    assert 50_000 < sent_bytes < 60_000
    assert node.is_connected(asked.peer)
    node.kick(asked.peer)
    assert not node.is_connected(asked.peer)
    assert node.inspect(asked.peer) is None
    node.kick(asked.peer)
    # It dials again by itself, as another peer.
    received: list[Received] = []
    until = time.monotonic() + 100
    while not received and time.monotonic() < until:
        # What it sends before it notices is lost.
        dialler.send([Send(endpoint, [b"again"])])
        dialler.poll(0)
        received += messages(node.poll(0.05))
    assert isinstance(received[0].peer, PeerAddress)
    assert received[0].peer != asked.peer
    other = node.inspect(received[0].peer)
    assert other is not None
    assert other.endpoint != seen.endpoint
    assert node.connections_closed == 0


def test_a_connection_that_its_peer_has_closed_is_not_connected(node: Sockets) -> None:
    caller = Sockets()
    caller.send([Send(node.endpoints["main"], [b"hello"])])
    (asked,) = gather(node, 1, caller)
    assert isinstance(asked.peer, PeerAddress)
    assert node.is_connected(asked.peer)
    caller.close()
    until = time.monotonic() + 100
    while node.is_connected(asked.peer) and time.monotonic() < until:
        node.poll(0.05)
    assert not node.is_connected(asked.peer)
    assert node.inspect(asked.peer) is None


def test_a_connection_whose_other_end_has_vanished_is_reset(
    node: Sockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host is gone, or the network between: nothing comes any more, and nobody says so."""
    monkeypatch.setattr("logboom.wire.accepted_connections.DEAD_AFTER_MS", 3_000)
    monkeypatch.setattr("logboom.wire.accepted_connections.PROBES", 1)
    with connected(node) as vanished, connected(node) as silent:
        for connection in (vanished, silent):
            connection.sendall(HANDSHAKE)
            said = b""
            while b"READY" not in said:
                said += connection.recv(1_000)
            connection.sendall(b"\x00\x05hello")
        peers = {message.peer for message in gather(node, 2)}
        assert len(peers) == 2
        assert NO_PACKET.attach(vanished)
        end = time.monotonic() + 100
        while node.figures()["connections"] > 1 and time.monotonic() < end:
            node.poll(0.01)
        (left,) = [p for p in peers if isinstance(p, PeerAddress) and node.is_connected(p)]
        node.send([Send(left, [b"still here"])])
        said = b""
        while not said.endswith(b"still here"):
            said += silent.recv(1_000)


def test_while_too_much_waits_nobody_gets_in_and_those_inside_are_served() -> None:
    room = 1_000_000
    limits = limits_for(2 * room)._replace(
        strangers_waiting_bytes=15 * room, clients_waiting_bytes=0
    )
    with (
        closing(Sockets({"main": "127.0.0.1:0"}, limits=limits)) as node,
        closing(Sockets()) as dialler,
    ):
        endpoint = node.endpoints["main"]
        dialler.send([Send(endpoint, [b"hello"])])
        (asked,) = gather(node, 1, dialler)
        dialler.send([Send(endpoint, [bytes(room)])] * 14)
        end = time.monotonic() + 100
        while node.figures()["accepting"] and time.monotonic() < end:
            dialler.poll(0)
            # The node's loop takes none of it.
            node.poll(0.01, listening=False)
        with pytest.raises(TimeoutError):
            connected(node)
        node.send([Send(asked.peer, [b"answer"])])
        assert gather(dialler, 1, node) == [Received(endpoint, [b"answer"])]
        while not node.figures()["accepting"] and time.monotonic() < end:
            node.poll(0.01)
        connected(node).close()


def test_a_peer_that_speaks_zmtp_1_ends_nothing_and_is_not_heard(
    node: Sockets, dialler: Sockets
) -> None:
    # Its messages came without the connection's descriptor, and that ended the node.
    with connected(node) as old:
        # No routing id, and a message of one byte.
        old.sendall(b"\x01\x00\x02\x00x")
        while not node.dropped:
            assert node.poll(0.01) == []
        dialler.send([Send(node.endpoints["main"], [b"hello"])])
        (asked,) = gather(node, 1, dialler)
        assert list(asked.frames) == [b"hello"]


NOT_DIALLED = ["tcp://host:1", "user@host:1", "ü.example:1", "*:1", "h\0:1", "a;b:1", "h" * 300, ""]


@pytest.mark.parametrize("endpoint", NOT_DIALLED)
def test_an_endpoint_that_cannot_be_dialled_is_an_unreachable_peer(
    node: Sockets, dialler: Sockets, endpoint: str
) -> None:
    dialler.send([Send(endpoint, [b"hello"])])
    dialler.redial(endpoint)
    dialler.send([Send(endpoint, [b"hello again"])])
    assert dialler.dropped == 2
    assert dialler.poll(0) == []
    dialler.hang_up(endpoint)
    # It holds nothing that others need, and nothing that hinders the end.
    dialler.send([Send(node.endpoints["main"], [b"hello"])])
    (asked,) = gather(node, 1, dialler)
    assert list(asked.frames) == [b"hello"]


@pytest.mark.parametrize("method", ["connect", "monitor", "setsockopt"])
def test_a_dial_that_zeromq_refuses_is_an_unreachable_peer(
    node: Sockets,
    dialler: Sockets,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoint = node.endpoints["main"]
    with monkeypatch.context() as patch:

        def refuse(*_args: object) -> None:
            raise zmq.ZMQError(errno.EMFILE)

        patch.setattr(zmq.Socket, method, refuse)
        for _ in range(3):
            dialler.send([Send(endpoint, [b"lost"])])
            assert dialler.poll(0) == []
    assert dialler.dropped == 3
    # It is logged once, and the next dial may succeed.
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert endpoint in told[0]
    assert "Too many open files" in told[0]
    dialler.send([Send(endpoint, [b"hello"])])
    (asked,) = gather(node, 1, dialler)
    assert list(asked.frames) == [b"hello"]


def test_ipv6_is_bound_and_dialled_in_brackets(dialler: Sockets) -> None:
    with tcp.socket(tcp.AF_INET6) as probe:
        if probe.connect_ex(("::1", 1)) != errno.ECONNREFUSED:
            # A machine without IPv6 says so.
            with pytest.raises(StartError, match="host:port of this machine"):
                Sockets({"main": "[::1]:0"})
            return
    node = Sockets({"main": "[::1]:0"})
    with closing(node):
        endpoint = node.endpoints["main"]
        assert endpoint.startswith("[::1]:")
        dialler.send([Send(endpoint, [b"hello"])])
        (asked,) = gather(node, 1, dialler)
        assert isinstance(asked.peer, PeerAddress)
        assert node.ip_address_of(asked.peer) == "::1"
        node.send([Send(asked.peer, [b"answer"])])
        assert gather(dialler, 1, node) == [Received(endpoint, [b"answer"])]
