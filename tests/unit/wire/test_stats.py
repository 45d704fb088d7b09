"""Counters and histograms are flat, and quantiles are bounds of buckets that double."""

from __future__ import annotations

from logboom.wire.stats import Histogram, Statistics


def test_quantiles() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.99) == 0.0
    for _ in range(99):
        histogram.add(0.0009)
    histogram.add(0.4)
    assert 0.9 <= histogram.quantile(0.5) <= 1.8
    assert 400 <= histogram.quantile(1.0) <= 800


def test_everything_in_one_flat_table() -> None:
    stats = Statistics()
    stats.count("cuts")
    stats.count("cuts", 2)
    stats.histograms["sync"].add(0.001)
    flat = stats.flat()
    assert flat["cuts"] == 3
    assert flat["sync.count"] == 1
    assert isinstance(flat["sync_ms.p99"], float)
