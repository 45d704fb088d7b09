"""The judge of the chaos runs can object: one value lost, doubled, swapped, foreign or moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logboom.client import connect
from logboom.deploy import embedded
from tests.chaos.load import QUEUES, Sent, judge

Reading = dict[int, list[bytes]]


@pytest.fixture(scope="module")
def sent() -> Iterator[list[Sent]]:
    """Some values, really sent and acknowledged."""
    with embedded() as node, connect(node.endpoints) as boom:
        boom.admin.create_topic("flights", queues=QUEUES, replicas=1)
        with boom.producer() as producer:
            values = [(n % QUEUES, b"producer-0/%d" % n) for n in range(40)]
            found = [Sent(q, v, producer.send("flights", v, queue=q)) for q, v in values]
            producer.flush()
        yield found


@pytest.fixture
def reading(sent: list[Sent]) -> Reading:
    """What a faultless reader sees."""
    return {queue: [one.value for one in sent if one.queue == queue] for queue in range(QUEUES)}


def test_it_has_no_objection_to_what_is_right(sent: list[Sent], reading: Reading) -> None:
    verdict = judge(sent, [reading, reading])
    assert verdict.clean
    assert verdict.acked == len(sent)


def test_it_objects_to_a_lost_value(sent: list[Sent], reading: Reading) -> None:
    lost = reading[1].pop()
    assert judge(sent, [reading]).lost == [lost]


def test_it_objects_to_a_doubled_value(sent: list[Sent], reading: Reading) -> None:
    reading[1].append(reading[1][-1])
    assert judge(sent, [reading]).doubled == [reading[1][-1]]


def test_it_objects_to_a_swap(sent: list[Sent], reading: Reading) -> None:
    values = reading[2]
    values[3], values[4] = values[4], values[3]
    verdict = judge(sent, [reading])
    assert verdict.reordered == [values[4]]
    assert sorted(verdict.moved) == sorted(values[3:5])


def test_it_objects_to_what_was_never_sent_there(sent: list[Sent], reading: Reading) -> None:
    reading[0].append(b"producer-9/0")
    reading[3].append(reading[2].pop())
    verdict = judge(sent, [reading])
    assert verdict.phantoms == [b"producer-9/0", reading[3][-1]]
