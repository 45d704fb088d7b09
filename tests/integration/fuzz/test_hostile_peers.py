"""Peers that flood, never read, or come in thousands: others are served meanwhile, memory is bounded."""

from __future__ import annotations

import random
import resource
import socket as tcp
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zmq

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.base import WireMessage
from logboom.wire.frames import encode
from logboom.wire.messages import Hello, Ping, Pull, Stats, Watch
from tests.chaos.memory import Memory
from tests.integration.fuzz.conftest import PATIENT_S, slowest_pull
from tests.integration.nodes.figures import figures
from tests.integration.waiting import wait_until
from tests.thorough import examples, few_of

CONNECTIONS = examples(5_000)
ROUND_S = 30.0
"""Seconds after which those without an answer ask again."""


@contextmanager
def dealers(endpoint: str, count: int) -> Iterator[list[zmq.Socket[bytes]]]:
    """Connections that take nothing more than one message from the network by themselves."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, count + 10)
    sockets: list[zmq.Socket[bytes]] = []
    try:
        for _ in range(count):
            socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, 1)
            socket.setsockopt(zmq.SNDHWM, 0)
            socket.connect(f"tcp://{endpoint}")
            sockets.append(socket)
        yield sockets
    finally:
        for socket in sockets:
            socket.close(linger=0)
        context.term()


def tell(socket: zmq.Socket[bytes], message: WireMessage) -> None:
    """Send a message."""
    socket.send(bytes(encode(message)[0]))


def is_answered(socket: zmq.Socket[bytes], word: bytes, until: float) -> bool:
    """Read until an answer with a word in it has come, at the latest until a moment."""
    while socket.poll(max(0, int((until - time.monotonic()) * 1000))):
        if word in socket.recv():
            return True
    return False


def hello(name: str) -> Hello:
    """The greeting of a client."""
    return Hello(1, 1, 1, name, "client", 0)


def test_a_peer_that_never_reads_costs_bounded_memory_and_nobody_else(cluster: Cluster) -> None:
    pid = cluster.pid("broker-1")
    with connect(cluster.endpoints) as boom, dealers(cluster.endpoints[0], 1) as (peer,):
        slowest_pull(boom, 0.2)
        memory = Memory(pid)
        tell(peer, hello("never reads"))
        for number in range(20_000):
            tell(peer, Pull(number + 2, 30_000, "f", 0, 0, 16 << 20, 0))
        assert slowest_pull(boom, 4.0) < PATIENT_S
        assert memory.grown < 400


def test_all_who_never_read_together_cost_bounded_memory(cluster: Cluster) -> None:
    pid = cluster.pid("broker-1")
    with connect(cluster.endpoints) as boom, dealers(cluster.endpoints[0], 60) as peers:
        memory = Memory(pid)
        for at, peer in enumerate(peers):
            tell(peer, hello(f"never reads {at}"))
            for number in range(10):
                tell(peer, Pull(number + 2, 30_000, "f", 0, 0, 16 << 20, 0))
        # 600 answers of 16 MB are asked for: each alone is far from its own bound.
        assert slowest_pull(boom, 4.0) < PATIENT_S
        wait_until(lambda: bool(figures(boom, "broker-1")["sends_dropped"]), "nothing is dropped")
        assert memory.grown < 700


@pytest.mark.parametrize("node", ["broker-1", "name-1"])
def test_floods_of_greetings_and_noise_leave_others_served(cluster: Cluster, node: str) -> None:
    rng = random.Random(7)
    endpoint, pid = cluster.endpoint(node), cluster.pid(node)
    with connect(cluster.endpoints) as boom, dealers(endpoint, 8) as peers:
        memory = Memory(pid)
        for number in range(2_000):
            for at, peer in enumerate(peers):
                tell(peer, hello(f"flood {at} {number}"))
                tell(peer, Watch(number + 1, 30_000, -1, None, 30_000))
                peer.send_multipart([rng.randbytes(rng.randrange(60)) for _ in range(3)])
        assert slowest_pull(boom, 3.0) < PATIENT_S
        assert memory.grown < 200
    assert cluster.running(node)


@pytest.mark.parametrize("node", ["broker-1", "name-1"])
def test_a_crowd_that_comes_while_a_node_is_busy_is_let_in(cluster: Cluster, node: str) -> None:
    host, port = cluster.endpoint(node).split(":")
    crowd = min(1_000, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    with ExitStack() as callers:
        cluster.pause(node)
        callers.callback(cluster.resume, node)
        for _ in range(crowd):
            # The system alone answers: where the listener's queue is full, nobody does.
            callers.enter_context(tcp.create_connection((host, int(port)), timeout=10))


@pytest.mark.parametrize("node", few_of(["broker-1", "name-1"], ["broker-1"]))
def test_thousands_of_connections_are_served(cluster: Cluster, node: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    pid = cluster.pid(node)
    memory = Memory(pid)
    with (
        connect(cluster.endpoints) as boom,
        dealers(cluster.endpoint(node), CONNECTIONS) as peers,
    ):
        waiting = dict(enumerate(peers))
        while waiting:
            # Who waits greets again, all of them at once: a busy machine may not end a handshake in
            # time, and with its connection a greeting is lost.
            for at, peer in waiting.items():
                tell(peer, hello(f"client {at}"))
            until = time.monotonic() + ROUND_S
            waiting = {
                at: peer for at, peer in waiting.items() if not is_answered(peer, b"welcome", until)
            }
        for peer in peers:
            tell(peer, Ping(1))
            tell(peer, Stats(2, 10_000))
        assert slowest_pull(boom, 2.0) < PATIENT_S
        waiting = dict(enumerate(peers))
        while waiting:
            until = time.monotonic() + ROUND_S
            waiting = {
                at: peer for at, peer in waiting.items() if not is_answered(peer, b"pong", until)
            }
            for at, peer in waiting.items():
                # On a slow machine its turn may come more than 30 s after its greeting.
                tell(peer, hello(f"client {at}"))
                tell(peer, Ping(3))
        assert memory.grown < 400
