"""A loss that the operator accepted: readers get everything that is new, from its first message."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logboom.client import Client, connect
from logboom.client.consumer import Consumer
from logboom.client.group_consumer import GroupConsumer
from logboom.client.subscription_consumer import SubscriptionConsumer
from logboom.deploy import Cluster
from tests.integration.waiting import wait_until

COUNT = 1_000
TOPIC = "flights"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A broker that holds the only copy."""
    with Cluster(name_servers=1, brokers=1) as started:
        yield started


@pytest.fixture
def boom(cluster: Cluster) -> Iterator[Client]:
    with connect(cluster.endpoints, timeout_s=200) as client:
        yield client


def values(word: str) -> list[bytes]:
    return [f"{word} {n}".encode() for n in range(COUNT)]


def produce(boom: Client, word: str) -> None:
    with boom.producer() as producer:
        producer.send_many(TOPIC, values(word), queue=0).result()


def read(reader: Consumer | GroupConsumer | SubscriptionConsumer) -> list[bytes | None]:
    """Read `COUNT` messages, and acknowledge them where that is possible."""
    found: list[bytes | None] = []

    def is_all() -> bool:
        for message in reader.poll(COUNT, 0.2):
            found.append(message.value)
            if not isinstance(reader, Consumer):
                reader.ack(message)
        return len(found) >= COUNT

    wait_until(is_all, "messages are missing", 60.0)
    return found


def read_as_each_kind(boom: Client, file: Path) -> dict[str, list[bytes | None]]:
    """Read with readers that begin where the former ones of their kind have ended."""
    found: dict[str, list[bytes | None]] = {}
    with boom.consumer(TOPIC, group="g") as member:
        found["group"] = read(member)
    with boom.consumer(TOPIC, group="b", mode="broadcasting", offsets_file=file) as member:
        found["broadcasting"] = read(member)
    with boom.subscribe(TOPIC, subscription="s", start="first") as subscriber:
        found["subscription"] = read(subscriber)
        subscriber.flush()
    return found


def replace_disk(cluster: Cluster, boom: Client) -> None:
    """Give the broker an empty disk, and accept what is lost."""
    cluster.kill("broker-1")
    shutil.rmtree(cluster.data / "broker-1" / "data")
    cluster.start("broker-1")
    wait_until(lambda: cluster.queue(TOPIC, 0).leader is None, "the empty disk leads")
    boom.admin.alter_topic(TOPIC, unclean_election=True)
    assert cluster.leader(TOPIC, 0, 200.0) == "broker-1"


def test_readers_of_a_queue_that_lost_everything_begin_anew(
    cluster: Cluster, boom: Client, tmp_path: Path
) -> None:
    boom.admin.create_topic(TOPIC, queues=1, replicas=1)
    produce(boom, "old")
    file = tmp_path / "offsets.json"
    with boom.consumer(TOPIC, queues=[0]) as reader:
        assert read(reader) == values("old")
        assert all(found == values("old") for found in read_as_each_kind(boom, file).values())
        replace_disk(cluster, boom)
        produce(boom, "new")
        assert read(reader) == values("new")
        for kind, found in read_as_each_kind(boom, file).items():
            assert found == values("new"), kind
