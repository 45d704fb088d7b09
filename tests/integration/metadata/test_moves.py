"""A queue is moved between real brokers under load, and the broker that it leaves is killed."""

from __future__ import annotations

import threading

import pytest

from logboom.client import connect
from logboom.deploy import Cluster
from logboom.wire.errors import LogboomError
from logboom.wire.operation_commands import QueueMove, Reassign
from tests.integration.metadata.operator import Operator
from tests.integration.nodes.figures import figures
from tests.integration.waiting import wait_until

TOPIC = "flights"


class Load(threading.Thread):
    """A producer that sends numbers, until it is told to stop."""

    def __init__(self, endpoints: list[str]) -> None:
        super().__init__()
        self.ended = threading.Event()
        self.acked: list[bytes] = []
        self.errors: list[LogboomError] = []
        self._endpoints = endpoints

    def run(self) -> None:
        with connect(self._endpoints) as boom, boom.producer(acks="all") as producer:
            number = 0
            while not self.ended.is_set():
                batch = [producer.send(TOPIC, b"%d" % (number + n), queue=0) for n in range(50)]
                number += len(batch)
                for n, sent in enumerate(batch):
                    try:
                        sent.result()
                        self.acked.append(b"%d" % (number - len(batch) + n))
                    except LogboomError as error:
                        self.errors.append(error)


def test_a_queue_moves_under_load_while_its_leader_dies_and_nothing_is_lost_or_doubled() -> None:
    settings = {"replica_delete_grace_s": 1.0}
    with (
        Cluster(name_servers=1, brokers=4, broker_settings=settings) as cluster,
        Operator(cluster) as operator,
        connect(cluster.endpoints) as boom,
    ):
        boom.admin.create_topic(TOPIC, queues=1, replicas=3)
        topic_id = boom.admin.describe_topic(TOPIC).id
        before = cluster.queue(TOPIC, 0)
        source = before.leader
        assert source is not None
        (free,) = {f"broker-{n}" for n in range(1, 5)} - {*before.replicas}
        target = [free, *(r for r in before.replicas if r != source)]
        load = Load(cluster.endpoints)
        load.start()
        try:
            wait_until(lambda: len(load.acked) > 500, "nothing is acknowledged")
            result = operator.propose(Reassign([QueueMove(topic_id, 0, -1, target)], 0))
            assert (result.code, result.value, result.text) == ("", [""], "")
            cluster.kill(source)
            wait_until(lambda: cluster.queue(TOPIC, 0).replicas == target, "the move does not end")
            moved = len(load.acked)
            wait_until(lambda: len(load.acked) > moved + 500, "nothing is acknowledged any more")
            cluster.start(source)

            def has_deleted_it() -> bool:
                return figures(boom, source)["replicas"] == 0

            wait_until(has_deleted_it, "the source keeps its replica")
        finally:
            load.ended.set()
            load.join()
        assert cluster.leader(TOPIC, 0, 200.0) in target
        after = cluster.queue(TOPIC, 0)
        assert (after.adding, after.removing) == ([], [])
        read: list[bytes] = []
        with boom.consumer(TOPIC, queues=[0], start="first") as consumer:
            _, end = boom.admin.offsets(TOPIC)[0]
            while len(read) < end:
                read += [message.value or b"" for message in consumer.poll(5_000, 10.0)]
        assert load.errors == []
        assert read == load.acked


@pytest.mark.thorough
def test_copies_cursors_parked_messages_and_windows_go_along() -> None:
    settings = {"replica_delete_grace_s": 1.0, "retention_check_ms": 200}
    with (
        Cluster(name_servers=1, brokers=2, broker_settings=settings) as cluster,
        Operator(cluster) as operator,
        connect(cluster.endpoints) as boom,
    ):
        boom.admin.create_topic(
            TOPIC, queues=1, replicas=1, compaction=True, retention_bytes=16 * 1024
        )
        topic_id = boom.admin.describe_topic(TOPIC).id
        source = cluster.queue(TOPIC, 0).leader
        (other,) = {"broker-1", "broker-2"} - {source}
        expected = {b"key %d" % n: b"value %d" % n + bytes(200) for n in range(300)}
        with boom.producer(max_batch_bytes=4 * 1024) as producer:
            for key, value in expected.items():
                producer.send(TOPIC, value, key=key)
            producer.flush()
            wait_until(lambda: boom.admin.offsets(TOPIC)[0][0] > 0, "nothing is trimmed")
            handled: list[bytes] = []
            with boom.subscribe(TOPIC, subscription="s", start="first") as subscriber:
                while len(handled) < 20:
                    for message in subscriber.poll(10, 10.0):
                        handled.append(message.key or b"")
                        subscriber.ack(message)
                subscriber.flush()
            begin, end = boom.admin.offsets(TOPIC)[0]
            producer.send(TOPIC, b"later", key=b"late", delay_s=8.0).result()

            def at(broker: str) -> bool:
                view = cluster.queue(TOPIC, 0)
                return (view.replicas, view.leader) == ([broker], broker)

            move = QueueMove(topic_id, 0, -1, [other])
            assert operator.propose(Reassign([move], 0)).value == [""]
            wait_until(lambda: at(other), "the move does not end")
            again = producer.send(TOPIC, b"after the move", key=b"key 0").result()
            assert again.queue == 0
        assert source is not None
        cluster.kill(source)
        found: dict[bytes, bytes] = {}
        wanted = {**expected, b"key 0": b"after the move", b"late": b"later"}
        with boom.consumer(TOPIC, read_compacted=True) as reader:

            def all_of_it() -> bool:
                for message in reader.poll(1_000, 1.0):
                    found[message.key or b""] = message.value or b""
                return found == wanted

            wait_until(all_of_it, "the copies, or the delayed message, are missing")
        rest: list[bytes] = []
        with boom.subscribe(TOPIC, subscription="s") as subscriber:

            def all_others() -> bool:
                for message in subscriber.poll(100, 1.0):
                    rest.append(message.key or b"")
                    subscriber.ack(message)
                return len(rest) >= end - begin + 2 - len(handled)

            wait_until(all_others, "messages of the subscription are missing")
        assert not set(handled) & set(rest) - {b"key 0"}
