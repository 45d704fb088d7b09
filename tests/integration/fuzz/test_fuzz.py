"""Real nodes against frames by grammar, raw bytes and silence: nobody else notices.

`python -m tests.chaos.fuzz --minutes N` is the long form.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.messages import RemoveNameServer, Watch
from tests.chaos.fuzz_peers import (
    HANDSHAKE,
    HEADS,
    Peers,
    cases,
    of,
    raw,
    storm,
    trickle,
)
from tests.chaos.memory import Memory
from tests.integration.fuzz.conftest import PATIENT_S, slowest_pull
from tests.thorough import few_of

GROWTH_MB: Final = 200
"""At most, also for a moment."""
PORTS: Final = ("broker-1", "name-1", "raft of name-1")
EXAMPLES: Final = settings(
    max_examples=150,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def endpoint_of(cluster: Cluster, port: str) -> str:
    """Where a port of `PORTS` listens."""
    if not port.startswith("raft"):
        return cluster.endpoint(port)
    text = (cluster.data / "name-1" / "node.toml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("raft_listen"))
    return line.partition("=")[2].strip().strip('"')


@contextmanager
def others_served(cluster: Cluster, port: str, growth_mb: float = GROWTH_MB) -> Iterator[None]:
    """A healthy client pulls meanwhile, and produces afterwards; the node's memory is bounded."""
    pid = cluster.pid(port.removeprefix("raft of "))
    over, waits = threading.Event(), list[float]()
    with connect(cluster.endpoints) as boom:

        def pull() -> None:
            # Once at least, however late this thread begins.
            while not (waits and over.is_set()):
                waits.append(slowest_pull(boom, 0.1))

        slowest_pull(boom, 0.1)
        memory = Memory(pid)
        thread = threading.Thread(target=pull)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert max(waits) < PATIENT_S
        with boom.producer() as producer:
            producer.send("f", b"afterwards").result(200)
        boom.admin.topics()
        assert memory.grown < growth_mb


@pytest.mark.parametrize("port", few_of(PORTS, ["broker-1"]))
def test_frames_by_grammar_harm_nobody(cluster: Cluster, port: str) -> None:
    peers = Peers(endpoint_of(cluster, port))

    @EXAMPLES
    @given(cases)
    def attack(case: tuple[list[list[bytes | memoryview]], list[list[bytes | memoryview]]]) -> None:
        peers.play(case)

    with others_served(cluster, port):
        attack()
        peers.close()
    assert peers.sent > 300


@pytest.mark.parametrize("kind", [RemoveNameServer, Watch])
def test_requests_of_strange_values_harm_nobody(cluster: Cluster, kind: type) -> None:
    peers = Peers(cluster.endpoint("name-1"))

    @settings(EXAMPLES, max_examples=40)
    @given(of(kind))
    def attack(case: tuple[list[list[bytes | memoryview]], list[list[bytes | memoryview]]]) -> None:
        peers.play(case)

    with others_served(cluster, "name-1"):
        attack()
        peers.close()


@pytest.mark.parametrize("port", PORTS)
def test_slow_and_silent_connections_harm_nobody(cluster: Cluster, port: str) -> None:
    endpoint = endpoint_of(cluster, port)
    with others_served(cluster, port), raw(endpoint, 20) as slow:
        attacks: list[Callable[[], None]] = []
        for head in HEADS:

            def silent(head: bytes = head) -> None:
                with raw(endpoint, 10, head):
                    # Nothing is waited for: so long the connection says nothing.
                    time.sleep(0.05)

            attacks.append(silent)
        for attack in attacks:
            attack()
        trickle(slow, HANDSHAKE + HEADS[7][len(HANDSHAKE) :], 1.0)


@pytest.mark.parametrize("port", PORTS[:2])
def test_a_storm_of_short_connections_leaves_nothing(cluster: Cluster, port: str) -> None:
    with others_served(cluster, port):
        storm(endpoint_of(cluster, port), 400)
