"""Settings are checked, with one line that says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logboom.nodes.config import (
    BrokerConfig,
    announced_listeners,
    check_config,
    fill_advertised,
    instance_config,
    listeners_of,
)
from logboom.wire.errors import StartError
from logboom.wire.listeners import ListenerConfig, ListenerView

GOOD = BrokerConfig(id="broker-1", name_servers=["127.0.0.1:7701"])
OPEN = ListenerConfig(name="inside", listen="127.0.0.1:7711", security="none")
CURVE = ListenerConfig(name="outside", listen="0.0.0.0:7712", advertise="h:7712", security="curve")


def test_the_defaults_are_good() -> None:
    check_config(GOOD)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"id": "Broker 1"}, "id"),
        ({"id": ""}, "id"),
        ({"name_servers": []}, "name_servers"),
        ({"fetch_wait_ms": 2_000}, "fetch_wait_ms"),
        ({"cache_bytes": 0}, "cache_bytes"),
        ({"max_unsynced_bytes": -1}, "max_unsynced_bytes"),
        ({"disk_reserve_bytes": -1}, "disk_reserve_bytes"),
        ({"disk_reserve_percent": -0.5}, "disk_reserve_percent"),
        ({"disk_reserve_percent": 100.0}, "disk_reserve_percent"),
        ({"listen": "0.0.0.0:7711"}, "insecure = true"),
        ({"listen": "0.0.0.0:7711", "insecure": True}, "set `advertise`"),
        ({"listen": "tcp://127.0.0.1:1"}, "leave out tcp://"),
        ({"advertise": "tcp://127.0.0.1:1"}, "leave out tcp://"),
        ({"advertise": "host:0"}, "from 1 to 65535"),
        ({"advertise": "*:1"}, "nobody can dial"),
        ({"name_servers": ["n:1", "tcp://n:2"]}, "name_servers: .*leave out tcp://"),
        ({"listeners": [OPEN], "listen": "127.0.0.1:1"}, "in place of `listen`"),
        ({"listeners": [OPEN], "advertise": "h:1"}, "in place of `listen`"),
        ({"listeners": [CURVE]}, "credentials_file"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], word: str) -> None:
    values: dict[str, Any] = {"id": "broker-1", "name_servers": ["127.0.0.1:7701"], **change}
    with pytest.raises(StartError, match=word) as caught:
        check_config(BrokerConfig(**values))
    assert "\n" not in caught.value.text


def test_the_bound_endpoint_is_advertised_unless_another_is_given() -> None:
    assert fill_advertised(GOOD, {"main": "127.0.0.1:4711"}).advertise == "127.0.0.1:4711"
    named = BrokerConfig(id="b", name_servers=["n:1"], advertise="host:1")
    assert fill_advertised(named, {"main": "127.0.0.1:4711"}) == named


def test_each_listener_is_advertised_as_bound_unless_it_says_otherwise() -> None:
    config = BrokerConfig(
        id="b", name_servers=["n:1"], listeners=[OPEN, CURVE], credentials_file="b.toml"
    )
    check_config(config)
    bound = {"inside": "127.0.0.1:4711", "outside": "0.0.0.0:7712"}
    filled = fill_advertised(config, bound)
    assert filled.advertise == "127.0.0.1:4711"
    assert announced_listeners(filled) == [
        ListenerView("inside", "127.0.0.1:4711", "none"),
        ListenerView("outside", "h:7712", "curve"),
    ]
    assert listeners_of(filled)[0].listen == "127.0.0.1:7711"


def test_a_single_open_listener_is_not_announced() -> None:
    """Name servers of older versions take the registration."""
    assert announced_listeners(fill_advertised(GOOD, {"main": "127.0.0.1:4711"})) == []
    alone = BrokerConfig(id="b", name_servers=["n:1"], listeners=[OPEN])
    assert announced_listeners(fill_advertised(alone, {"inside": "127.0.0.1:4711"})) == []


def test_instances_have_ports_and_credentials_of_their_own() -> None:
    shared = BrokerConfig(
        id="a", name_servers=["n:1"], listeners=[OPEN, CURVE], credentials_file="/etc/l.d/a.toml"
    )
    two = instance_config(shared, 2)
    assert [each.listen for each in two.listeners] == ["127.0.0.1:7712", "0.0.0.0:7713"]
    assert [each.advertise for each in two.listeners] == ["", "h:7713"]
    assert two.credentials_file == "/etc/l.d/a-2.toml"


def test_brokers_of_a_machine_share_a_file_and_nothing_else() -> None:
    shared = BrokerConfig(
        id="a",
        name_servers=["n:1"],
        data="/var/lib/logboom",
        listen="10.0.0.1:7711",
        advertise="a.test:9000",
        insecure=True,
    )
    one, three = instance_config(shared, 1), instance_config(shared, 3)
    for config in (one, three):
        check_config(config)
    assert (one.id, one.listen, one.advertise) == ("a-1", "10.0.0.1:7711", "a.test:9000")
    assert (three.id, three.listen, three.advertise) == ("a-3", "10.0.0.1:7713", "a.test:9002")
    assert (one.data, three.data) == ("/var/lib/logboom/1", "/var/lib/logboom/3")
    # The machine is the host, and the zone unless the file names one.
    assert one.host == three.host == one.zone == three.zone == "a"
    placed = instance_config(msgspec.structs.replace(shared, zone="rack-1", host="m1"), 2)
    assert (placed.zone, placed.host) == ("rack-1", "m1")
    assert instance_config(msgspec.structs.replace(shared, listen="h:0"), 2).listen == "h:0"
    assert instance_config(msgspec.structs.replace(shared, advertise=""), 2).advertise == ""


@pytest.mark.parametrize(
    ("listen", "number", "word"),
    [("h:7711", 0, "from 1 on"), ("h:65535", 2, "no port 1 above"), ("h:", 1, "give host:port")],
)
def test_instances_that_cannot_be_are_refused(listen: str, number: int, word: str) -> None:
    shared = BrokerConfig(id="a", name_servers=["n:1"], listen=listen)
    with pytest.raises(StartError, match=word):
        instance_config(shared, number)


UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "days": 86_400_000}


def test_the_documented_defaults_are_those_of_the_code() -> None:
    """Every key of a broker's file stands in OPERATING.md, with the default that it has."""
    text = Path("docs/OPERATING.md").read_text(encoding="utf-8")
    table = text.split("### Broker\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    fields = {field.name: field for field in msgspec.structs.fields(BrokerConfig)}
    assert set(rows) == set(fields)
    for name, field in fields.items():
        told = rows[name].strip("`")
        if told == "\N{EN DASH}":
            assert field.default in (msgspec.NODEFAULT, "")
        elif told in {"listen", "data"}:
            assert field.default == ""
        elif isinstance(field.default, bool):
            assert told == str(field.default).lower()
        elif isinstance(field.default, int | float):
            number, _, unit = told.partition(" ")
            assert float(number) * UNITS.get(unit, 1) == field.default, name
        else:
            default = [] if field.default is msgspec.NODEFAULT else field.default
            assert told.strip('"') == str(default), name
