"""The table of metrics keeps the rules of Prometheus for names, units and labels."""

import re

from logboom.wire.metric_table import METRICS, metrics_of

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
OF_OBJECTS = {"topic", "queue", "group", "subscription", "user"}
"""Labels with as many values as users make objects."""


def test_names_tell_their_kind_and_unit() -> None:
    for name, metric in METRICS.items():
        assert name == metric.name
        assert NAME.fullmatch(name), name
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert name.endswith("_info") == (metric.kind == "info"), name
        bare = name.removesuffix("_total")
        assert not metric.unit or bare.endswith(f"_{metric.unit}"), name
        for unit in ("seconds", "bytes", "ratio"):
            assert metric.unit == unit or not bare.endswith(f"_{unit}"), name
        # The kinds that expositions derive from a name are not part of it.
        assert not bare.endswith(("_count", "_sum", "_bucket", "_created")), name


def test_help_is_one_sentence() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[A-Z0-9][^\n]*[^.\n]", metric.help), name


def test_nodes_have_no_label_with_unbounded_values() -> None:
    for name, metric in METRICS.items():
        assert metric.of, name
        if metric.of != {"cluster"}:
            assert not OF_OBJECTS & {*metric.labels}, name
            assert metric.kind == "info" or len(metric.labels) <= 1, name
            assert metric.figure or metric.kind == "info", name


def test_no_figure_is_told_twice_by_one_kind_of_node() -> None:
    for source in ("broker", "name-server"):
        figures = [metric.figure for metric in metrics_of(source) if metric.figure]
        assert len(figures) == len({*figures})


def test_no_two_metrics_are_one_family() -> None:
    """OpenMetrics leaves `_total` and `_info` out of the name of a family."""
    families = [name.removesuffix("_total").removesuffix("_info") for name in METRICS]
    assert len(families) == len({*families})
