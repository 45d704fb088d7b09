"""The settings that count while the cluster runs, those of each node, and log levels; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.results import NodeConfig
from logboom.client.written_values import bytes_text
from logboom.console.pages.brokers_page import PageNotice
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.formats import span_text
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.errors import Unavailable
from logboom.wire.messages import ConfigEntry
from logboom.wire.settings import (
    CLUSTER_SCOPE,
    LOG_LEVEL,
    LOGGERS,
    SETTINGS,
    find_setting,
    value_text,
)
from logboom.wire.view import SettingView

SOURCE_TONES: Final[dict[str, Tone]] = {"node": "info", "cluster": "info", "file": ""}


@dataclass(frozen=True, slots=True)
class ClusterSettingsModel:
    """The settings of the cluster."""

    notices: tuple[PageNotice, ...]
    settings: TableModel
    levels: TableModel
    nodes: tuple[tuple[str, str, str], ...]
    """Node, role and link."""


@dataclass(frozen=True, slots=True)
class NodeSettingsModel:
    """The settings of one node."""

    node: str
    role: str
    live: TableModel
    """What can be changed while it runs."""
    file: TableModel
    """What its config file says, which it reads when it starts."""
    levels: TableModel


def _source_tone(row: Row) -> Tone:
    return SOURCE_TONES.get(row["source"], "")


COLUMNS: Final = (
    TableColumn("setting", "Setting", "code"),
    TableColumn("shown", "Value", "code"),
    TableColumn("source", "Set by", "badge", tone=_source_tone, hint="Where the value comes from"),
    TableColumn("default", "Default", "code"),
    TableColumn("own", "Other values", hint="Nodes that go by another value"),
    TableColumn("help", "What it does", wide_only=True),
)
NODE_COLUMNS: Final = (*COLUMNS[:4], COLUMNS[5])
FILE_COLUMNS: Final = NODE_COLUMNS
LEVEL_COLUMNS: Final = (
    TableColumn("logger", "Logger", "code"),
    TableColumn(
        "shown", "Level", "badge", tone=lambda row: "warning" if row["shown"] == "debug" else ""
    ),
    TableColumn("source", "Set by", "badge", tone=_source_tone),
)


def build_settings(
    rows: Sequence[SettingView], nodes: Sequence[NodeConfig], query: PageQuery
) -> ClusterSettingsModel:
    """Return the page of the cluster that a URL asks for."""
    own: dict[str, list[str]] = {}
    for node in nodes:
        for entry in node.entries:
            if not entry.restart and entry.source in ("file", "node"):
                own.setdefault(entry.name, []).append(
                    f"{node.node}: {shown_value(entry.value, entry.unit)} ({entry.source})"
                )
    of_cluster = {row.name: row.value for row in rows if row.scope == CLUSTER_SCOPE}
    settings = [
        _cluster_row(name, of_cluster.get(name), own.get(name, ()))
        for name in SETTINGS
        if name != LOG_LEVEL
    ]
    notices = [
        PageNotice(f"{each.node} does not answer: {each.error}", "warning")
        for each in nodes
        if each.error
    ]
    return ClusterSettingsModel(
        notices=tuple(notices),
        settings=build_table(COLUMNS, settings, query, title="Settings of the cluster"),
        levels=_levels(of_cluster, {}, own, query),
        nodes=tuple(
            (each.node, each.role, path_of("settings", each.node))
            for each in sorted(nodes, key=lambda each: (each.role, each.node))
        ),
    )


def _cluster_row(name: str, value: str | None, own: Sequence[str]) -> dict[str, Any]:
    setting = find_setting(name)
    default = value_text(setting.default)
    now = default if value is None else value
    return {
        "setting": name,
        "value": now,
        "shown": shown_value(now, setting.unit),
        "unit": setting.unit,
        "source": "default" if value is None else "cluster",
        "default": shown_value(default, setting.unit),
        "own": "; ".join(own),
        "per_node": setting.per_node,
        "allowed": setting.allowed(),
        "help": setting.help,
        "is_set": value is not None,
        "scope": "",
    }


def build_node_settings(
    found: NodeConfig, rows: Sequence[SettingView], query: PageQuery
) -> NodeSettingsModel:
    """Return the page of one node.

    Raises:
        Unavailable: it does not answer.
    """
    if found.error:
        raise Unavailable(f"{found.node} does not answer: {found.error}")
    of_node = {row.name: row.value for row in rows if row.scope == found.node}
    of_cluster = {row.name: row.value for row in rows if row.scope == CLUSTER_SCOPE}
    entries = [each for each in found.entries if not _is_level(each.name)]
    live = [_node_row(each, found.node, of_node) for each in entries if not each.restart]
    fixed = [_node_row(each, found.node, of_node) for each in entries if each.restart]
    return NodeSettingsModel(
        node=found.node,
        role=found.role,
        live=build_table(
            NODE_COLUMNS,
            live,
            query,
            title="Counts at once",
            empty="This node has no settings that can be changed while it runs.",
        ),
        file=build_table(
            FILE_COLUMNS,
            fixed,
            query,
            name="file",
            title="Of its config file: a change needs a restart",
        ),
        levels=_levels(of_cluster, of_node, {}, query, node=found.node),
    )


def _is_level(name: str) -> bool:
    return name == LOG_LEVEL or name.startswith(f"{LOG_LEVEL}.")


def _node_row(entry: ConfigEntry, node: str, of_node: dict[str, str]) -> dict[str, Any]:
    setting = SETTINGS.get(entry.name)
    return {
        "setting": entry.name,
        "value": entry.value,
        "shown": shown_value(entry.value, entry.unit),
        "unit": entry.unit,
        "source": entry.source,
        "default": shown_value(entry.default, entry.unit),
        "per_node": setting is not None and setting.per_node,
        "help": entry.help,
        "is_set": entry.name in of_node,
        "scope": node,
        "restart": entry.restart,
    }


def shown_value(value: str, unit: str) -> str:
    """Return a value with its unit: 8388608 of bytes per second as 8.0 MiB/s."""
    try:
        number = float(value)
    except ValueError:
        return value
    match unit:
        case "bytes" | "bytes per second":
            text = bytes_text(number)
            return f"{text}/s" if unit.endswith("second") else text
        case "milliseconds":
            return span_text(number)
        case "seconds":
            return span_text(number * 1000) if number else "0 s"
        case "percent":
            return f"{value} %"
        case "":
            return value
        case _:
            return f"{number:,.0f} {unit}" if number.is_integer() else f"{value} {unit}"


def _levels(
    of_cluster: dict[str, str],
    of_node: dict[str, str],
    own: dict[str, list[str]],
    query: PageQuery,
    node: str = "",
) -> TableModel:
    """Return the table of log levels; a logger without its own has that of the one above it."""
    rows: list[dict[str, Any]] = []
    for name in (LOG_LEVEL, *(f"{LOG_LEVEL}.{logger}" for logger in LOGGERS)):
        source = "node" if name in of_node else ("cluster" if name in of_cluster else "")
        level = of_node.get(name) or of_cluster.get(name)
        if level is None:
            level, source = _inherited(name, of_cluster, of_node)
        rows.append(
            {
                "setting": name,
                "logger": name.removeprefix(f"{LOG_LEVEL}.") if name != LOG_LEVEL else "all",
                "shown": level,
                "value": level,
                "source": source,
                "own": "; ".join(own.get(name, ())),
                "is_set": name in (of_node if node else of_cluster),
                "scope": node,
            }
        )
    return build_table(LEVEL_COLUMNS, rows, query, name="levels", title="Log levels")


def _inherited(name: str, of_cluster: dict[str, str], of_node: dict[str, str]) -> tuple[str, str]:
    """Return the level that a logger has from one above it, and which that is."""
    while name != LOG_LEVEL:
        name = name.rpartition(".")[0]
        level = of_node.get(name) or of_cluster.get(name)
        if level is not None:
            return level, f"as {name.removeprefix(f'{LOG_LEVEL}.') if name != LOG_LEVEL else 'all'}"
    return value_text(SETTINGS[LOG_LEVEL].default), "default"
