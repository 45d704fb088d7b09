"""Expositions of metrics: what a node or the exporter tells, in the text formats of Prometheus.

A family is made of the figures that `metric_table` names. Families are written one by one, so that a
caller may let other threads work in between: to write some hundred series takes milliseconds, in
which Python runs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from logboom.wire.metric_table import PREFIX, Metric, MetricSource, metrics_of
from logboom.wire.stats import BOUNDS_MS, FigureTable, Histogram

V = TypeVar("V")
Encoder: TypeAlias = Callable[[Collector], bytes]
SHOWN_BOUNDS: Final = range(3, len(BOUNDS_MS), 2)
"""Bounds that are shown of a histogram: every second one, from 0.08 ms to 84 s."""
SAMPLES_AT_ONCE: Final = 28
"""Samples of a family that are written as one piece: two histograms."""
END_OF_FILE: Final = b"# EOF\n"
"""The last line of an exposition as OpenMetrics."""


class Snapshot(NamedTuple):
    """What a node knows at one moment."""

    source: MetricSource
    info: Mapping[str, str]
    """Labels of `build_info`."""
    figures: FigureTable
    histograms: Mapping[str, Histogram]


def families_of(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the families of a node in the order of the table.

    A counter or histogram that has not counted yet is 0. A gauge that the node does not know is left out.
    """
    parts = _by_prefix(snapshot.figures)
    timed = _by_prefix(snapshot.histograms)
    for metric in metrics_of(snapshot.source):
        name = PREFIX + metric.name
        if metric.kind == "info":
            family: Family = InfoMetricFamily(name.removesuffix("_info"), metric.help)
            family.add_sample(name, dict(snapshot.info), 1.0)
        elif metric.kind == "histogram":
            family = HistogramMetricFamily(
                name, metric.help, labels=metric.labels, unit=metric.unit
            )
            durations = dict(_values(metric, snapshot.histograms, timed))
            if not metric.labels:
                durations.setdefault(None, Histogram())
            for value, histogram in durations.items():
                labels = [] if value is None else [value]
                family.add_metric(labels, _buckets(histogram), histogram.total_s)
        else:
            made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = made(name, metric.help, labels=metric.labels, unit=metric.unit)
            told = dict(_values(metric, snapshot.figures, parts))
            if metric.kind == "counter":
                for known in metric.values or (() if metric.labels else (None,)):
                    told.setdefault(known, 0)
            for value, figure in told.items():
                if not isinstance(figure, str):
                    family.add_metric([] if value is None else [value], figure)
        if family.samples:
            yield family


def write(families: Iterable[Family], accept: str) -> tuple[str, Iterator[bytes]]:
    """Return the content type that an `Accept` header asks for, and the exposition in pieces."""
    try:
        encode, content_type = choose_encoder(accept)
    # The header is anything that a stranger may send, and versions are parsed by the library.
    except Exception:  # noqa: BLE001 - the plain format is for everybody
        encode, content_type = choose_encoder("")
    return content_type, _write(families, encode)


def _write(families: Iterable[Family], encode: Encoder) -> Iterator[bytes]:
    ended = False
    for family in families:
        for number, part in enumerate(_parts(family)):
            written = encode(_Alone(part))
            ended = ended or written.endswith(END_OF_FILE)
            written = written.removesuffix(END_OF_FILE)
            # Only the first part of a family begins with what it means.
            yield _without_head(written) if number else written
    if ended:
        yield END_OF_FILE


def _parts(family: Family) -> Iterator[Family]:
    """Yield a family as families of some samples each."""
    for begin in range(0, len(family.samples), SAMPLES_AT_ONCE):
        part = Family(family.name, family.documentation, family.type, family.unit)
        part.samples = family.samples[begin : begin + SAMPLES_AT_ONCE]
        yield part


def _without_head(written: bytes) -> bytes:
    while written.startswith(b"# "):
        written = written.partition(b"\n")[2]
    return written


class _Alone(Collector):
    """A collector of one family."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        return [self._family]


def _by_prefix(figures: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the keys that have a full stop, by what stands before it."""
    found: dict[str, list[str]] = {}
    for key in figures:
        prefix, stop, _ = key.partition(".")
        if stop:
            found.setdefault(prefix, []).append(key)
    return found


def _values(
    metric: Metric, figures: Mapping[str, V], parts: Mapping[str, list[str]]
) -> Iterator[tuple[str | None, V]]:
    """Yield the label's value, or None without a label, and the figure of each series."""
    if not metric.labels:
        if metric.figure in figures:
            yield None, figures[metric.figure]
        return
    for key in sorted(parts.get(metric.figure, ())):
        yield key.partition(".")[2], figures[key]


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Return (upper bound in seconds, durations up to it) of the bounds that are shown."""
    found: list[tuple[str, float]] = []
    counted, below = 0, 0
    for bound in SHOWN_BOUNDS:
        below += sum(histogram.buckets[counted : bound + 1])
        counted = bound + 1
        found.append((repr(round(BOUNDS_MS[bound] / 1000, 7)), below))
    return [*found, ("+Inf", histogram.count)]
