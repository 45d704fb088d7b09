"""Dashboards, alerts and scrape jobs: they name what is exported, and Prometheus takes them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from logboom.cli.app import build
from logboom.console.observability.alert_rules import ALERTS, rules_file
from logboom.console.observability.dashboard_panels import DASHBOARDS, Dashboard
from logboom.console.observability.grafana_dashboards import (
    SCHEMA_VERSION,
    WIDTH,
    dashboard_json,
    dashboard_model,
    narrowed,
)
from logboom.console.observability.scrape_config import ScrapeTargets, scrape_file, target_of
from logboom.wire.metric_table import METRICS, PREFIX
from tests.promtool import promtool

RUNBOOKS = Path(__file__).parents[3] / "docs" / "RUNBOOKS.md"
OF_PROMETHEUS = {"cluster", "instance", "job", "le"}
"""Labels that Prometheus and its histograms add."""


def wrong_names(expression: str) -> list[str]:
    """What an expression names that nobody exports: metrics, and labels of theirs."""
    found = []
    for name, _, inside in re.findall(rf"({PREFIX}\w+)(\{{([^}}]*)\}})?", expression):
        plain = name.removeprefix(PREFIX)
        base = re.sub(r"_(bucket|sum|count)$", "", plain)
        metric = METRICS.get(plain) or METRICS.get(base)
        if metric is None or (metric.kind == "histogram") != (plain != base):
            found.append(name)
            continue
        labels = {*metric.labels, *OF_PROMETHEUS}
        found += [
            f"{name}{{{label}}}"
            for label in re.findall(r"(\w+)\s*[=!]~?", inside)
            if label not in labels
        ]
    return found


def queries(dashboard: Dashboard) -> list[str]:
    return [
        query.expression
        for row in dashboard.rows
        for panel in row.panels
        for query in panel.queries
    ]


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("sum(logboom_moves)", []),
        ("sum(logboom_movies)", ["logboom_movies"]),
        ("rate(logboom_sync_seconds_bucket[5m])", []),
        ("rate(logboom_sync_seconds[5m])", ["logboom_sync_seconds"]),
        ("logboom_moves_bucket", ["logboom_moves_bucket"]),
        ('logboom_moves{state="x", cluster=~"y"}', []),
        ('logboom_moves{stat="x"}', ["logboom_moves{stat}"]),
    ],
)
def test_names_that_nobody_exports_are_seen(expression: str, wrong: list[str]) -> None:
    assert wrong_names(expression) == wrong


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_names_what_is_exported(alert: Any) -> None:
    assert wrong_names(alert.expression) == []
    assert PREFIX in alert.expression
    assert len(alert.summary) < 130
    assert not alert.summary.endswith(".")
    assert alert.description.endswith(".")


def test_there_are_sixteen_alerts_each_with_a_runbook() -> None:
    assert len({each.name for each in ALERTS}) == len(ALERTS) == 16
    sections = re.findall(r"^## (\w+)$", RUNBOOKS.read_text("utf-8"), re.MULTILINE)
    assert sections == [each.name for each in ALERTS]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_names_what_is_exported(name: Any) -> None:
    for expression in queries(DASHBOARDS[name]):
        assert wrong_names(expression) == []
        assert wrong_names(narrowed(expression)) == []


def test_every_metric_of_the_exporter_is_shown_somewhere_or_is_about_itself() -> None:
    shown = " ".join(each for dashboard in DASHBOARDS.values() for each in queries(dashboard))
    shown += " ".join(each.expression for each in ALERTS)
    hidden = {
        name
        for name, metric in METRICS.items()
        if "cluster" in metric.of and not re.search(rf"{PREFIX}{name}\b", shown)
    }
    assert hidden <= {
        "exporter_errors_total",
        "exporter_sample_seconds",
        "series_dropped",
    }


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_can_be_imported_anywhere(name: Any) -> None:
    dashboard = DASHBOARDS[name]
    model = json.loads(dashboard_json(dashboard))
    assert model == dashboard_model(dashboard)
    assert model["id"] is None
    assert model["schemaVersion"] == SCHEMA_VERSION
    ids = [panel["id"] for panel in model["panels"]]
    assert len(set(ids)) == len(ids)
    sources = set(re.findall(r'"uid": "([^"]*)"', dashboard_json(dashboard)))
    assert sources == {"${datasource}", dashboard.uid}
    variables = {each["name"] for each in model["templating"]["list"]}
    used = set(re.findall(r"\$(\w+)", " ".join(map(narrowed, queries(dashboard)))))
    assert used <= variables | {"__rate_interval"}
    taken: set[tuple[int, int]] = set()
    for panel in model["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
        refs = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(refs)) == len(refs)


def test_dashboards_have_names_of_their_own() -> None:
    every = list(DASHBOARDS.values())
    assert len({each.uid for each in every}) == len({each.title for each in every}) == 5


def test_prometheus_takes_the_alerts(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules_file("https://example.com/RUNBOOKS.md"))
    promtool("check", "rules", tmp_path / "rules.yml")


def test_prometheus_takes_every_query_of_a_dashboard(tmp_path: Path) -> None:
    lines = ["groups:", "  - name: panels", "    rules:"]
    number = 0
    for dashboard in DASHBOARDS.values():
        for expression in queries(dashboard):
            filled = narrowed(expression).replace("$__rate_interval", "1m")
            lines += [f"      - record: panel:{number}", f"        expr: {json.dumps(filled)}"]
            number += 1
    (tmp_path / "rules.yml").write_text("\n".join(lines) + "\n")
    promtool("check", "rules", tmp_path / "rules.yml")
    assert number > 80


@pytest.mark.parametrize("rules", ["", "rules.yml"])
def test_prometheus_takes_the_scrape_jobs(tmp_path: Path, rules: str) -> None:
    targets = ScrapeTargets(
        ["10.0.0.1:8711", "[::1]:8712"], ["10.0.0.1:8701"], ["127.0.0.1:9712"], ["a remark"]
    )
    text = scrape_file(targets, 'the "first"', rules)
    assert "# a remark" in text
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / "rules.yml").write_text(rules_file())
    promtool("check", "config", tmp_path / "prometheus.yml")


@pytest.mark.parametrize(
    ("address", "endpoint", "target"),
    [
        ("127.0.0.1:8711", "10.0.0.1:7711", "127.0.0.1:8711"),
        ("0.0.0.0:8711", "10.0.0.1:7711", "10.0.0.1:8711"),
        ("[::]:8711", "[fd00::1]:7711", "[fd00::1]:8711"),
        ("10.9.9.9:1", "10.0.0.1:7711", "10.9.9.9:1"),
    ],
)
def test_a_node_that_listens_everywhere_is_found_at_its_endpoint(
    address: str, endpoint: str, target: str
) -> None:
    assert target_of(address, endpoint) == target


def printed_commands() -> list[str]:
    """The commands of the runbooks and of the chapter about monitoring."""
    chapter = (RUNBOOKS.parent / "OPERATING.md").read_text("utf-8")
    chapter = chapter.split("## Watching the cluster\n")[1].split("\n## ")[0]
    found = []
    for text in (RUNBOOKS.read_text("utf-8"), chapter):
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            found += [
                line.split(" #")[0].strip()
                for line in block.replace("\\\n", " ").splitlines()
                if line.startswith("logboom ")
            ]
    return sorted(set(found))


@pytest.mark.parametrize("command", printed_commands())
def test_a_printed_command_exists_with_its_options(command: str) -> None:
    words = shlex.split(command)[1:]
    build(words).parse_args(words, exit_on_error=False, print_error=False)
