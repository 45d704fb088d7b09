"""Topics that this client deletes: it does not take an old topic for a new one of its name."""

from __future__ import annotations

import pytest

from logboom.client import flows
from logboom.client.send.send_buffer import OpenTopic
from logboom.wire.messages import Watch
from logboom.wire.view import TopicConfig
from tests.unit.client.scripted import Cluster
from tests.unit.client.send.test_queue_sender import producer
from tests.unit.client.transactions.test_transactions import drive


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.add_topic("t")
    return made


def test_a_topic_that_this_client_deleted_and_created_again_is_the_new_one(
    cluster: Cluster,
) -> None:
    buffer = producer(cluster)
    behind = cluster.now + 3
    # No node tells of the deletion for a while.
    cluster.intercept = lambda _, message: (
        (isinstance(message, Watch) and cluster.now < behind) or None
    )
    drive(cluster, flows.delete_topic("t", 0, 30.0))
    drive(cluster, flows.create_topic("t", 1, 1, TopicConfig(), 0, 30.0))
    opened = OpenTopic(buffer, "t", 5.0)
    cluster.call(opened)
    assert cluster.run(5, lambda: opened.outcome.done)
    opened.outcome.get()
    sent, _ = buffer.send("t", b"new")
    assert cluster.run(5, lambda: sent.done)
    assert sent.get() == 0
    assert cluster.log("t").values() == [b"new"]


def test_a_deletion_is_done_though_no_node_tells_of_it(cluster: Cluster) -> None:
    producer(cluster)
    cluster.intercept = lambda _, message: isinstance(message, Watch) or None
    drive(cluster, flows.delete_topic("t", 0, 5.0))
    assert "t" not in cluster.topics
