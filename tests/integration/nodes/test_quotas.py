"""Quotas of a real user at a real node: late, in order, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import Client, connect
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from logboom.wire.access.access_rules import Verb
from logboom.wire.credentials import Credentials
from logboom.wire.credentials_file import read_credentials, write_credentials
from logboom.wire.errors import Unavailable
from logboom.wire.sockets import make_key_pair
from tests.integration.nodes.figures import figures
from tests.integration.waiting import wait_until

RATE = 20_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(data=tmp_path_factory.mktemp("quotas") / "node", secure=True) as node:
        yield node


@pytest.fixture
def admin(node: Embedded) -> Iterator[Client]:
    assert node.credentials is not None
    with connect(node.credentials) as boom:
        yield boom


def create_user(admin: Client, node: Embedded, name: str, folder: Path, **limits: int) -> Path:
    """A user who may read and write all topics, within limits; its credentials file."""
    assert node.credentials is not None
    of_admin = read_credentials(node.credentials)
    pair = make_key_pair()
    admin.admin.create_user(name, pair.public, label="first")
    verbs: tuple[Verb, ...] = ("read", "write")
    for verb in verbs:
        admin.admin.add_rule(f"user:{name}", "allow", verb, "topic", "*")
    admin.admin.set_quota(name, **limits)
    file = folder / f"{name}.toml"
    write_credentials(file, Credentials(name, of_admin.cluster_id, pair, of_admin.servers[:1]))
    return file


def test_a_greedy_user_is_late_and_loses_nothing(
    admin: Client, node: Embedded, tmp_path: Path
) -> None:
    admin.admin.create_topic("t", queues=1)
    file = create_user(
        admin, node, "greedy", tmp_path, produce_bytes_per_s=RATE, fetch_bytes_per_s=RATE
    )
    values = [b"%06d" % number + bytes(4_000) for number in range(16)]
    with connect(file) as boom:
        with boom.producer(max_batch_bytes=5_000, compression="none") as producer:
            sent = [producer.send("t", value) for value in values]
            assert [each.result(60).offset for each in sent] == list(range(16))
            assert producer.throttled_ms > 1_000
        with boom.consumer("t", start="first") as consumer:
            read: list[bytes | None] = []
            while len(read) < 16:
                read += [message.value for message in consumer.poll(timeout_s=60)]
            assert read == values
            assert consumer.throttled_ms > 1_000
    assert int(figures(admin, "broker-1")["throttle_ms.greedy"]) > 2_000


def test_connections_beyond_the_quota_are_refused_with_the_reason(
    admin: Client, node: Embedded, tmp_path: Path
) -> None:
    file = create_user(admin, node, "one", tmp_path, connections=1)
    with connect(file):

        def is_told_why() -> bool:
            with pytest.raises(Unavailable) as caught:
                connect(file, timeout_s=3)
            return "quota set one --connections 2" in caught.value.text

        # On a busy machine the time may be over before the answer has come.
        wait_until(is_told_why, "the reason is not told")
        found = admin.admin.connections(user="one")
        assert {c.key for each in found for c in each.connections} == {"first"}
