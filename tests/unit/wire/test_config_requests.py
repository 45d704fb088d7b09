"""What a node tells of its settings, and what it never tells."""

from __future__ import annotations

import msgspec
import pytest

from logboom.metadata.config import NameServerConfig
from logboom.nodes.config import BrokerConfig
from logboom.wire.config_requests import describe_config
from logboom.wire.key_pair import HIDDEN, Secret, SecretBytes
from logboom.wire.listeners import ListenerConfig
from logboom.wire.messages import ConfigEntry, DescribeConfig
from logboom.wire.settings import SETTINGS, LiveSettings

BROKER = BrokerConfig(id="broker-1", name_servers=["a:1", "b:2"], scrub_bytes_per_s=5, zone="z")
NAME_SERVER = NameServerConfig(id="name-1", administrators={"alice": "k" * 40})


def told(
    config: BrokerConfig | NameServerConfig, *rows: tuple[str, str, str]
) -> dict[str, ConfigEntry]:
    """What a node tells, by name."""
    settings = LiveSettings(config.id, config)
    settings.follow(rows)
    role = "broker" if isinstance(config, BrokerConfig) else "name server"
    answer = describe_config(DescribeConfig(7, 1), config.id, role, config, settings)
    assert (answer.id, answer.node, answer.role) == (7, config.id, role)
    names = [each.name for each in answer.entries]
    assert names == sorted(set(names))
    return {each.name: each for each in answer.entries}


def test_each_value_is_told_with_its_source_and_whether_it_needs_a_restart() -> None:
    entries = told(BROKER, ("", "half_checks", "3"), ("broker-1", "log_level.nodes", "debug"))
    seen = {name: (e.value, e.default, e.source, e.restart) for name, e in entries.items()}
    assert seen["scrub_bytes_per_s"] == ("5", "8388608", "file", False)
    assert seen["half_checks"] == ("3", "15", "cluster", False)
    assert seen["log_level.nodes"] == ("debug", "info", "node", False)
    assert seen["producer_expiry_ms"] == ("604800000", "604800000", "default", False)
    assert seen["zone"] == ("z", "", "file", True)
    assert seen["name_servers"] == ("a:1, b:2", "", "file", True)
    assert seen["hw_news_ms"] == ("2", "2", "default", True)
    assert seen["audit"] == ("true", "true", "default", True)
    assert "balance_mode" not in seen, "no broker goes by it"


@pytest.mark.parametrize("config", [BROKER, NAME_SERVER])
def test_every_key_of_the_config_file_is_told(config: BrokerConfig | NameServerConfig) -> None:
    entries = told(config)
    assert entries.keys() >= {field.name for field in msgspec.structs.fields(config)}
    live = {name for name, entry in entries.items() if not entry.restart}
    assert live <= SETTINGS.keys()


def test_a_name_server_tells_what_it_goes_by() -> None:
    entries = told(NAME_SERVER, ("", "balance_mode", "off"))
    assert (entries["balance_mode"].value, entries["balance_mode"].source) == ("off", "cluster")
    assert entries["rebalance_after_s"].value == "5"
    assert entries["administrators"].value == "alice", "who they are, not their keys"
    assert "half_checks" not in entries


def test_a_listener_is_told_in_words() -> None:
    listener = ListenerConfig(name="main", listen="127.0.0.1:7711", security="none")
    config = msgspec.structs.replace(BROKER, listeners=[listener])
    value = told(config)["listeners"].value
    assert value.startswith("name=main listen=127.0.0.1:7711 security=none")


class Careless(msgspec.Struct, frozen=True, kw_only=True):
    """A config that holds what it should not."""

    id: str = "x"
    pair: Secret | None = None
    pairs: list[SecretBytes] = []


def test_a_secret_in_a_config_is_hidden() -> None:
    config = Careless(pair=Secret("hunter2"), pairs=[SecretBytes(b"hunter2")])
    settings = LiveSettings("x", config)
    answer = describe_config(DescribeConfig(0, 1), "x", "broker", config, settings)
    assert "hunter2" not in str(answer)
    values = {each.name: each.value for each in answer.entries}
    assert (values["pair"], values["pairs"]) == (HIDDEN, HIDDEN)
