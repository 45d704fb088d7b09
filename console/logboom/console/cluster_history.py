"""The counters of all nodes over the last minutes, and rates from them; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from logboom.client.results import NodeStats

SAMPLE_S: Final = 5.0
"""Seconds between two samples."""
MAX_SAMPLES: Final = 240
"""Samples that are kept: 20 minutes."""


@dataclass(frozen=True, slots=True)
class CounterSample:
    """What every node told at one moment."""

    wall_s: float
    nodes: Mapping[str, NodeStats]


class ClusterHistory:
    """The newest samples, the oldest first."""

    def __init__(self) -> None:
        self._samples: deque[CounterSample] = deque(maxlen=MAX_SAMPLES)

    def add(self, wall_s: float, nodes: Sequence[NodeStats]) -> None:
        """Add a sample. One that is not later than the last replaces all: the clock was set back."""
        if self._samples and wall_s <= self._samples[-1].wall_s:
            self._samples.clear()
        self._samples.append(CounterSample(wall_s, {node.node: node for node in nodes}))

    @property
    def newest(self) -> CounterSample | None:
        """The last sample, or None."""
        return self._samples[-1] if self._samples else None

    def times_s(self) -> list[float]:
        """Return the time of each rate: of each sample but the first."""
        return [sample.wall_s for sample in self._samples][1:]

    def rates(self, counter: str, node: str = "") -> list[float | None]:
        """Return by how much a counter grew per second, from each sample to the next.

        None: no node that told it both times, or a process that started meanwhile.

        Args:
            node: a node; "": the sum of all that have the counter.
        """
        return [_rate(before, after, counter, node) for before, after in pairwise(self._samples)]

    def rate_now(self, counter: str, node: str = "") -> float | None:
        """Return the newest of `rates`."""
        if len(self._samples) < 2:
            return None
        return _rate(self._samples[-2], self._samples[-1], counter, node)

    def values(self, counter: str, node: str = "") -> list[float | None]:
        """Return a gauge at the time of each rate."""
        return [_value(sample, counter, node) for sample in list(self._samples)[1:]]

    def greatest(self, counter: str) -> list[float | None]:
        """Return the greatest value that a node told of a gauge, at the time of each rate."""
        return [
            max((value for _, value in _numbers(sample, counter, "")), default=None)
            for sample in list(self._samples)[1:]
        ]


def _numbers(sample: CounterSample, counter: str, node: str) -> Iterator[tuple[str, float]]:
    for name, each in sample.nodes.items():
        if node in ("", name):
            value: Any = each.counters.get(counter)
            if isinstance(value, int | float):
                yield name, float(value)


def _rate(before: CounterSample, after: CounterSample, counter: str, node: str) -> float | None:
    old = dict(_numbers(before, counter, node))
    grown = [value - old[name] for name, value in _numbers(after, counter, node) if name in old]
    steps = [each for each in grown if each >= 0]
    return sum(steps) / (after.wall_s - before.wall_s) if steps else None


def _value(sample: CounterSample, counter: str, node: str) -> float | None:
    found = [value for _, value in _numbers(sample, counter, node)]
    return sum(found) if found else None
