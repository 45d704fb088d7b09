"""Messages that never end, in every shape: the node closes who sends them, and its memory is bounded."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.frames import encode
from logboom.wire.messages import Hello, Watch
from tests.chaos.fuzz_peers import GREETING, HANDSHAKE, raw
from tests.integration.fuzz.conftest import slowest_pull
from tests.integration.fuzz.test_fuzz import PORTS, endpoint_of, others_served
from tests.integration.fuzz.test_hostile_peers import dealers, is_answered, tell
from tests.integration.nodes.figures import figures
from tests.integration.waiting import wait_until

MIB: Final = 1024 * 1024
SENT: Final = 1024 * MIB
"""What an attacker sends at most, over all its connections."""
GROWTH_MB: Final = {"broker-1": 350, "name-1": 250, "raft of name-1": 250}
"""At most, also for a moment: of a broker two batches of the largest size, and what comes within one
look at the connections, while the machine is busy."""


def frame(size: int, *, more: bool) -> bytes:
    """A frame as ZMTP writes it."""
    flags = int(more)
    if size < 256:
        return bytes((flags, size)) + bytes(size)
    return bytes((flags | 2,)) + size.to_bytes(8, "big") + bytes(size)


def hello() -> bytes:
    """The greeting of a client, as a whole message."""
    said = bytes(encode(Hello(1, 1, 1, "endless", "client", 0))[0])
    return bytes((0, len(said))) + said


SHAPES: Final = {
    "frames of 1 KiB": HANDSHAKE,
    "frames of 1 KiB, after HELLO": HANDSHAKE + hello(),
    "frames of 1 MiB": HANDSHAKE,
    "a command before the handshake": GREETING + b"\x06" + (60 * MIB).to_bytes(8, "big"),
}
"""How each begins."""


def pieces(shape: str) -> Iterator[bytes]:
    """What follows, for ever."""
    if shape.startswith("frames of 1 KiB"):
        piece = frame(1024, more=True) * 64
    elif shape == "empty frames":
        piece = b"\x01\x00" * 32 * 1024
    elif shape == "frames of 1 MiB":
        piece = frame(MIB, more=True)
    else:
        piece = bytes(64 * 1024)
    while True:
        yield piece


def send(connection: socket.socket, shape: str, most: int) -> bool:
    """Send up to `most` bytes; whether the connection was still open then."""
    sent = 0
    for piece in pieces(shape):
        if sent >= most:
            return True
        try:
            connection.sendall(piece)
        except OSError:
            return False
        sent += len(piece)
    raise AssertionError


def is_closed(connection: socket.socket) -> bool:
    """Whether the node has closed a connection."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            # Answers and heartbeats, from before.
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_an_endless_message_is_ended(cluster: Cluster, port: str, shape: str) -> None:
    endpoint = endpoint_of(cluster, port)
    with others_served(cluster, port, GROWTH_MB[port]), raw(endpoint, 1, SHAPES[shape]) as (one,):
        assert not send(one, shape, SENT)
        # Tries again: it is closed again.
        with raw(endpoint, 1, SHAPES[shape]) as (another,):
            assert not send(another, shape, SENT)


@pytest.mark.parametrize("port", PORTS)
def test_empty_frames_without_end_are_ended(cluster: Cluster, port: str) -> None:
    endpoint = endpoint_of(cluster, port)
    with others_served(cluster, port, GROWTH_MB[port]), raw(endpoint, 1, HANDSHAKE) as (one,):
        assert not send(one, "empty frames", SENT)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("greeting", [b"", hello()])
def test_many_unfinished_frames_share_a_bound(cluster: Cluster, port: str, greeting: bytes) -> None:
    head = HANDSHAKE + greeting + b"\x02" + (60 * MIB).to_bytes(8, "big")
    growth = GROWTH_MB[port] + (400 if greeting and port == "broker-1" else 0)
    with (
        others_served(cluster, port, growth),
        raw(endpoint_of(cluster, port), 20, head) as connections,
    ):
        for connection in connections:
            send(connection, "one frame", 55 * MIB)
        wait_until(
            lambda: sum(is_closed(connection) for connection in connections) >= 5,
            "too few are closed",
        )


def test_they_are_counted(cluster: Cluster) -> None:
    with connect(cluster.endpoints) as boom:
        for node in cluster.nodes:
            assert figures(boom, node)["connections_closed"]
            assert "without its end" in cluster.log(node)


FIELDS: Final = {
    "client_id": Hello(1, 1, 1, "x" * 15_000_000, "client", 0),
    "credentials": Hello(1, 1, 1, "me", "client", 0, bytes(15_000_000)),
    "nonce": Hello(1, 1, 1, "broker-2", "broker", 0, b"", bytes(15_000_000)),
    "client_id of a node": Hello(1, 1, 1, "x" * 1_900_000, "broker", 0, b"", bytes(16)),
}


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("field", FIELDS)
def test_greetings_with_large_fields_cost_nothing_that_stays(
    cluster: Cluster, port: str, field: str
) -> None:
    with (
        others_served(cluster, port, GROWTH_MB[port]),
        dealers(endpoint_of(cluster, port), 30) as peers,
        connect(cluster.endpoints) as healthy,
    ):
        for peer in peers:
            tell(peer, FIELDS[field])
        # Either it is too long for the port, or it is refused in words.
        slowest_pull(healthy, 1.0)
        for peer in peers:
            while peer.poll(0):
                assert b"welcome" not in peer.recv()


@pytest.mark.parametrize("node", ["broker-1", "name-1"])
def test_requests_that_wait_with_large_fields_are_bounded(cluster: Cluster, node: str) -> None:
    with (
        others_served(cluster, node, GROWTH_MB[node]),
        dealers(cluster.endpoint(node), 4) as peers,
    ):
        for at, peer in enumerate(peers):
            tell(peer, Hello(1, 1, 1, "waits", "client", 0))
            for number in range(75):
                names = [f"{at} {number} {name} ".ljust(1_000, "x") for name in range(1_500)]
                # Of a version that is not there yet: it is held.
                tell(peer, Watch(2 * number + 2, 60_000, 1 << 40, names, 60_000))
                # One by one: how many wait to be looked at is up to the speed of the machine.
                # (Of pings, ten a second are answered.)
                tell(peer, Watch(2 * number + 3, 60_000, -1, [], 0))
                assert is_answered(peer, b"watchresult", time.monotonic() + 200)
