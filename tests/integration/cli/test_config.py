"""`logboom config`, as an operator uses it while the nodes run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from logboom.deploy import Embedded, embedded
from tests.integration.cli.command import logboom
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module", name="node")
def _node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(data=tmp_path_factory.mktemp("config") / "node") as node:
        yield node


def config(node: Embedded, *words: str) -> Any:
    """What a `logboom config` command prints, as JSON."""
    done = logboom("config", *words, "-o", "json", servers=",".join(node.endpoints))
    assert done.code == 0, done.err
    return done.json


def change(node: Embedded, *words: str) -> str:
    """What a command that changes something says."""
    key = str(node.data / "cluster.key")
    done = logboom("config", *words, "--key-file", key, servers=",".join(node.endpoints))
    assert done.code == 0, done.err
    return done.err


def refused(node: Embedded, *words: str) -> str:
    """Why a command is refused."""
    key = str(node.data / "cluster.key")
    done = logboom("config", *words, "--key-file", key, servers=",".join(node.endpoints))
    assert done.code == 1, done.out
    return done.err


def test_a_setting_is_changed_seen_and_forgotten(node: Embedded) -> None:
    said = change(node, "set", "move_bytes_per_s", "20m")
    assert "0 (default" in said
    assert "→ 20971520 (cluster)" in said
    said = change(node, "set", "move_bytes_per_s", "5m", "--node", "broker-1")
    assert "20971520 (cluster) → 5242880 (node)" in said
    rows = [row for row in config(node, "list") if row["setting"] == "move_bytes_per_s"]
    seen = [(row["value"], row["source"], row["node"]) for row in rows]
    assert seen == [("20971520", "cluster", None), ("5242880", "node", "broker-1")]

    def counts() -> Any:
        return config(node, "get", "move_bytes_per_s", "--node", "broker-1")["value"]

    wait_until(lambda: counts() == "5242880", "the broker does not follow")
    assert "broker-1 has a value of its own" in change(node, "set", "move_bytes_per_s", "1m")
    change(node, "unset", "move_bytes_per_s", "--node", "broker-1")
    wait_until(lambda: counts() == "1048576", "the broker does not follow")
    change(node, "unset", "move_bytes_per_s")
    got = config(node, "get", "move_bytes_per_s")
    assert (got["value"], got["source"], got["default"]) == ("0", "default", "0")


def test_a_node_lists_what_needs_a_restart_too(node: Embedded) -> None:
    rows = {row["setting"]: row for row in config(node, "list", "--node", "broker-1")}
    assert rows["scrub_bytes_per_s"]["restart"] is False
    assert rows["name_servers"]["restart"] is True
    assert rows["name_servers"]["source"] == "file"
    key = (node.data / "cluster.key").read_text().strip()
    assert key not in json.dumps(list(rows.values()))
    assert "name_servers stands in the config file" in refused(node, "set", "name_servers", "x")


@pytest.mark.parametrize(
    ("part", "name"), [("metadata.raft", "name-1"), ("nodes.disk", "broker-1")]
)
def test_a_logger_gets_another_level_at_once(node: Embedded, part: str, name: str) -> None:
    logger = logging.getLogger(f"logboom.{part}")
    change(node, "set", f"log_level.{part}", "debug", "--node", name)
    wait_until(lambda: logger.level == logging.DEBUG, "the level is not set")
    change(node, "unset", f"log_level.{part}", "--node", name)
    wait_until(lambda: logger.level == logging.NOTSET, "the level is not taken back")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "move_byte", "1"), "did you mean move_bytes_per_s"),
        (("get", "move_byte"), "did you mean move_bytes_per_s"),
        (("unset", "move_byte"), "did you mean move_bytes_per_s"),
        (("set", "half_checks", "many"), "a whole number from 0 on"),
        (("set", "move_bytes_per_s", "fast"), "is not a size"),
        (("set", "half_checks", "1", "--node", "broker-9"), "there is no node 'broker-9'"),
        (("set", "balance_mode", "off", "--node", "broker-1"), "whole cluster"),
        (("get", "balance_mode", "--node", "broker-1"), "does not go by balance_mode"),
        (("list", "--node", "broker-9"), "there is no node 'broker-9'"),
    ],
)
def test_what_is_wrong_is_refused_and_says_what_is_right(
    node: Embedded, words: tuple[str, ...], said: str
) -> None:
    if words[0] in ("get", "list"):
        done = logboom("config", *words, servers=",".join(node.endpoints))
        assert done.code == 1
        assert said in done.err
    else:
        assert said in refused(node, *words)


def test_without_the_cluster_key_nothing_is_changed(node: Embedded) -> None:
    done = logboom("config", "set", "half_checks", "3", servers=",".join(node.endpoints))
    assert done.code == 1
    assert "this needs the cluster key" in done.err
