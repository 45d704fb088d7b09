"""What an operator sees of a group, and moves, while its members run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from logboom.client import Client, connect
from logboom.client.admin_flows.group_lag import GroupQueue
from logboom.deploy.embedded import Embedded
from logboom.wire.errors import GroupError
from tests.integration.waiting import wait_until


@pytest.fixture
def boom(node: Embedded) -> Iterator[Client]:
    with connect(node.endpoints, create_topics=True) as client:
        yield client


def send(boom: Client, topic: str, count: int) -> None:
    with boom.producer() as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, queue=0)


def shown(boom: Client, group: str, wanted: Callable[[GroupQueue], bool]) -> GroupQueue:
    """Queue 0 as `describe_group` tells of it, once it is as wanted."""
    found: list[GroupQueue] = []

    def look() -> bool:
        found[:] = boom.admin.describe_group(group).queues
        return bool(fitting())

    def fitting() -> list[GroupQueue]:
        own = [q for q in found if q.queue == 0 and not q.topic.startswith("%")]
        return [queue for queue in own if wanted(queue)]

    wait_until(look, f"{group} is not as wanted")
    return fitting()[0]


def test_lag_owner_and_why_it_is_stuck(boom: Client) -> None:
    send(boom, "bills", 5)
    settings: dict[str, Any] = {"heartbeat_ms": 100, "session_ms": 5_000}
    with boom.consumer("bills", group="paying", commit_every_s=0.05, **settings) as consumer:
        taken = [next(iter(consumer)) for _ in range(3)]
        for message in taken:
            consumer.ack(message)
        queue = shown(boom, "paying", lambda queue: queue.committed == 3)
        assert (queue.end, queue.lag) == (5, 2)
        assert queue.age_ms is not None
        found = boom.admin.describe_group("paying")
        (member,) = found.members
        assert queue.owner == member.id
        assert ("bills", 0) in member.queues
        assert member.silent_ms is not None
        consumer.pause("bills", 0)
        shown(boom, "paying", lambda queue: queue.stuck.startswith("paused for"))
        with pytest.raises(GroupError) as caught:
            boom.admin.delete_group("paying")
        assert caught.value.code == "GROUP_NOT_EMPTY"
    shown(boom, "paying", lambda queue: queue.stuck == "the group has no member")
    boom.admin.delete_group("paying")
    assert "paying" not in [group.name for group in boom.admin.groups()]


def test_a_reset_is_taken_up_by_a_member_that_runs(boom: Client) -> None:
    send(boom, "rents", 4)
    settings: dict[str, Any] = {"heartbeat_ms": 100, "session_ms": 5_000}
    with boom.consumer("rents", group="letting", commit_every_s=0.05, **settings) as consumer:
        messages = iter(consumer)
        for _ in range(4):
            consumer.ack(next(messages))
        shown(boom, "letting", lambda queue: queue.lag == 0)
        (plan,) = boom.admin.reset_offsets("letting", shift=-3, topic="rents", queues=[0])
        assert (plan.committed, plan.target, plan.end) == (4, 1, 4)
        shown(boom, "letting", lambda queue: queue.lag == 0)
        boom.admin.reset_offsets("letting", shift=-3, topic="rents", queues=[0], dry_run=False)
        again = []
        for _ in range(3):
            message = next(messages)
            again.append(message.offset)
            consumer.ack(message)
        assert again == [1, 2, 3]
        shown(boom, "letting", lambda queue: queue.lag == 0)


def test_a_paused_group_stops_and_goes_on_without_a_double(boom: Client) -> None:
    send(boom, "taxes", 4)
    settings: dict[str, Any] = {"heartbeat_ms": 100, "session_ms": 5_000}
    with boom.consumer("taxes", group="offices", commit_every_s=0.05, **settings) as consumer:
        messages = iter(consumer)
        for _ in range(2):
            consumer.ack(next(messages))
        # What is handed out already is finished first.
        boom.admin.alter_group("offices", paused=True)
        shown(boom, "offices", lambda queue: queue.stuck == "the group is paused")
        assert consumer.queues == []
        assert consumer.poll(10, timeout_s=0.3) == []
        boom.admin.alter_group("offices", paused=False)
        rest = [next(messages), next(messages)]
        assert [message.offset for message in rest] == [2, 3]
        consumer.ack(rest)
        shown(boom, "offices", lambda queue: queue.lag == 0)
