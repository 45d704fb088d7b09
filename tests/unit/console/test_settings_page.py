"""Settings of the cluster and of nodes, and log levels."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client.results import NodeConfig
from logboom.console.pages.settings_page import (
    build_node_settings,
    build_settings,
    shown_value,
)
from logboom.console.widgets.page_query import PageQuery
from logboom.wire.errors import Unavailable
from logboom.wire.messages import ConfigEntry
from logboom.wire.settings import SETTINGS
from logboom.wire.view import SettingView

QUERY = PageQuery("/settings")
MOVE = ConfigEntry("move_bytes_per_s", "5242880", "0", "node", False, "bytes per second", "Fast.")
LISTEN = ConfigEntry("listen", "127.0.0.1:7711", "", "file", True)
NODES = [
    NodeConfig("broker-1", "broker", [MOVE, LISTEN]),
    NodeConfig("broker-2", "broker", [], "no answer in 2 s"),
]
ROWS = [
    SettingView("", "move_bytes_per_s", "20971520"),
    SettingView("broker-1", "move_bytes_per_s", "5242880"),
    SettingView("", "log_level.metadata", "debug"),
    SettingView("broker-1", "log_level.nodes", "warning"),
]


def by_name(rows: Any, of: str = "setting") -> dict[str, Any]:
    return {row.source[of]: row.source for row in rows}


def test_every_setting_of_the_cluster_has_a_row_with_its_source() -> None:
    model = build_settings(ROWS, NODES, QUERY)
    rows = by_name(model.settings.rows)
    assert set(rows) == set(SETTINGS) - {"log_level"}
    moved = rows["move_bytes_per_s"]
    assert (moved["shown"], moved["source"], moved["default"]) == ("20.0 MiB/s", "cluster", "0 B/s")
    assert moved["own"] == "broker-1: 5.0 MiB/s (node)"
    assert rows["balance_mode"]["source"] == "default"
    assert model.notices[0].text == "broker-2 does not answer: no answer in 2 s"


def test_a_logger_has_the_level_of_the_one_above_it() -> None:
    levels = by_name(build_settings(ROWS, NODES, QUERY).levels.rows, "logger")
    assert (levels["metadata"]["shown"], levels["metadata"]["source"]) == ("debug", "cluster")
    assert (levels["metadata.raft"]["shown"], levels["metadata.raft"]["source"]) == (
        "debug",
        "as metadata",
    )
    assert (levels["nodes.disk"]["shown"], levels["nodes.disk"]["source"]) == ("info", "default")


def test_a_node_goes_by_its_own_values_first() -> None:
    model = build_node_settings(NODES[0], ROWS, PageQuery("/settings/broker-1"))
    assert [row.source["setting"] for row in model.live.rows] == ["move_bytes_per_s"]
    assert model.live.rows[0].source["is_set"]
    assert [row.source["setting"] for row in model.file.rows] == ["listen"]
    levels = by_name(model.levels.rows, "logger")
    assert (levels["nodes.disk"]["shown"], levels["nodes.disk"]["source"]) == (
        "warning",
        "as nodes",
    )
    assert levels["nodes"]["is_set"]
    assert not levels["metadata"]["is_set"]


def test_a_node_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(Unavailable, match="broker-2 does not answer"):
        build_node_settings(NODES[1], ROWS, QUERY)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        ("8388608", "bytes per second", "8.0 MiB/s"),
        ("1073741824", "bytes", "1.0 GiB"),
        ("900", "seconds", "15 min"),
        ("0", "seconds", "0 s"),
        ("5000", "milliseconds", "5.0 s"),
        ("5", "percent", "5 %"),
        ("25000", "messages per second", "25,000 messages per second"),
        ("15", "", "15"),
        ("continuous", "", "continuous"),
    ],
)
def test_values_are_shown_with_their_unit(value: str, unit: str, text: str) -> None:
    assert shown_value(value, unit) == text
