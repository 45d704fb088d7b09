"""Strangers who speak raw TCP to a node: nothing changes, memory is bounded, others are served.

What they send after a handshake, and peers that never read, are in tests/integration/fuzz.
"""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.connection_limits import ADMITTED
from logboom.wire.sockets import HANDSHAKE_MS
from tests.chaos.fuzz_peers import GREETING, HANDSHAKE, HEADS, raw, trickle
from tests.chaos.node_logs import faults
from tests.integration.fuzz.test_fuzz import endpoint_of, others_served
from tests.integration.nodes.figures import figures
from tests.integration.waiting import wait_until
from tests.thorough import few_of

MIB: Final = 1024 * 1024
PORTS: Final = ("broker-1", "name-1", "raft of name-1")
SILENT_MB: Final = 64
"""MiB by which a node may grow, also for a moment, while strangers say little."""
CURVE_GREETING: Final = GREETING[:12] + b"CURVE".ljust(20, b"\0") + GREETING[32:]
PLAIN_GREETING: Final = GREETING[:12] + b"PLAIN".ljust(20, b"\0") + GREETING[32:]
WRONG: Final = {
    "another mechanism": CURVE_GREETING + b"\x04\xc8\x05HELLO" + bytes(194),
    "a password": PLAIN_GREETING + b"\x04\x10\x05HELLO\x04root\x04root",
    "a greeting of another version": GREETING[:10] + b"\x09\x09" + GREETING[12:],
    "READY as the first word": GREETING + b"\x04\xff" + bytes(255),
    "an error": GREETING + b"\x04\x0a\x05ERROR\x03no!",
}
"""Handshakes that lead nowhere."""


@pytest.fixture(scope="module", name="cluster")
def cluster_of_one() -> Iterator[Cluster]:
    """Attacked by many; its nodes never end, and report no fault."""
    with Cluster(name_servers=1, brokers=1) as cluster:
        with connect(cluster.endpoints) as boom:
            boom.admin.create_topic("f", 1, 1)
            with boom.producer() as producer:
                producer.send("f", b"x").result(200)
        pids = {name: cluster.pid(name) for name in cluster.nodes}
        yield cluster
        for name, pid in pids.items():
            assert cluster.running(name)
            assert cluster.pid(name) == pid
            assert not faults(cluster.log(name).encode())


@contextmanager
def nothing_changed(cluster: Cluster, port: str, growth_mb: float) -> Iterator[None]:
    """Others are served meanwhile, and the metadata is afterwards what it was."""
    with connect(cluster.endpoints) as boom:

        def metadata() -> object:
            found = figures(boom, "name-1")
            topics = [(each.name, each.id, each.config) for each in boom.admin.topics()]
            return found["version"], found["raft_term"], topics

        before = metadata()
        with others_served(cluster, port, growth_mb):
            yield
        assert metadata() == before


def figure(cluster: Cluster, node: str, name: str) -> int:
    """A figure of a node's statistics."""
    with connect(cluster.endpoints) as boom:
        return int(figures(boom, node)[name])


def are_ended(connections: list[socket.socket], patience_s: float, all_but: int = 0) -> bool:
    """Whether the node ends all connections but some within a time; what it says is dropped."""
    waiting = {each.fileno(): each for each in connections}
    until = time.monotonic() + patience_s
    while len(waiting) > all_but and time.monotonic() < until:
        for connection in select.select([*waiting.values()], [], [], 0.2)[0]:
            said = b""
            with suppress(ConnectionError):
                said = connection.recv(65_536)
            if not said:
                del waiting[connection.fileno()]
    return len(waiting) <= all_but


def ended(connections: list[socket.socket]) -> int:
    """How many connections the node has ended; what it says is dropped."""
    count = 0
    for connection in connections:
        try:
            while connection.recv(65_536, socket.MSG_DONTWAIT):
                pass
            count += 1
        except BlockingIOError:
            continue
        except ConnectionError:
            count += 1
    return count


@pytest.mark.parametrize("port", PORTS)
def test_handshakes_that_lead_nowhere_are_ended(cluster: Cluster, port: str) -> None:
    endpoint = endpoint_of(cluster, port)
    with nothing_changed(cluster, port, SILENT_MB), ExitStack() as stack:
        connections: list[socket.socket] = []
        for wrong in WRONG.values():
            connections += stack.enter_context(raw(endpoint, 10, wrong))
        # Far more than it takes, for this may run on a busy machine.
        assert are_ended(connections, HANDSHAKE_MS / 1000 + 60)


@pytest.mark.parametrize("port", few_of(PORTS, ["broker-1"]))
def test_half_greetings_end_with_the_time_of_the_handshake(cluster: Cluster, port: str) -> None:
    halves = [head for head in HEADS if head and GREETING.startswith(head)]
    with nothing_changed(cluster, port, SILENT_MB):
        connections: list[socket.socket] = []
        host, number = endpoint_of(cluster, port).split(":")
        for at in range(200):
            connections.append(socket.create_connection((host, int(number)), 60.0))
            connections[-1].sendall(halves[at % len(halves)])
        assert are_ended(connections, HANDSHAKE_MS / 1000 + 60)
        for each in connections:
            each.close()


@pytest.mark.parametrize("port", few_of(PORTS, ["broker-1", "name-1"]))
def test_a_thousand_silent_connections_cost_little(cluster: Cluster, port: str) -> None:
    endpoint = endpoint_of(cluster, port)
    node = port.removeprefix("raft of ")
    with nothing_changed(cluster, port, SILENT_MB), raw(endpoint, 1_000, GREETING) as connections:
        if not port.startswith("raft"):
            # On a slow machine the time of the first ones is over before the last are accepted.
            wait_until(
                lambda: figure(cluster, node, "connections") + ended(connections) >= 1_000,
                "all are accepted",
            )
    wait_until(lambda: figure(cluster, node, "connections") < 100, "all are forgotten")


@pytest.mark.parametrize("port", few_of(PORTS, ["broker-1"]))
@pytest.mark.parametrize("within_handshake", [True, False])
def test_giant_frames_cost_bounded_memory(
    cluster: Cluster, port: str, within_handshake: bool
) -> None:
    largest = (8 if port == "broker-1" else 2) * MIB
    head = GREETING + b"\x06" if within_handshake else HANDSHAKE + b"\x02"
    endpoint = endpoint_of(cluster, port)
    many = 30
    # Within the handshake so many of the largest frames, however many connections send them. After
    # it, at a listener without keys, one frame of each may come within one look at the connections.
    frames = ADMITTED if within_handshake else many
    giant_mb = frames * largest / MIB + SILENT_MB
    with nothing_changed(cluster, port, giant_mb):
        for size in (largest * 9 // 8, 1 << 40, (1 << 64) - 1):
            with raw(endpoint, 5, head + size.to_bytes(8, "big")) as connections:
                for connection in connections:
                    # It may be ended in the middle.
                    with suppress(OSError):
                        connection.sendall(bytes(MIB))
                assert are_ended(connections, 100)
        with raw(endpoint, many, head + (largest - 1).to_bytes(8, "big")) as connections:
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(bytes(largest * 3 // 4))
            # All of them together may hold eight of the largest.
            most = 8 * 4 // 3 + 1
            assert are_ended(connections, 100, all_but=most)


@pytest.mark.parametrize("port", few_of(PORTS, ["broker-1", "name-1"]))
def test_a_slow_loris_is_ended_with_the_time_of_the_handshake(cluster: Cluster, port: str) -> None:
    with (
        nothing_changed(cluster, port, SILENT_MB),
        raw(endpoint_of(cluster, port), 50) as connections,
    ):
        trickle(connections, GREETING[:-1], 2 * HANDSHAKE_MS / 1000)
        assert are_ended(connections, HANDSHAKE_MS / 1000 + 60)


@pytest.mark.parametrize("node", few_of(["broker-1", "name-1"], ["broker-1"]))
def test_who_uses_up_the_descriptors_shuts_out_nobody_who_is_inside(
    cluster: Cluster, node: str
) -> None:
    pid = cluster.pid(node)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with connect(cluster.endpoints) as inside:
        inside.pull("f", queue=0, offset=0, wait_ms=0)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (300, before[1]))
        connections: list[socket.socket] = []
        host, port = cluster.endpoint(node).split(":")

        def told(name: str) -> int:
            return int(figures(inside, node)[name])

        def knock() -> None:
            for connection in connections:
                connection.close()
            connections.clear()
            for _ in range(400):
                connection = socket.socket()
                connection.setblocking(False)
                connections.append(connection)
                connection.connect_ex((host, int(port)))

        def is_full() -> bool:
            # Those that say nothing are ended after a time, which may have passed unseen.
            if ended(connections) == len(connections):
                knock()
            return not told("accepting")

        try:
            wait_until(is_full, "it accepts no more")
            assert inside.pull("f", queue=0, offset=0, wait_ms=0).status == "FOUND"
            assert told("connections") < 300
            with suppress(OSError), socket.create_connection((host, int(port)), 0.5) as late:
                # The system may have had it accepted before: then it is reset.
                assert are_ended([late], 100)
        finally:
            for connection in connections:
                connection.close()
            wait_until(lambda: bool(told("accepting")), "it accepts again")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        with connect(cluster.endpoint("broker-1")) as newcomer:
            assert newcomer.pull("f", queue=0, offset=0, wait_ms=0).status == "FOUND"
    assert "file descriptors are in use" in cluster.log(node)
