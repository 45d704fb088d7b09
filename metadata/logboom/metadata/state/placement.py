"""Which brokers hold a new topic's queues: pure, deterministic, spread over zones.

Queue by queue, the best broker by a fixed order of wishes: leaders spread evenly over brokers;
the replicas of a queue in as many zones as there are; replicas spread evenly; the second replicas
of one leader's queues on different brokers, so that its load is shared when it dies. Ties go to
who holds less of other topics, then to the smaller id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Candidate:
    """A live broker and what it holds already, counted in queues."""

    id: str
    zone: str
    preferred: int = 0
    """Queues of all topics in whose placement it comes first."""
    held: int = 0
    """Replicas of all topics."""
    topic_preferred: int = 0
    """The same two for the topic that is being placed."""
    topic_held: int = 0
    seconds: dict[str, int] = field(default_factory=dict)
    """Broker → how often it comes second where this one comes first, in this topic."""


def place_replicas(
    candidates: Sequence[Candidate], queues: int, replicas: int
) -> list[tuple[str, ...]]:
    """Replicas of each new queue, preferred leader first. Needs `replicas` ≤ candidates.

    The candidates' counts are moved on, so that a topic may be placed in several calls.
    """
    ordered = sorted(candidates, key=lambda c: c.id)
    return [_place_queue(ordered, replicas) for _ in range(queues)]


def _place_queue(candidates: list[Candidate], replicas: int) -> tuple[str, ...]:
    leader = min(candidates, key=_leader_wish)
    leader.preferred += 1
    leader.topic_preferred += 1
    chosen = [leader]
    zones = {leader.zone: 1}
    while len(chosen) < replicas:
        second = len(chosen) == 1
        best = min(
            (c for c in candidates if c not in chosen),
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
