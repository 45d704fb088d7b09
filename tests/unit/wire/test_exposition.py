"""Expositions: strict parsers read them, they agree with the figures, and series are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from logboom.nodes.request_times import TYPES
from logboom.wire.access.access_rules import VERBS
from logboom.wire.errors import CODES
from logboom.wire.exposition import Snapshot, families_of, write
from logboom.wire.metric_table import MAX_NODE_SERIES, MetricSource, metrics_of
from logboom.wire.stats import BOUNDS_MS, FigureTable, Statistics

INFO = {"version": "1.2.3", "kind": "broker", "node": "broker-1", "cluster": "c" * 32}
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"


def everything(source: MetricSource) -> Snapshot:
    """Return the snapshot of a node that has every series it can have."""
    stats = Statistics()
    values = {
        "code": sorted(CODES),
        "verb": VERBS,
        "kind": ("client", "broker", "name-server", "used", "free", "reserve"),
        "direction": ("in", "out", "expand", "shrink"),
        "state": ("alive", "fenced"),
        "type": tuple(TYPES.values()),
    }
    figures: FigureTable = {}
    for metric in metrics_of(source):
        keys = [metric.figure]
        if metric.labels and metric.kind != "info":
            keys = [f"{metric.figure}.{value}" for value in values[metric.labels[0]]]
        for key in keys:
            if metric.kind == "histogram":
                stats.histograms[key].add(0.001)
            elif metric.kind != "info":
                figures[key] = 1
    return Snapshot(source, INFO, figures, stats.histograms)


def text(snapshot: Snapshot, accept: str = "") -> str:
    """Return the whole exposition."""
    return b"".join(write(families_of(snapshot), accept)[1]).decode()


@pytest.mark.parametrize("source", ["broker", "name-server"])
def test_a_node_has_a_bounded_number_of_series(source: MetricSource) -> None:
    series = sum(len(family.samples) for family in families_of(everything(source)))
    assert series <= MAX_NODE_SERIES


@pytest.mark.parametrize("source", ["broker", "name-server"])
def test_strict_parsers_read_what_is_written(source: MetricSource) -> None:
    snapshot = everything(source)
    plain = {each.name: each for each in parse_plain(text(snapshot))}
    strict = {each.name: each for each in parse_strictly(text(snapshot, OPENMETRICS))}
    assert len(strict) == len(metrics_of(source))
    assert samples(plain) == samples(strict)
    for metric in metrics_of(source):
        name = f"logboom_{metric.name}".removesuffix("_total").removesuffix("_info")
        family = strict[name]
        assert (family.type, family.unit) == (metric.kind, metric.unit)
        assert family.documentation == metric.help


def parse_plain(text: str) -> list[Family]:
    """Read the plain format."""
    return [*parse_text(text)]


def parse_strictly(text: str) -> list[Family]:
    """Read OpenMetrics."""
    return [*parse_openmetrics(text)]  # type: ignore[no-untyped-call] # the library has no type for it


def samples(found: dict[str, Family]) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    """Return all samples, however their families are called."""
    return {
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in found.values()
        for sample in family.samples
    }


def test_content_types() -> None:
    families = [*families_of(everything("broker"))]
    assert write(families, "")[0].startswith("text/plain; version=0.0.4")
    assert write(families, OPENMETRICS)[0].startswith("application/openmetrics-text; version=1.0.0")
    assert text(everything("broker"), OPENMETRICS).endswith("# EOF\n")
    assert text(everything("broker"), OPENMETRICS).count("# EOF") == 1
    assert "# EOF" not in text(everything("broker"))


@given(st.text(max_size=200))
def test_any_accept_header_gets_an_exposition(accept: str) -> None:
    assert "logboom_replicas 1.0" in text(everything("broker"), accept)


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=x",
        "application/openmetrics-text; version=",
        "application/openmetrics-text; version=1.0.0; escaping=nonsense",
        "text/plain; version=99.99.99.99",
        ";;;,,,",
    ],
)
def test_odd_versions_get_an_exposition(accept: str) -> None:
    assert "logboom_replicas 1.0" in text(everything("broker"), accept)


def test_counters_begin_with_0_and_unknown_gauges_are_left_out() -> None:
    found = {each.name: each for each in families_of(Snapshot("broker", INFO, {}, {}))}
    assert found["logboom_produced_messages"].samples[0].value == 0
    directions = {sample.labels["direction"] for sample in found["logboom_isr_changes"].samples}
    assert directions == {"expand", "shrink"}
    assert found["logboom_hold_seconds"].samples[-1].value == 0
    assert "logboom_replicas" not in found
    assert "logboom_failures" not in found


def test_a_user_with_a_full_stop_in_the_name_is_no_label() -> None:
    figures: FigureTable = {
        "throttle_ms.alice.b": 7,
        "failures": 3,
        "disk_bytes": 9,
        "disk_bytes.used": 4,
    }
    found = {each.name: each for each in families_of(Snapshot("broker", INFO, figures, {}))}
    assert "logboom_failures" not in found
    (used,) = found["logboom_disk_bytes"].samples
    assert (used.labels, used.value) == ({"kind": "used"}, 4)


@given(st.lists(st.floats(0, 1000), max_size=50))
def test_buckets_are_cumulative_and_bounds_hold(durations: list[float]) -> None:
    stats = Statistics()
    for duration in durations:
        stats.histograms["hold"].add(duration)
    snapshot = Snapshot("broker", INFO, {}, stats.histograms)
    family = next(each for each in families_of(snapshot) if each.name == "logboom_hold_seconds")
    buckets = [each for each in family.samples if each.name.endswith("_bucket")]
    assert len(buckets) == 12
    counts = [each.value for each in buckets]
    assert counts == sorted(counts)
    assert counts[-1] == len(durations)
    for each in buckets:
        bound = float(each.labels["le"])
        if bound == float("inf"):
            continue
        # A duration at a bound belongs to the next bucket.
        assert each.value == sum(int(d * 100_000) < round(bound * 100_000) for d in durations)
    total = next(each.value for each in family.samples if each.name.endswith("_sum"))
    assert total == pytest.approx(sum(durations))
    assert float(buckets[-2].labels["le"]) == pytest.approx(BOUNDS_MS[-1] / 1000)
