"""The audit logs of real nodes: who did what from where, and nothing that is a secret."""

import json
import stat
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.errors import LogboomError
from logboom.wire.frames import encode
from logboom.wire.messages import Hello, Replicate
from tests.integration.fuzz.test_hostile_peers import dealers, is_answered, tell
from tests.integration.waiting import wait_until

VALUE = b"a value that nobody writes down"


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_management_and_refusals_are_written_and_nothing_else() -> None:
    begun = time.monotonic()
    with (
        Cluster(name_servers=1, brokers=1) as cluster,
        connect(cluster.endpoints, client_id="tester") as boom,
    ):
        boom.admin.create_topic("audited", 2, 1)
        boom.admin.alter_topic("audited", retention_ms=99_000)
        with boom.producer() as producer:
            producer.send("audited", VALUE, key=VALUE).result(200)
        with pytest.raises(LogboomError):
            boom.admin.delete_topic("unknown")
        with dealers(cluster.endpoint("broker-1"), 1) as (peer,):
            tell(peer, Hello(1, 1, 1, "stranger", "client", 0))
            for number in range(2, 52):
                peer.send(bytes(encode(Replicate(number, 100, "b", 0, 0, 0, 0, 0, []))[0]))
            assert is_answered(peer, b"UNAUTHENTICATED", time.monotonic() + 200)
            name, broker = (
                cluster.data / node / "data" / "audit.log" for node in ("name-1", "broker-1")
            )

            def all_are_told() -> bool:
                lines = [line for line in told(broker) if line["event"] == "refused"]
                assert {line["client"] for line in lines} == {"stranger"}
                return sum(int(line["count"]) for line in lines) == 50

            # With its connection, what has not left yet would be lost.
            wait_until(all_are_told, "all refusals are in the log")
        # One line a second, and those of the start.
        assert len(told(broker)) < 6 + time.monotonic() - begun
        for path in (name, broker):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert VALUE not in path.read_bytes()
        lines = [line for line in told(name) if line["client"].startswith("tester")]
        # A command that is not answered within 1.5 s is sent again, and told again.
        commands = {
            (line["request"], line["resource"], line["result"]): line["details"] for line in lines
        }
        assert [*commands] == [
            ("createtopic", "topic:audited", "ok"),
            ("altertopic", "topic:audited", "ok"),
            ("deletetopic", "topic:unknown", "UNKNOWN_TOPIC"),
        ]
        assert {line["address"] for line in lines} == {"127.0.0.1"}
        altered = commands["altertopic", "topic:audited", "ok"]
        assert altered["config"]["retention_ms"] == 99_000
        key_file = tomllib.loads((cluster.data / "name-1" / "node.toml").read_text())
        key = Path(key_file["cluster_key_file"]).read_text().strip()
        for path in (name, broker):
            assert key not in path.read_text()
