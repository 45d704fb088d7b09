"""What figures are compared with: the same machine in the same minute, without logboom.

A reference is measured before and after each measurement of a figure, which is compared with the
mean of both. So work of others on the machine slows both, and a ratio says more than a rate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mean, median
from typing import TYPE_CHECKING, Final

import zmq
from msgspec import Struct

from bench import python_loop, raw
from bench.figures import Comparison, percentile
from bench.raw_server import RawServer

if TYPE_CHECKING:
    from bench.raw_server import Store

WINDOW: Final = 5
"""Requests in flight to each server, as a producer has batches in flight."""
BURST_S: Final = 0.5
ROUND_TRIPS: Final = 500
PACE_S: Final = 0.001
VALUE: Final = bytes(raw.WIDTH)
LOOPS: Final = 2 * (os.cpu_count() or 1)
"""Twice as many as there are cores, because a cluster has more processes than that too."""


class Reference(Struct, frozen=True):
    """Something to compare with."""

    name: str
    measure: Callable[[], Sequence[float]]
    """Return one value, or one for each figure that is measured beside it."""

    def beside(self, rounds: int, measure: Callable[[int], Sequence[float]]) -> list[Comparison]:
        """Measure figures some times, each time between two measurements of the reference.

        Args:
            rounds: How many times.
            measure: Returns the values of all figures; its argument is the number of the round.
        """
        around = [self.measure()]
        measured: list[Sequence[float]] = []
        for number in range(rounds):
            measured.append(measure(number))
            around.append(self.measure())
        found = []
        for figure in range(len(measured[0])):
            values = [each[figure] for each in measured]
            ends = [each[figure % len(each)] for each in around]
            found.append(compare(self.name, values, list(map(mean, pairwise(ends)))))
        return found


def compare(name: str, values: Sequence[float], references: Sequence[float]) -> Comparison:
    """Compare values with those of a reference, each with its neighbour."""
    ratios = [value / beside for value, beside in zip(values, references, strict=True)]
    return Comparison(median(values), name, median(references), median(ratios))


def with_and_without(name: str, rounds: int, rate: Callable[[bool, str], float]) -> Comparison:
    """Compare the rate with something to that without it, in rounds; a first one counts for nothing.

    The runs of a round are in the order A B B A, so that a trend of the machine falls on both.
    `rate` gets whether this run is with it, and a name of the run that no other has.
    """
    pairs: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        first = number % 2 == 0
        rates = {True: 0.0, False: 0.0}
        for turn, with_it in enumerate((first, not first, not first, first)):
            rates[with_it] += rate(with_it, f"{number}-{turn}") / 2
        pairs.append((rates[True], rates[False]))
    values, references = zip(*pairs[1:], strict=True)
    return compare(name, values, references)


def batches_s(store: Store, servers: int = 1) -> float:
    """Return messages per second in batches of 1,000 x 100 B, sent to every server."""
    entries = raw.entries()
    context = zmq.Context()
    started = [RawServer(context, store) for _ in range(servers)]
    try:
        sent = done = 0
        began = time.monotonic()
        while (spent := time.monotonic() - began) < BURST_S:
            while sent - done < WINDOW:
                for server in started:
                    server.socket.send(entries[sent % len(entries)], copy=False)
                sent += 1
            for server in started:
                server.socket.recv()
            done += 1
        return done * raw.MESSAGES / spent
    finally:
        for server in started:
            server.close()
        context.term()


def round_trips_ms(servers: int = 1) -> tuple[float, float]:
    """Return p50 and p99 of the ms until every server has synced 100 B and answered.

    It sends at the pace of 1,000 messages per second, so that the processor is as idle as then.
    """
    context = zmq.Context()
    started = [RawServer(context, "file") for _ in range(servers)]
    try:
        spent = []
        for _ in range(ROUND_TRIPS):
            began = time.monotonic()
            for server in started:
                server.socket.send(VALUE)
            for server in started:
                server.socket.recv()
            spent.append(1_000 * (time.monotonic() - began))
            # As far apart as the messages it is compared with, so that each travels alone.
            time.sleep(max(0.0, began + PACE_S - time.monotonic()))
        return percentile(spent, 0.5), percentile(spent, 0.99)
    finally:
        for server in started:
            server.close()
        context.term()


STORED: Final = Reference(
    "same bytes: raw ZeroMQ into RocksDB, msg/s", lambda: [batches_s("rocksdb")]
)
STORED_THRICE: Final = Reference(
    "same bytes: raw ZeroMQ into 3 RocksDBs, msg/s", lambda: [batches_s("rocksdb", 3)]
)
MOVED: Final = Reference("same bytes: raw ZeroMQ, msg/s", lambda: [batches_s("nothing")])
ROUND_TRIP: Final = Reference("raw ZeroMQ echo with fdatasync, ms", round_trips_ms)
ROUND_TRIP_THRICE: Final = Reference(
    "3 raw ZeroMQ echoes with fdatasync, ms", lambda: round_trips_ms(3)
)
PYTHON: Final = Reference(
    f"Python loop in {LOOPS} processes, steps/s", lambda: [python_loop.steps_s(LOOPS, BURST_S)]
)
PYTHON_CPU: Final = Reference(
    f"Python loop, {python_loop.STEPS:,} steps, ms", lambda: [python_loop.processor_ms()]
)
