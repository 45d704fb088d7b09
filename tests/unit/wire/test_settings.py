"""Settings of a running cluster: what is allowed, and whose value counts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from logboom.metadata.config import NameServerConfig
from logboom.nodes.config import BrokerConfig
from logboom.wire.errors import InvalidRequest
from logboom.wire.event_log import logger_name
from logboom.wire.event_table import EVENTS
from logboom.wire.log_levels import LogLevels
from logboom.wire.settings import (
    LEVELS,
    LOG_LEVEL,
    LOGGERS,
    SETTINGS,
    LiveSettings,
    check_values,
    find_setting,
)
from tests.test_tidy import modules
from tests.unit.wire.event_sources import written_by

CONFIG = BrokerConfig(id="broker-1", name_servers=["a:1"])


@pytest.mark.parametrize("config", [BrokerConfig, NameServerConfig])
def test_a_default_is_the_same_in_a_config_file(config: type[msgspec.Struct]) -> None:
    fields = {each.name: each.default for each in msgspec.structs.fields(config)}
    shared = SETTINGS.keys() & fields.keys()
    assert shared
    assert {n: SETTINGS[n].default for n in shared} == {n: fields[n] for n in shared}


def test_the_live_settings_have_an_attribute_of_the_right_type_for_each() -> None:
    kinds: dict[str, type] = {"whole": int, "number": float, "choice": str}
    assert get_type_hints(LiveSettings) == {n: kinds[s.kind] for n, s in SETTINGS.items()}
    live = LiveSettings("broker-1")
    for name, setting in SETTINGS.items():
        assert getattr(live, name) == setting.default
        assert type(setting.default) is kinds[setting.kind]
        assert setting.parse(str(setting.default)) == setting.default


def test_every_logger_of_a_node_has_a_name_that_can_be_set() -> None:
    used = {
        name
        for portion in ("wire", "metadata", "nodes")
        for source in modules(portion).values()
        for name in re.findall(r"getLogger\(\s*\"logboom\.([^\"]+)\"", source)
    }
    used |= {
        logger_name(event, kind).removeprefix("logboom.")
        for event in EVENTS.values()
        for kind in ("broker", "name-server")
        if written_by(event, kind) and event.logger
    }
    assert used
    unreached = {n for n in used if not any(f"{n}.".startswith(f"{part}.") for part in LOGGERS)}
    idle = {part for part in LOGGERS if not any(f"{n}.".startswith(f"{part}.") for n in used)}
    assert (unreached, idle - {"client"}) == (set(), set())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("move_bytes", "move_bytes_per_s"),
        ("scrub_bytes", "scrub_bytes_per_s"),
        ("balance-mode", "balance_mode"),
        ("log_level.node", "log_level.nodes"),
        ("log_level.metadata.raft.x", "log_level.metadata.raft"),
        ("log_level.", "log_level"),
        ("zzz", "config list"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(nearest)):
        find_setting(name)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("move_bytes_per_s", "fast", "a whole number of bytes per second from 0 on"),
        ("move_bytes_per_s", "-1", "from 0 on"),
        ("move_bytes_per_s", "1.5", "a whole number"),
        ("move_bytes_per_s", str(2**53 + 1), "a whole number"),
        ("move_bytes_per_s", "9" * 400, "a whole number"),
        ("replica_delete_grace_s", "1e308", "a number of seconds"),
        ("replace_after_s", "nan", "a number of seconds"),
        ("replace_after_s", "inf", "a number of seconds"),
        ("disk_reserve_percent", "100", "from 0 to 99"),
        ("balance_mode", "on", "off, new-broker, continuous"),
        ("log_level.nodes", "loud", "debug, info, warning, error"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        check_values("", {name: text})


def test_a_change_is_stored_in_one_form() -> None:
    values = {"replace_after_s": " 900.0", "half_checks": "007", "balance_mode": None}
    assert check_values("", values) == {
        "replace_after_s": "900",
        "half_checks": "7",
        "balance_mode": None,
    }
    with pytest.raises(InvalidRequest, match="no setting was given"):
        check_values("", {})


def test_what_counts_for_the_cluster_is_not_set_for_a_node() -> None:
    assert check_values("broker-1", {"move_bytes_per_s": "5"}) == {"move_bytes_per_s": "5"}
    with pytest.raises(InvalidRequest, match="whole cluster"):
        check_values("broker-1", {"balance_mode": "off"})
    live = LiveSettings("broker-1")
    live.follow([("broker-1", "balance_mode", "off")])
    assert live.balance_mode == "new-broker"


def test_a_nodes_value_wins_over_the_clusters_the_files_and_the_default() -> None:
    live = LiveSettings("broker-1", msgspec.structs.replace(CONFIG, scrub_bytes_per_s=1))
    rows = [
        ("broker-1", "scrub_bytes_per_s", "3"),
        ("", "scrub_bytes_per_s", "2"),
        ("broker-2", "scrub_bytes_per_s", "9"),
    ]
    seen: list[tuple[Any, str]] = []
    for known in (rows, rows[1:], rows[2:], []):
        live.follow(known)
        seen.append((live.scrub_bytes_per_s, live.sources["scrub_bytes_per_s"]))
    assert seen == [(3, "node"), (2, "cluster"), (1, "file"), (1, "file")]
    assert live.sources["half_checks"] == "default"


def test_what_a_newer_release_has_set_is_left_alone() -> None:
    live = LiveSettings("broker-1")
    live.follow(
        [("", "sparkle", "yes"), ("", "log_level", "shiny"), ("", "balance_mode", "by-mood")]
    )
    assert (live.balance_mode, live.log_level) == ("new-broker", "info")
    assert live.logger_levels == {}


@pytest.fixture(name="levels")
def _levels() -> Iterator[LogLevels]:
    levels = LogLevels()
    yield levels
    levels.follow({})


def test_levels_of_loggers_follow_and_are_taken_back(levels: LogLevels) -> None:
    live = LiveSettings("name-1")
    rows = [
        ("", LOG_LEVEL, "warning"),
        ("name-1", "log_level.metadata.raft", "debug"),
        ("name-2", "log_level.metadata", "error"),
    ]
    live.follow(rows)
    assert live.logger_levels == {"logboom": "warning", "logboom.metadata.raft": "debug"}
    levels.follow(live.logger_levels)
    below = logging.getLogger("logboom.metadata.raft.raft")
    other = logging.getLogger("logboom.metadata.state")
    assert (below.getEffectiveLevel(), other.getEffectiveLevel()) == (10, 30)
    live.follow(rows[:1])
    levels.follow(live.logger_levels)
    assert below.getEffectiveLevel() == logging.WARNING
    live.follow([])
    levels.follow(live.logger_levels)
    assert logging.getLogger("logboom").level == logging.NOTSET
    assert {level.upper() for level in LEVELS} <= logging.getLevelNamesMapping().keys()


def test_every_setting_stands_in_the_table_of_the_operators() -> None:
    text = Path("docs/OPERATING.md").read_text(encoding="utf-8")
    chapter = text.split("## Settings while the cluster runs\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in chapter.splitlines() if line.startswith("| `")]
    told: dict[str, tuple[str, bool]] = {}
    for names, of, scopes in rows:
        node = "a node" in scopes
        told |= dict.fromkeys(re.findall(r"`([a-z_]+)`", names), (of, node))
    nodes = {(True, False): "brokers", (False, True): "name servers", (True, True): "all nodes"}
    assert told == {
        name: (nodes[each.of_brokers, each.of_name_servers], each.per_node)
        for name, each in SETTINGS.items()
    }
