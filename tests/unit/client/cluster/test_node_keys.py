"""By which keys nodes are known: the file's at first, and then those of the metadata."""

from __future__ import annotations

from logboom.client.cluster.node_keys import NodeKeys
from logboom.wire.listeners import ListenerView
from logboom.wire.view import BrokerView, NameServerView


def test_the_file_counts_until_the_metadata_has_the_node() -> None:
    keys = NodeKeys({"n1:1": ["old"], "n2:1": ["k2"]})
    assert keys.of("n1:1") == ["old"]
    keys.learn([NameServerView("name-1", "n1:1", [], ["new", "next"])])
    # A key that the node no longer has may be in other hands.
    assert keys.of("n1:1") == ["new", "next"]
    assert keys.of("n2:1") == ["k2"]


def test_a_node_that_nobody_knows_may_be_any_of_the_file() -> None:
    keys = NodeKeys({"n1:1": ["k1", "both"], "n2:1": ["both", "k2"]})
    assert keys.of("localhost:1") == ["k1", "both", "k2"]
    assert list(NodeKeys({}).of("n1:1")) == []


def test_every_listener_of_a_node_has_its_keys() -> None:
    listeners = [ListenerView("main", "b:1", "curve"), ListenerView("lan", "10.0.0.1:1", "none")]
    broker = BrokerView("broker-1", "b:1", "", 1, True, 1, listeners, ["k"])
    keys = NodeKeys({"x:1": ["other"]})
    keys.learn([broker, BrokerView("broker-2", "b2:1", "", 1, True, 1)])
    assert keys.of("10.0.0.1:1") == keys.of("b:1") == ["k"]
    # A node without keys speaks for none; only those of the file may be behind it.
    assert keys.of("b2:1") == ["other"]
