"""The placement of a new topic's queues on brokers: deterministic, spread over hosts and zones.

No two replicas of a queue are on one host. Queue by queue, brokers are compared by these goals, in this order: leaders are spread evenly over
brokers; the replicas of a queue are in as many zones as possible; replicas are spread evenly; the
second replicas of one leader's queues are on different brokers, so that these share its load when
it fails. Ties go to the broker that holds less of other topics, then to the smaller id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Candidate:
    """A live broker, and the number of queues that it holds already."""

    id: str
    zone: str
    preferred: int = 0
    """Queues of all topics whose placement it comes first in."""
    held: int = 0
    """Replicas of all topics."""
    topic_preferred: int = 0
    """The same two numbers for the topic that is being placed."""
    topic_held: int = 0
    seconds: dict[str, int] = field(default_factory=dict)
    """Broker → how often it comes second where this one comes first, in this topic."""
    host: str = ""
    """The machine that it shares with others; empty: it has one alone."""


def count_hosts(hosts: Iterable[str]) -> int:
    """Return the number of machines on which brokers with these hosts are."""
    named: set[str] = set()
    alone = 0
    for host in hosts:
        if host:
            named.add(host)
        else:
            alone += 1
    return alone + len(named)


def place_replicas(
    candidates: Sequence[Candidate], queues: int, replicas: int
) -> list[tuple[str, ...]]:
    """Place the replicas of new queues, preferred leader first. Needs as many hosts as `replicas`.

    The candidates' counts are advanced, so that a topic may be placed in several calls.
    """
    ordered = sorted(candidates, key=lambda c: c.id)
    return [_place_queue(ordered, replicas) for _ in range(queues)]


def _place_queue(candidates: list[Candidate], replicas: int) -> tuple[str, ...]:
    leader = min(candidates, key=_leader_wish)
    leader.preferred += 1
    leader.topic_preferred += 1
    chosen = [leader]
    zones = {leader.zone: 1}
    hosts = {leader.host} - {""}
    while len(chosen) < replicas:
        second = len(chosen) == 1
        best = min(
            (c for c in candidates if c not in chosen and c.host not in hosts),
            key=lambda c: (
                zones.get(c.zone, 0),
                c.topic_held,
                leader.seconds.get(c.id, 0) if second else 0,
                c.held,
            ),
        )
        if second:
            leader.seconds[best.id] = leader.seconds.get(best.id, 0) + 1
        zones[best.zone] = zones.get(best.zone, 0) + 1
        chosen.append(best)
        hosts |= {best.host} - {""}
    for candidate in chosen:
        candidate.held += 1
        candidate.topic_held += 1
    return tuple(c.id for c in chosen)


def _leader_wish(candidate: Candidate) -> tuple[int, int, int, int]:
    return (
        candidate.topic_preferred,
        candidate.preferred,
        candidate.topic_held,
        candidate.held,
    )
