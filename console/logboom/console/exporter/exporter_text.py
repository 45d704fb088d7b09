"""Metric families as text: the Prometheus format, or OpenMetrics where the client accepts it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import Metric as ExposedMetric
from prometheus_client.exposition import choose_encoder

from logboom.console.exporter.exporter_families import Labels
from logboom.wire.metric_table import METRICS, PREFIX

END: bytes = b"# EOF\n"
"""The last line of OpenMetrics."""


class Exposition(NamedTuple):
    """An answer to a scrape."""

    text: bytes
    content_type: str


def exposed_families(
    families: Mapping[str, Mapping[Labels, float]],
) -> Iterator[ExposedMetric]:
    """Yield families as prometheus_client has them."""
    for name, series in families.items():
        described = METRICS[name]
        full = PREFIX + name
        family = ExposedMetric(
            full.removesuffix("_total"), described.help, described.kind, described.unit
        )
        for labels, value in series.items():
            family.add_sample(full, dict(zip(described.labels, labels, strict=True)), value)
        yield family


class _Collected:
    """Families as the encoders of prometheus_client take them."""

    def __init__(self, families: Mapping[str, Mapping[Labels, float]]) -> None:
        self._families = families

    def collect(self) -> Iterator[ExposedMetric]:
        """Yield the families."""
        return exposed_families(self._families)


def expose(families: Mapping[str, Mapping[Labels, float]], accept: str = "") -> Exposition:
    """Return families in the format that a client accepts."""
    try:
        encode, content_type = choose_encoder(accept)
    # The header is whatever a stranger sends, and the library parses its versions.
    except Exception:  # noqa: BLE001 - the plain format is for everybody
        encode, content_type = choose_encoder("")
    return Exposition(encode(_Collected(families)), content_type)


def join_expositions(first: Exposition, second: Exposition) -> Exposition:
    """Return two expositions of one format as one."""
    return Exposition(first.text.removesuffix(END) + second.text, second.content_type)
