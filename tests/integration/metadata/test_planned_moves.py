"""Real brokers: a new one is filled by itself, and one that is drained is emptied."""

from __future__ import annotations

from logboom.client import Client, connect
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.wire.operation_messages import BrokerLoad
from tests.integration.waiting import wait_until

TOPIC = "flights"


def broker(boom: Client, name: str) -> BrokerLoad:
    """A broker, as the Raft leader describes it."""
    (found,) = [each for each in boom.admin.describe_cluster().brokers if each.broker == name]
    return found


def test_a_new_broker_is_filled_and_a_drained_one_emptied() -> None:
    settings = {"replica_delete_grace_s": 1.0}
    with (
        Cluster(name_servers=1, brokers=4, broker_settings=settings) as cluster,
        connect(cluster.endpoints, cluster_key=read_key(cluster.data / "cluster.key")) as boom,
    ):
        cluster.kill("broker-4")
        wait_until(lambda: not broker(boom, "broker-4").alive, "it is not fenced")
        boom.admin.remove_broker("broker-4")
        boom.admin.create_topic(TOPIC, queues=8, replicas=3)
        with boom.producer(acks="all") as producer:
            for number in range(800):
                producer.send(TOPIC, b"%d" % number, queue=number % 8)
        cluster.start("broker-4")

        def is_filled() -> bool:
            described = boom.admin.describe_cluster()
            (found,) = [each for each in described.brokers if each.broker == "broker-4"]
            # It begins empty, and whoever does not count as new stays so.
            return bool(found.replicas) and not found.filling and not described.moves

        wait_until(is_filled, "it is not filled")
        loads = boom.admin.describe_cluster().brokers
        replicas = [each.replicas for each in loads]
        assert sum(replicas) == 24
        assert max(replicas) - min(replicas) <= 2
        names = [each.broker for each in loads]
        wait_until(
            lambda: all(broker(boom, name).size_bytes > 0 for name in names),
            "loads are not reported",
        )

        boom.admin.set_broker_mode("broker-1", "draining")
        wait_until(lambda: broker(boom, "broker-1").mode == "drained", "it is not emptied")
        assert broker(boom, "broker-1").replicas == 0

        def is_done() -> bool:
            described = boom.admin.describe_cluster()
            return not described.moves and described.planner.state in ("idle", "waiting")

        wait_until(is_done, "the planner has something left to do")
        for queue in boom.admin.describe_topic(TOPIC).queues:
            assert len(queue.replicas) == 3
            assert "broker-1" not in queue.replicas
        with boom.consumer(TOPIC, start="first") as consumer:
            read: list[bytes] = []
            while len(read) < 800:
                read += [message.value or b"" for message in consumer.poll(1_000, 10.0)]
        assert sorted(read, key=int) == [b"%d" % number for number in range(800)]
