"""Dashboards as Grafana imports them: JSON from the table of panels; pure.

The data source is a variable, so a dashboard can be imported anywhere, and no numeric id of a
Grafana is written. `uid` is fixed, so that to import a later version replaces the earlier one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from logboom.console.observability.dashboard_panels import (
    Dashboard,
    Panel,
    Threshold,
    Variable,
)
from logboom.wire.metric_table import PREFIX

SCHEMA_VERSION: Final = 39
"""Schema of dashboards, of Grafana 10.4 and later; newer ones migrate it."""
WIDTH: Final = 24
"""Columns of a dashboard."""
STAT_WIDTH: Final = 3
GRAPH_WIDTH: Final = 8
STAT_HEIGHT: Final = 4
GRAPH_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_SELECTOR: Final = re.compile(rf"\b({PREFIX}\w+)(\{{([^}}]*)\}})?")
_COLORS: Final[dict[Threshold, list[dict[str, Any]]]] = {
    "": [{"color": "blue", "value": None}],
    "zero": [{"color": "green", "value": None}, {"color": "red", "value": 1e-9}],
    "one": [
        {"color": "red", "value": None},
        {"color": "green", "value": 1},
        {"color": "red", "value": 1.000001},
    ],
}


def narrowed(expression: str) -> str:
    """Return an expression whose every selector is narrowed to the chosen cluster."""
    return _SELECTOR.sub(
        lambda found: f'{found[1]}{{cluster=~"$cluster"{", " + found[3] if found[3] else ""}}}',
        expression,
    )


def dashboard_json(dashboard: Dashboard) -> str:
    """Return a dashboard as a JSON file."""
    return json.dumps(dashboard_model(dashboard), indent=2, ensure_ascii=False) + "\n"


def dashboard_model(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana's model of it."""
    cluster = Variable("cluster", "logboom_start_time_seconds", "cluster")
    return {
        "annotations": {"list": []},
        "editable": True,
        "graphTooltip": 1,
        "id": None,
        "links": [
            {
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
                "tags": ["logboom"],
                "title": "logboom",
                "type": "dashboards",
            }
        ],
        "panels": list(_panels(dashboard)),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["logboom"],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                    "refresh": 1,
                },
                _variable(cluster, narrow=False),
                *(_variable(each, narrow=True) for each in dashboard.variables),
            ]
        },
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "title": dashboard.title,
        "uid": dashboard.uid,
        "version": 1,
    }


def _variable(variable: Variable, *, narrow: bool) -> dict[str, Any]:
    metric = narrowed(variable.metric) if narrow else variable.metric
    query = f"label_values({metric}, {variable.label})"
    return {
        "name": variable.name,
        "label": variable.name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        # Also where no `cluster` is set: an empty label matches.
        "allValue": ".*",
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Yield rows and panels, each with an id and its place."""
    number, top = 0, 0
    for row in dashboard.rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
        }
        top += 1
        left = height = 0
        for panel in row.panels:
            number += 1
            stat = panel.kind == "stat"
            width = STAT_WIDTH if stat else GRAPH_WIDTH
            if left + width > WIDTH or (height and height != _height(panel)):
                left, top = 0, top + height
            height = _height(panel)
            place = {"x": left, "y": top, "w": width, "h": height}
            yield _panel(panel, number, place)
            left += width
        top += height


def _height(panel: Panel) -> int:
    return STAT_HEIGHT if panel.kind == "stat" else GRAPH_HEIGHT


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "datasource": _SOURCE,
            "editorMode": "code",
            "expr": narrowed(query.expression),
            "legendFormat": query.legend or "__auto",
            "range": True,
            "refId": chr(ord("A") + index),
        }
        for index, query in enumerate(panel.queries)
    ]
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.kind == "stat":
        options = {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": None if panel.unit in ("cps", "Bps", "dateTimeAsIso") else 0,
                "thresholds": {"mode": "absolute", "steps": _COLORS[panel.threshold]},
            },
            "overrides": [],
        },
        "gridPos": place,
        "options": options,
        "targets": targets,
    }
