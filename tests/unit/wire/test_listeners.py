"""Listeners: what may be bound, what must not without encryption, and which endpoint is told."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.wire.endpoints import is_wildcard
from logboom.wire.errors import StartError
from logboom.wire.listeners import (
    ListenerConfig,
    ListenerView,
    Security,
    check_dialled,
    check_listeners,
    check_metrics_listen,
    endpoint_for,
    exposed,
    is_loopback,
    listener_views,
    may_dial_open,
    metrics_address,
)


def listener(
    listen: str, security: Security = "none", name: str = "main", advertise: str = ""
) -> ListenerConfig:
    """A listener."""
    return ListenerConfig(name=name, listen=listen, security=security, advertise=advertise)


def check(*listeners: ListenerConfig, credentials_file: str = "", insecure: bool = False) -> None:
    """Check as a node does."""
    check_listeners(listeners, credentials_file=credentials_file, insecure=insecure)


@pytest.mark.parametrize(
    ("endpoint", "loopback", "wildcard"),
    [
        ("127.0.0.1:7711", True, False),
        ("127.8.9.1:0", True, False),
        ("[::1]:7711", True, False),
        ("localhost:7711", True, False),
        ("LocalHost:7711", True, False),
        ("0.0.0.0:7711", False, True),
        ("[::]:7711", False, True),
        ("*:7711", False, True),
        ("10.0.0.1:7711", False, False),
        ("[fd00::1]:7711", False, False),
        ("eth0:7711", False, False),
        ("localhost.example.org:7711", False, False),
        ("127.0.0.1.example.org:7711", False, False),
        ("", False, False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(
    endpoint: str, loopback: bool, wildcard: bool
) -> None:
    assert is_loopback(endpoint) is loopback
    assert is_wildcard(endpoint) is wildcard


@pytest.mark.parametrize("listen", ["10.0.0.1:7711", "0.0.0.0:7711", "*:0", "host.test:7711"])
def test_an_open_listener_binds_loopback_unless_the_file_says_insecure(listen: str) -> None:
    with pytest.raises(StartError, match="insecure = true") as caught:
        check(listener(listen))
    assert caught.value.code == "BAD_CONFIG"
    assert listen in caught.value.text
    assert "cluster init" in caught.value.text
    assert "\n" not in caught.value.text
    check(listener(listen), insecure=True)
    check(listener(listen, "curve"), credentials_file="node.toml")
    # The second listener counts as much as the first.
    with pytest.raises(StartError, match="'other'"):
        check(listener("127.0.0.1:1"), listener(listen, name="other"))


def test_what_is_exposed_is_counted() -> None:
    listeners = [
        listener("127.0.0.1:1"),
        listener("10.0.0.1:1", name="b"),
        listener("10.0.0.1:2", "curve", name="c"),
    ]
    assert [each.name for each in exposed(listeners)] == ["b"]


@pytest.mark.parametrize(
    ("listeners", "words"),
    [
        ([listener("127.0.0.1:1", name="Main")], "matches"),
        ([listener("127.0.0.1:1", name="")], "matches"),
        ([listener("127.0.0.1:1"), listener("127.0.0.1:2")], "two listeners are called 'main'"),
        ([listener("127.0.0.1:1"), listener("127.0.0.1:1", name="b")], "both|two listeners bind"),
        ([listener("127.0.0.1")], "write host:port"),
        ([listener("127.0.0.1:99999")], "write host:port"),
        ([listener("127.0.0.1:1", advertise="host")], "write host:port"),
        ([listener("127.0.0.1:1", advertise="0.0.0.0:1")], "nobody can dial"),
        ([listener("127.0.0.1:1", "curve")], "credentials_file"),
        ([listener(f"127.0.0.1:{n}", name=f"l{n}") for n in range(9)], "at most 8"),
    ],
)
def test_listeners_that_cannot_be_are_refused(listeners: list[Any], words: str) -> None:
    with pytest.raises(StartError, match=words) as caught:
        check(*listeners)
    assert "\n" not in caught.value.text


def test_free_ports_of_one_address_are_different_ports() -> None:
    check(listener("127.0.0.1:0"), listener("127.0.0.1:0", name="b"))


def test_who_binds_all_addresses_says_which_one_others_dial() -> None:
    with pytest.raises(StartError, match="set `advertise`"):
        check_dialled([listener("0.0.0.0:7711")])
    check_dialled([listener("0.0.0.0:7711", advertise="host.test:7711"), listener("10.0.0.1:1")])


def test_others_see_what_is_advertised_or_else_bound() -> None:
    listeners = [
        listener("127.0.0.1:0"),
        listener("0.0.0.0:7711", "curve", name="out", advertise="h.test:1"),
    ]
    assert listener_views(listeners, {"main": "127.0.0.1:4711", "out": "0.0.0.0:7711"}) == [
        ListenerView("main", "127.0.0.1:4711", "none"),
        ListenerView("out", "h.test:1", "curve"),
    ]


INSIDE = ListenerView("inside", "10.0.0.1:1", "none")
OUTSIDE = ListenerView("outside", "h.test:1", "curve")
OTHER = ListenerView("other", "10.0.0.1:2", "curve")


@pytest.mark.parametrize(
    ("listeners", "name", "security", "told"),
    [
        ([INSIDE, OUTSIDE, OTHER], "other", "curve", OTHER),
        ([INSIDE, OUTSIDE, OTHER], "main", "curve", OUTSIDE),
        ([INSIDE, OUTSIDE, OTHER], "main", "none", INSIDE),
        ([OUTSIDE, OTHER], "main", "none", OUTSIDE),
    ],
)
def test_a_peer_is_told_the_listener_like_the_one_it_came_by(
    listeners: list[ListenerView], name: str, security: Security, told: ListenerView
) -> None:
    assert endpoint_for(listeners, name, security) == told.endpoint


def test_a_node_without_listeners_has_no_endpoint() -> None:
    assert endpoint_for([], "main", "none") == ""


def test_only_a_node_that_is_open_itself_dials_without_encryption() -> None:
    curve = listener("10.0.0.1:1", "curve")
    assert not may_dial_open([curve])
    assert may_dial_open([curve, listener("127.0.0.1:2", name="inside")])


@pytest.mark.parametrize(
    ("setting", "first", "address"),
    [
        ("auto", "127.0.0.1:7711", "127.0.0.1:8711"),
        ("auto", "10.0.0.1:7701", "127.0.0.1:8701"),
        ("auto", "[::1]:7701", "127.0.0.1:8701"),
        ("auto", "127.0.0.1:65000", "127.0.0.1:64000"),
        ("auto", "127.0.0.1:0", ""),
        ("off", "127.0.0.1:7711", ""),
        ("10.0.0.1:9000", "127.0.0.1:7711", "10.0.0.1:9000"),
        ("127.0.0.1:0", "127.0.0.1:7711", "127.0.0.1:0"),
    ],
)
def test_where_metrics_are(setting: str, first: str, address: str) -> None:
    check_metrics_listen(setting)
    assert metrics_address(setting, first) == address


@pytest.mark.parametrize("setting", ["", "on", "8711", ":8711", "host:port", "127.0.0.1:70000"])
def test_an_address_for_metrics_that_makes_no_sense(setting: str) -> None:
    with pytest.raises(StartError, match="metrics_listen"):
        check_metrics_listen(setting)
