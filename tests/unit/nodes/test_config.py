"""Settings are checked, with one line that says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.nodes.config import BrokerConfig, check_config, effective
from logboom.wire.errors import StartError

GOOD = BrokerConfig(id="broker-1", name_servers=["127.0.0.1:7701"])


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
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], word: str) -> None:
    values: dict[str, Any] = {"id": "broker-1", "name_servers": ["127.0.0.1:7701"], **change}
    with pytest.raises(StartError, match=word) as caught:
        check_config(BrokerConfig(**values))
    assert "\n" not in caught.value.text


def test_the_bound_endpoint_is_advertised_unless_another_is_given() -> None:
    assert effective(GOOD, "127.0.0.1:4711").advertise == "127.0.0.1:4711"
    named = BrokerConfig(id="b", name_servers=["n:1"], advertise="host:1")
    assert effective(named, "127.0.0.1:4711") is named
