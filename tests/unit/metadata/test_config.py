"""Settings of a name server are checked, with one line that says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.metadata.config import (
    NameServerConfig,
    NameServerListener,
    NameServerMember,
    check_config,
    listeners_of,
)
from logboom.wire.errors import StartError

MAIN = NameServerListener(name="main", listen="127.0.0.1:1", security="none")
RAFT = NameServerListener(name="raft", listen="127.0.0.1:2", security="none", for_raft=True)


def test_two_addresses_are_two_open_listeners() -> None:
    config = NameServerConfig(id="name-1", listen="127.0.0.1:1", raft_listen="127.0.0.1:2")
    check_config(config)
    assert listeners_of(config) == [MAIN, RAFT]
    config = NameServerConfig(id="name-1", listeners=[MAIN, RAFT])
    check_config(config)
    assert listeners_of(config) == [MAIN, RAFT]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listen": "10.0.0.1:1"}, "insecure = true"),
        ({"raft_listen": "0.0.0.0:1"}, "insecure = true"),
        ({"listeners": [MAIN]}, "no listener has for_raft"),
        ({"listeners": [RAFT]}, "clients and brokers"),
        ({"listeners": [MAIN, RAFT], "listen": "127.0.0.1:3"}, "in place of `listen`"),
        ({"listeners": [MAIN, RAFT], "raft_listen": "127.0.0.1:3"}, "in place of `listen`"),
        ({"administrators": {"a b": "0" * 40}}, "user name 'a b'"),
        ({"administrators": {"node:a": "0" * 40}}, "initial_nodes"),
        ({"administrators": {"root": "0" * 39}}, "public key of 39 characters"),
        ({"initial_nodes": {"a": "#" * 40}}, "public key of 40 characters"),
        ({"initial_nodes": {"A": "0" * 40}}, "id of a node"),
        ({"listen": "tcp://127.0.0.1:1"}, "leave out tcp://"),
        ({"raft_listen": "::1:1"}, "brackets"),
        ({"name_servers": [NameServerMember("name-1", "u@h:1", "h:2")]}, "name-1: .*the user"),
        ({"name_servers": [NameServerMember("name-1", "h:1", "*:2")]}, "name-1: .*others dial"),
        ({"metrics_listen": "http://127.0.0.1:9"}, "metrics_listen"),
        ({"balance_mode": "on"}, "off, new-broker, continuous"),
        ({"replace_after_s": -1.0}, "from 0 on"),
        (
            {"administrators": {"root": "0" * 40}, "initial_nodes": {"a": "0" * 40}},
            "one public key",
        ),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(StartError, match=words) as caught:
        check_config(NameServerConfig(id="name-1", **settings))
    assert caught.value.code == "BAD_CONFIG"
    assert "\n" not in caught.value.text


def test_users_of_the_configuration_have_a_key_each() -> None:
    check_config(
        NameServerConfig(
            id="name-1", administrators={"root": "0" * 40}, initial_nodes={"name-1": "1" * 40}
        )
    )


def test_who_says_insecure_may_be_open_to_all() -> None:
    check_config(
        NameServerConfig(id="name-1", insecure=True, listen="10.0.0.1:1", raft_listen="0.0.0.0:2")
    )
