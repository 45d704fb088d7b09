"""Fuzz the ports of real nodes: `python -m tests.chaos.fuzz --minutes 10`.

A name server and a broker take frames by grammar, raw bytes, silence and storms of connections,
round after round, while a client pulls; then bytes guided by what code they reach go to all that
decodes. It ends with 1 and the reason if a node ends, logs a fault, grows, or leaves the client
waiting.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from hypothesis import HealthCheck, Phase, given, seed, settings

from logboom.client import Client, connect
from logboom.deploy import Cluster
from tests.chaos.fuzz_guided import guided
from tests.chaos.fuzz_peers import (
    HANDSHAKE,
    HEADS,
    Case,
    Peers,
    cases,
    kinds,
    of,
    raw,
    storm,
    trickle,
)
from tests.chaos.memory import Memory
from tests.chaos.node_logs import faults

PATIENT_S: Final = 2.0
"""Longest wait of the client; the machine may be busy with other things."""
GROWTH_MB: Final = 600
"""A node's peak, beyond what it had before: 512 MiB may wait for who does not read (`SHARED_BYTES`
of `logboom.wire.sockets`, twice), and a little more."""
ROUND: Final = 400
"""Cases of one round."""
STORM: Final = 1_000
"""Short connections of one round."""
GUIDED_SHARE: Final = 0.25
NODES: Final = ("broker-1", "name-1")


@dataclass
class Tally:
    """What was done, and the worst of what was seen."""

    rounds: int = 0
    frames: int = 0
    connections: int = 0
    slowest_s: float = 0.0
    most_mb: dict[str, float] = field(default_factory=dict)


def ports(cluster: Cluster) -> list[tuple[str, str]]:
    """(node, endpoint) of every ROUTER."""
    config = (cluster.data / "name-1" / "node.toml").read_text()
    line = next(line for line in config.splitlines() if line.startswith("raft_listen"))
    raft = line.partition("=")[2].strip().strip('"')
    return [*((name, cluster.endpoint(name)) for name in NODES), ("name-1", raft)]


def attack(endpoint: str, number: int, tally: Tally) -> None:
    """One round against one port: a kind of attack after another, by the round's number."""
    peers = Peers(endpoint)
    chosen = [cases, *(of(kind) for kind in kinds())]
    strategy = chosen[0 if number % 2 else number // 2 % len(chosen)]

    @seed(number)
    @settings(
        max_examples=ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def play(case: Case) -> None:
        peers.play(case)

    play()
    peers.close()
    tally.frames += peers.sent
    with raw(endpoint, 20) as slow, raw(endpoint, 20, HEADS[number % len(HEADS)]):
        trickle(slow, HANDSHAKE, 1.0)
    storm(endpoint, STORM)
    tally.connections += STORM + 40


def look(cluster: Cluster, boom: Client, tally: Tally, memory: dict[str, Memory]) -> None:
    """See that all is well.

    Raises:
        AssertionError: with what is not.
    """
    begun = time.monotonic()
    assert boom.pull("f", queue=0, offset=0, wait_ms=0).status == "FOUND"
    waited = time.monotonic() - begun
    tally.slowest_s = max(tally.slowest_s, waited)
    assert waited < PATIENT_S, f"a client waited {waited:.1f} s for a message"
    for name in NODES:
        assert cluster.running(name), f"{name} ended:\n{cluster.log(name)[-2_000:]}"
        logged = faults(cluster.log(name).encode())
        assert not logged, f"{name} logged a fault:\n{logged[0].text}"
        tally.most_mb[name] = round(memory[name].most)
        grown = memory[name].grown
        assert grown < GROWTH_MB, f"{name} grew by {grown:.0f} MB"


def ports_under_fire(seconds: float, first: int, tally: Tally) -> None:
    """Attack real nodes for so long."""
    until = time.monotonic() + seconds
    with Cluster(name_servers=1, brokers=1) as cluster, connect(cluster.endpoints) as boom:
        boom.admin.create_topic("f", 1, 1)
        with boom.producer() as producer:
            producer.send("f", b"x" * 100_000).result(30)
        memory = {name: Memory(cluster.pid(name)) for name in NODES}
        number = first
        while time.monotonic() < until:
            for _, endpoint in ports(cluster):
                attack(endpoint, number, tally)
                look(cluster, boom, tally, memory)
            number += 1
            tally.rounds += 1
        boom.admin.create_topic("after", 1, 1)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Fuzz; 1 if something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long in all")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    chosen = parser.parse_args(arguments)
    seconds, tally = chosen.minutes * 60, Tally()
    try:
        ports_under_fire(seconds * (1 - GUIDED_SHARE), chosen.seed, tally)
    except AssertionError as error:
        _say(f"round {chosen.seed + tally.rounds}: {error}")
        _say(f"again: python -m tests.chaos.fuzz --seed {chosen.seed + tally.rounds}")
        return 1
    _say(
        f"{tally.rounds} rounds, {tally.frames:,} frames, {tally.connections:,} connections; "
        f"slowest pull {tally.slowest_s * 1000:.0f} ms; "
        + ", ".join(f"{name} at most {mb:.0f} MB" for name, mb in tally.most_mb.items())
    )
    _say(f"{guided(seconds * GUIDED_SHARE, chosen.seed, _say):,} guided inputs, no fault")
    return 0


if __name__ == "__main__":
    sys.exit(main())
