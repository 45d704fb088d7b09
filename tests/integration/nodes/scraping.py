"""Asking a node's metrics port as Prometheus and probes do, and strict reading of the answers."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
from typing import Any

from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from logboom.deploy.polling import ask_until
from logboom.wire.metric_table import MAX_NODE_SERIES, METRICS, PREFIX, MetricSource, metrics_of

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PROMTOOL = "apt-get install -y prometheus"


def ask(
    endpoint: str, path: str, *, method: str = "GET", timeout_s: float = 60.0, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a request; return status, head and body."""
    connection = http.client.HTTPConnection(endpoint, timeout=timeout_s)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def health(endpoint: str, path: str) -> tuple[int, dict[str, Any]]:
    """Ask a probe; return status and report."""
    status, head, body = ask(endpoint, path)
    assert head["Content-Type"] == "application/json"
    found = json.loads(body)
    assert (status == 200) == (found["status"] == "ok") == (not found["reasons"]), found
    return status, found


def scrape(endpoint: str, accept: str = "") -> tuple[str, str]:
    """Return the content type and the text of a node's metrics."""

    # A busy node says that it cannot tell them within five seconds, or that others are being told.
    def told() -> tuple[int, dict[str, str], bytes]:
        return ask(endpoint, "/metrics", Accept=accept)

    status, head, body = ask_until(told, lambda answer: answer[0] == 200, 200.0)
    assert status == 200, body
    return head["Content-Type"], body.decode()


def families(endpoint: str, source: MetricSource) -> dict[str, Family]:
    """Scrape a node in both formats, check what it tells against the table, and return it."""
    kind, text = scrape(endpoint)
    assert kind.startswith("text/plain; version=0.0.4")
    told = {family.name: family for family in parse_text(text)}
    kind, text = scrape(endpoint, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    # The library has no type for it.
    strict = parse_openmetrics(text)  # type: ignore[no-untyped-call] # see above
    found = {family.name: family for family in strict}
    check_documented(found, source)
    # The plain format has no infos and names counters otherwise, but the same samples.
    names, same = (
        {sample.name for family in each.values() for sample in family.samples}
        for each in (told, found)
    )
    assert names ^ same <= {PREFIX + name for name in MAY_LACK}, names ^ same
    assert sum(len(family.samples) for family in found.values()) <= MAX_NODE_SERIES
    return found


def check_documented(found: dict[str, Family], source: MetricSource) -> None:
    """Fail on metrics that the table lacks, on those that are missing, and on other kinds."""
    expected = {}
    for metric in metrics_of(source):
        base = metric.name.removesuffix("_total").removesuffix("_info")
        expected[PREFIX + base] = metric
    assert set(found) <= set(expected), "a metric that is not in the table"
    for name, family in found.items():
        metric = expected[name]
        assert family.documentation == metric.help
        assert family.type == metric.kind
        assert family.unit == metric.unit
        for sample in family.samples:
            labels = set(sample.labels) - {"le"}
            assert labels == set(metric.labels), sample
    missing = {
        each.name for name, each in expected.items() if name not in found and not _may_lack(each)
    }
    assert missing == set(), missing


MAY_LACK = {"failures_total", "key_expiry_timestamp_seconds"}
"""Metrics without a series as long as nothing has happened that they tell of."""


def _may_lack(metric: Any) -> bool:
    assert set(METRICS) >= MAY_LACK
    return metric.name in MAY_LACK


def value(found: dict[str, Family], name: str, suffix: str = "", **labels: str) -> float:
    """Return a series' value; `suffix` is "_count" or "_sum" for a histogram."""
    family = found[PREFIX + name.removesuffix("_total")]
    for sample in family.samples:
        if sample.name == PREFIX + name + suffix and sample.labels == labels:
            return sample.value
    raise AssertionError(f"no series {name}{suffix} {labels}: {family.samples}")


def check_with_promtool(text: str) -> None:
    """Let Prometheus' own tool read and lint an exposition."""
    tool = shutil.which("promtool")
    if tool is None:
        assert not os.environ.get("CI"), f"promtool is missing: {PROMTOOL}"
        sys.stderr.write(f"\npromtool is missing, so its check is left out: {PROMTOOL}\n")
        return
    done = subprocess.run(
        [tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
