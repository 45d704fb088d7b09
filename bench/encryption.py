"""What encryption costs: the same work on an open cluster and on a secure one, by turns.

Both run at once, and one of them rests while the other works.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from bench import load
from bench.figures import Comparison, Figure, compared, percentile
from bench.references import compare
from bench.throughput import once, send_batches
from logboom.client import Client, connect
from logboom.deploy import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE: Final = 0.7
"""Part of the open cluster's rate that the secure one has to reach."""
ACKNOWLEDGED: Final = 1.15
"""Multiple of the open cluster's time that an acknowledgement may take."""
ACKNOWLEDGEMENTS: Final = 300
"""Messages of one round that are sent one after the other, each after the last was acknowledged."""


class _Side(NamedTuple):
    """A cluster, a client of it, and what another process connects with."""

    boom: Client
    target: list[str]


def rows(count: int, rounds: int) -> list[Figure]:
    """Return the rates and the times of the secure cluster beside those of the open one."""
    items = load.values(count)
    with ExitStack() as stack:
        sides = [_started(stack, secure=secure) for secure in (True, False)]

        def at_once(side: _Side, number: int) -> tuple[float, ...]:
            topic = f"at-once-{number}"
            return once(side.boom, side.target, topic, items, send_batches, "columns", 1)

        def acknowledged(side: _Side, number: int) -> tuple[float, ...]:
            taken = _acknowledgements(side.boom, f"acknowledged-{number}")
            return percentile(taken, 0.5), percentile(taken, 0.99)

        produced, read = _by_turns(sides, at_once, rounds, "open cluster, msg/s")
        half, tail = _by_turns(sides, acknowledged, rounds, "open cluster, ms")
    return [
        compared("encrypted: send_many 1,000 x 100 B, produced", produced, "msg/s", AT_ONCE),
        compared("  … and read at once", read, "msg/s", AT_ONCE),
        compared("  … acknowledgement, p50", half, "ms", ACKNOWLEDGED, "less"),
        compared("  … acknowledgement, p99", tail, "ms"),
    ]


def _started(stack: ExitStack, *, secure: bool) -> _Side:
    cluster = stack.enter_context(Cluster(name_servers=1, brokers=1, secure=secure))
    target = cluster.endpoints if cluster.credentials is None else [str(cluster.credentials)]
    return _Side(stack.enter_context(connect(",".join(target))), target)


def _acknowledgements(boom: Client, topic: str) -> list[float]:
    """Return the ms from each send to its acknowledgement."""
    boom.admin.create_topic(topic, queues=1)
    taken: list[float] = []
    with boom.producer(acks="all") as producer:
        for _ in range(ACKNOWLEDGEMENTS):
            began = time.perf_counter()
            producer.send(topic, bytes(100), queue=0).result(60)
            taken.append((time.perf_counter() - began) * 1e3)
    return taken


def _by_turns(
    sides: list[_Side],
    measure: Callable[[_Side, int], tuple[float, ...]],
    rounds: int,
    reference: str,
) -> list[Comparison]:
    """Measure both sides in each round, after a first one that counts for nothing.

    Who begins changes from round to round.
    """
    found: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for number in range(rounds + 1):
        order = (0, 1) if number % 2 else (1, 0)
        results = {at: measure(sides[at], number) for at in order}
        found.append((results[0], results[1]))
    return [
        compare(reference, [secure[at] for secure, _ in found[1:]], [o[at] for _, o in found[1:]])
        for at in range(len(found[0][0]))
    ]
