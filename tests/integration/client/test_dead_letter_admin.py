"""Dead letters of a group and of a subscription are counted, read and sent again."""

from __future__ import annotations

import pytest

from logboom.client import Client
from logboom.wire.errors import InvalidRequest, OffsetOutOfRange, UnknownResource
from tests.integration.waiting import wait_until


def bury(boom: Client, owner: str, count: int) -> None:
    """Write dead letters, as a consumer does that gives messages up."""
    wait_until(lambda: f"%DLQ%{owner}" in {topic.name for topic in boom.admin.topics()}, "a topic")
    with boom.producer() as producer:
        for number in range(count):
            headers = {
                "boom-attempt": b"16",
                "boom-origin": b"wages/0/%d" % number,
                "boom-cause": b"OSError: the bank is closed",
            }
            value = b"%d" % number
            producer.send(f"%DLQ%{owner}", value, queue=0, headers=headers).result(60)


def resent(boom: Client, owner: str) -> list[bytes | None]:
    topic = f"%RETRY%{owner}"
    return [
        message.value
        for queue, (first, end) in boom.admin.offsets(topic).items()
        if end > first
        for message in boom.pull(topic, queue, first).messages
    ]


@pytest.fixture(params=["payroll", "wages%sums"])
def owner(request: pytest.FixtureRequest, boom: Client) -> str:
    name: str = request.param
    if name == "payroll":
        boom.admin.create_topic("wages", queues=1)
        boom.admin.alter_group(name, subscription={"wages": ""}, create=True)
    else:
        for prefix in ("%RETRY%", "%DLQ%"):
            boom.admin.create_topic(prefix + name, queues=1)
    bury(boom, name, 6)
    return name


def test_dead_letters_are_chosen_edited_counted_and_sent(boom: Client, owner: str) -> None:
    letters = boom.dead_letters
    found = letters.describe(owner)
    assert (found.messages, found.open) == (6, 6)
    assert found.oldest_ms is not None
    first, second = letters.read(owner, count=2)
    assert (first.origin, first.attempts) == ("wages/0/0", 16)
    assert second.cause == "OSError: the bank is closed"
    assert letters.get(owner, 0, 3).message.value == b"3"
    # One behind others stays open; the first of a queue moves on.
    assert letters.redrive(owner, chosen=[(0, 3)], value=b"three") == 1
    assert letters.describe(owner).open == 6
    assert letters.redrive(owner, chosen=[(0, 0), (0, 1)]) == 2
    assert letters.describe(owner).open == 4
    told: list[int] = []
    assert letters.redrive(owner, count=2, per_s=100, on_sent=told.append) == 2
    assert letters.redrive(owner, on_sent=told.append) == 2
    assert told == [2, 2]
    assert (letters.count(owner), letters.count(owner, again=True)) == (0, 6)
    assert resent(boom, owner) == [b"three", *(b"%d" % number for number in range(6))]


def test_those_of_one_cause_are_sent_and_others_between_them_stay_open(boom: Client) -> None:
    boom.admin.create_topic("fares", queues=1)
    boom.admin.alter_group("tolls", subscription={"fares": ""}, create=True)
    wait_until(lambda: "%DLQ%tolls" in {topic.name for topic in boom.admin.topics()}, "a topic")
    with boom.producer() as producer:
        for number in range(9):
            cause = b"KeyError: 'fare'" if number in (0, 1, 4, 8) else b"OSError: closed"
            headers = {"boom-cause": cause}
            producer.send("%DLQ%tolls", b"%d" % number, queue=0, headers=headers).result(60)
    letters = boom.dead_letters
    assert letters.count("tolls", cause="KeyError") == 4
    assert letters.redrive("tolls", cause="KeyError", count=3, per_s=1_000) == 3
    # The first two move on; what lies behind those that were left out stays open.
    assert letters.describe("tolls").open == 7
    assert resent(boom, "tolls") == [b"0", b"1", b"4"]
    assert letters.redrive("tolls", cause="nothing like it") == 0
    assert letters.redrive("tolls", cause="closed") == 5
    assert letters.describe("tolls").open == 5
    with pytest.raises(InvalidRequest, match="not both"):
        letters.redrive("tolls", chosen=[(0, 4)], cause="KeyError")
    assert letters.redrive("tolls") == 5
    assert letters.describe("tolls").open == 0


def test_what_cannot_be_sent_is_told(boom: Client) -> None:
    letters = boom.dead_letters
    with pytest.raises(UnknownResource):
        letters.redrive("nobody")
    with pytest.raises(InvalidRequest, match="exactly one"):
        letters.redrive("payroll", value=b"x")
    with pytest.raises(InvalidRequest, match="1 or more"):
        letters.redrive("payroll", count=0)
    with pytest.raises(OffsetOutOfRange, match="holds offsets 0 to 5, not 99"):
        letters.redrive("payroll", chosen=[(0, 99)])
