"""Connections by the command line: who is there, and how to disconnect somebody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logboom.client import connect
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from tests.integration.cli.command import complaint, logboom


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(data=tmp_path_factory.mktemp("connections") / "node") as node:
        yield node


def listed(node: Embedded, *words: str) -> list[dict[str, Any]]:
    """What `connections list` prints."""
    done = logboom("connections", "list", *words, "-o", "json", servers=",".join(node.endpoints))
    assert done.code == 0, done.err
    return list(done.json)


def test_a_kicked_client_connects_again_and_loses_nothing(node: Embedded) -> None:
    key = {"LOGBOOM_KEY_FILE": str(node.data / "cluster.key")}
    servers = ",".join(node.endpoints)
    with connect(node.endpoints) as boom, boom.producer() as producer:
        boom.admin.create_topic("t", queues=1)
        producer.send("t", b"first").result(30)
        nodes = {each.node for each in boom.admin.connections()}
        mine = [
            (each.node, connection)
            for each in boom.admin.connections()
            for connection in each.connections
            if connection.kind == "client" and connection.idle_ms < 5_000
        ]
        assert {name for name, _ in mine} == nodes
        shown = listed(node)
        addresses = {each["address"] for each in shown}
        assert {connection.endpoint for _, connection in mine} <= addresses
        assert {each["kind"] for each in shown} >= {"client", "broker"}
        assert all(each["received_bytes"] > 0 for each in shown)
        broker = next(each for each in nodes if each.startswith("broker"))
        assert {each["node"] for each in listed(node, "--node", broker)} == {broker}
        for name, connection in mine:
            kick = ("connections", "kick", name, connection.endpoint)
            done = logboom(*kick, servers=servers, also=key)
            assert done.code == 0, done.err
            assert "no connection from" in complaint(logboom(*kick, servers=servers, also=key))
        assert producer.send("t", b"second").result(30).offset == 1
        remaining = {each["address"] for each in listed(node)}
        assert not remaining & {connection.endpoint for _, connection in mine}


def test_mistakes_are_told(node: Embedded) -> None:
    servers = ",".join(node.endpoints)
    wrong = logboom("connections", "list", "--node", "broker-9", servers=servers)
    assert "there is no node 'broker-9'" in complaint(wrong)
    without_key = logboom("connections", "kick", "broker-1", "127.0.0.1:1", servers=servers)
    assert "cluster key" in complaint(without_key)
