"""A move between real brokers keeps to its rate, and to another one at once."""

from __future__ import annotations

import time

from logboom.client import connect
from logboom.client.flows import propose
from logboom.deploy import Cluster
from logboom.deploy.cluster_key import read_key
from logboom.wire.operation_commands import QueueMove, Reassign
from tests.integration.nodes.figures import figures
from tests.integration.waiting import wait_until

RATE = 256 * 1024
VALUE = b"v" * 8_000
COUNT = 600
ENTRY_BYTES = 64 * 1024
"""Of the largest batch."""


def test_a_move_keeps_to_its_rate_by_the_brokers_own_count() -> None:
    with (
        Cluster(name_servers=1, brokers=2) as cluster,
        connect(
            cluster.endpoints, cluster_key=bytes(read_key(cluster.data / "cluster.key"))
        ) as boom,
    ):
        boom.admin.create_topic("t", queues=1, replicas=1)
        with boom.producer(max_batch_bytes=ENTRY_BYTES) as producer:
            for sent in [producer.send("t", VALUE) for _ in range(COUNT)]:
                sent.result(200)
        boom.admin.alter_settings({"move_bytes_per_s": RATE})
        topic = boom.admin.describe_topic("t")
        (queue,) = topic.queues
        (other,) = {"broker-1", "broker-2"} - set(queue.replicas)
        wait_until(
            lambda: figures(boom, other).get("move_limit_bytes_per_s") == RATE, "it does not follow"
        )
        begun = time.monotonic()
        move = Reassign([QueueMove(topic.id, 0, -1, [other])], time.time_ns() // 1_000_000)
        boom.admin._run(propose(move, 30.0))  # noqa: SLF001 - the plan of a move is not the subject

        def received() -> int:
            return int(figures(boom, other).get("move_bytes_in", 0))

        def await_bytes(least: int) -> int:
            wait_until(lambda: received() >= least, "nothing moves")
            return received()

        for share in (1, 2, 3):
            size = await_bytes(share * RATE)
            # The clock is read later, so at least as much time has passed.
            passed_s = time.monotonic() - begun
            assert size <= RATE * (passed_s + 1.0) + 2 * ENTRY_BYTES
        assert boom.admin.describe_topic("t").queues[0].adding == [other]
        boom.admin.alter_settings({"move_bytes_per_s": 1 << 30})
        wait_until(
            lambda: boom.admin.describe_topic("t").queues[0].replicas == [other],
            "the move does not end",
        )
        assert received() >= COUNT * len(VALUE)
        waits = [
            int(figures(boom, each).get("move_throttled_ms", 0)) for each in topic.queues[0].isr
        ]
        assert sum(waits) + int(figures(boom, other).get("move_throttled_ms", 0)) > 1_000
        assert len(boom.pull("t", 0, 0).messages) > 0
