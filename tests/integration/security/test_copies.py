"""Copies for retries and dead letters: forged by users with few rights, and sent by honest ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from logboom.client import Client, Message, connect
from logboom.deploy import embedded
from logboom.deploy.embedded import Embedded
from logboom.wire.access.access_rules import ResourceKind, Verb
from logboom.wire.errors import Forbidden, LogboomError, Refused, UnknownResource
from tests.integration.users import new_credentials
from tests.integration.waiting import wait_until

FORGED = {"boom-attempt": b"2", "boom-origin": b"orders.eu/0/0", "boom-cause": b"busy"}
Right: TypeAlias = tuple[Verb, ResourceKind, str]


@pytest.fixture(scope="module")
def secure() -> Iterator[Embedded]:
    with embedded(secure=True) as node:
        yield node


@pytest.fixture
def root(secure: Embedded) -> Iterator[Client]:
    with connect(str(secure.credentials)) as boom:
        yield boom


def user(node: Embedded, root: Client, name: str, reads: str, *rules: Right) -> Client:
    """A client of a new user who may read a topic, and has these rights besides."""
    mine = new_credentials(node, name)
    root.admin.create_user(name, mine.key_pair.public)
    for verb, kind, pattern in (*rules, ("read", "topic", reads)):
        root.admin.add_rule(f"user:{name}", "allow", verb, kind, pattern)
    boom = connect(node.endpoints, credentials=mine)

    def may_read() -> bool:
        try:
            return bool(boom.pull(reads, 0, 0).messages)
        except LogboomError:
            return False

    wait_until(may_read, "the broker knows the rules")
    return boom


def exists(root: Client, topic: str) -> None:
    wait_until(lambda: topic in {each.name for each in root.admin.topics()}, f"no {topic}")


def refuses(
    boom: Client, topic: str, headers: dict[str, bytes], delay_s: float | None = None
) -> str:
    """Code of the refusal of one message."""
    with boom.producer() as producer:
        try:
            producer.send(topic, b"forged", headers=headers, delay_s=delay_s).result(60)
        except LogboomError as error:
            return error.code
    return ""


def fill(root: Client, topic: str) -> None:
    root.admin.create_topic(topic, queues=1)
    with root.producer() as producer:
        producer.send(topic, b"1", key=b"k", tag="t", headers={"h": b"1"}).result(60)


def test_a_reader_of_a_topic_forges_nothing_for_its_subscriptions(
    secure: Embedded, root: Client
) -> None:
    fill(root, "orders.eu")
    options: dict[str, Any] = {
        "subscription": "billing",
        "type": "shared",
        "start": "first",
        "max_attempts": 2,
    }
    with root.subscribe("orders.eu", **options) as billing:
        billing.open()
        rights: list[Right] = [("read", "topic", "orders.*"), ("read", "subscription", "*")]
        with user(secure, root, "mallory", "orders.eu", *rights) as mallory:
            for prefix in ("%RETRY%", "%DLQ%"):
                topic = f"{prefix}orders.eu%billing"
                for headers in (FORGED, {}, {"boom-origin": b"orders.eu/0/0"}):
                    assert refuses(mallory, topic, headers) in ("FORBIDDEN", "INVALID_ARGUMENT")
                assert refuses(mallory, topic, FORGED, delay_s=1) == "FORBIDDEN"
                assert root.admin.offsets(topic)[0] == (0, 0)


def test_a_member_of_a_group_forges_no_message_of_another_topic(
    secure: Embedded, root: Client
) -> None:
    fill(root, "secret")
    fill(root, "open")
    with root.consumer("secret", group="g") as consumer:
        wait_until(lambda: bool(consumer.poll(10)), "the group reads")
    exists(root, "%RETRY%g")
    rights: list[Right] = [("read", "group", "g"), ("write", "topic", "mine")]
    with user(secure, root, "eve", "open", *rights) as eve:
        for prefix in ("%RETRY%", "%DLQ%"):
            for origin in (b"secret/0/0", b"open/0/0", b"%RETRY%g/0/0", b"nowhere/0/0", b""):
                assert refuses(eve, f"{prefix}g", {**FORGED, "boom-origin": origin}) == "FORBIDDEN"
        # Whoever may write a topic may send its messages to a group that it belongs to, too.
        assert refuses(eve, "%RETRY%g", {**FORGED, "boom-origin": b"mine/0/0"}) == ""
        assert root.admin.offsets("%RETRY%g")[0] == (0, 1)


def test_users_without_more_rights_than_they_need_retry_and_give_up(
    secure: Embedded, root: Client
) -> None:
    fill(root, "bills")
    with (
        user(secure, root, "ann", "bills", ("read", "group", "bills.*")) as ann,
        ann.consumer("bills", group="bills.g", start="first", max_attempts=3) as consumer,
    ):
        for attempt in (1, 2, 3):
            (message,) = take(consumer)
            assert (message.topic, message.offset, message.attempt) == ("bills", 0, attempt)
            assert (message.key, message.tag, message.value) == (b"k", "t", b"1")
            consumer.nack(message, delay_s=0.1, cause="no")
        wait_until(lambda: root.admin.offsets("%DLQ%bills.g")[0][1] == 1, "it is a dead letter")
        with pytest.raises(Forbidden):
            ann.dead_letters.redrive("bills.g")
        root.admin.add_rule("user:ann", "allow", "manage", "group", "bills.g")
        wait_until(lambda: redriven(ann, "bills.g"), "it may be sent again")
        (message,) = take(consumer)
        assert (message.topic, message.attempt) == ("bills", 1)
        letter = ann.dead_letters.read("bills.g", again=True)[0].message
        chosen = [(letter.queue, letter.offset)]
        with pytest.raises(Forbidden, match="bills"):
            ann.dead_letters.redrive("bills.g", chosen=chosen, value=b"2")


def test_a_consumer_of_a_subscription_retries_and_gives_up(secure: Embedded, root: Client) -> None:
    fill(root, "jobs")
    options: dict[str, Any] = {
        "subscription": "s",
        "type": "shared",
        "start": "first",
        "max_attempts": 3,
    }
    with (
        user(secure, root, "sue", "jobs", ("read", "subscription", "jobs/s")) as sue,
        sue.subscribe("jobs", **options) as consumer,
    ):
        for attempt in (1, 2, 3):
            (message,) = take(consumer)
            assert (message.topic, message.offset, message.attempt) == ("jobs", 0, attempt)
            consumer.retry(message, delay_s=0.1, cause="no")
        wait_until(lambda: root.admin.offsets("%DLQ%jobs%s")[0][1] == 1, "it is a dead letter")
        with pytest.raises(Forbidden):
            sue.dead_letters.redrive("jobs%s")
        root.admin.add_rule("user:sue", "allow", "manage", "subscription", "jobs/s")
        wait_until(lambda: redriven(sue, "jobs%s"), "it may be sent again")
        (message,) = take(consumer)
        assert (message.topic, message.attempt) == ("jobs", 1)
        consumer.ack(message)
        consumer.flush()


def test_a_reader_of_a_topic_does_nothing_with_the_subscriptions_of_others(
    secure: Embedded, root: Client
) -> None:
    fill(root, "letters")
    with (
        root.subscribe("letters", subscription="post", type="shared", start="first") as consumer,
        user(secure, root, "max", "letters") as spy,
    ):
        (message,) = take(consumer)
        assert spy.admin.subscriptions.all("letters") == []
        for name in ("post", "nobodys"):
            with pytest.raises(UnknownResource):
                spy.admin.subscriptions.delete("letters", name, force=True)
        with (
            pytest.raises(Forbidden, match="allow read subscription letters/post"),
            spy.subscribe("letters", subscription="post", type="shared") as taker,
        ):
            taker.poll(timeout_s=1)
        consumer.ack(message)
        consumer.flush()


def redriven(boom: Client, owner: str) -> bool:
    """Whether the rights to send a dead letter again are known everywhere."""
    try:
        return boom.dead_letters.redrive(owner) == 1
    except Forbidden:
        return False


def take(consumer: Any) -> list[Message]:
    """The next message."""
    found: list[Message] = []

    def came() -> bool:
        found.extend(consumer.poll(1, timeout_s=1))
        return bool(found)

    wait_until(came, "no message came")
    return found


def test_a_reader_gets_topics_for_its_subscriptions_within_its_quota_alone(
    secure: Embedded, root: Client
) -> None:
    fill(root, "parcels")
    options: dict[str, Any] = {"type": "shared", "start": "first", "max_attempts": 2}
    with user(secure, root, "tom", "parcels", ("read", "subscription", "parcels/*")) as tom:
        with pytest.raises(Forbidden):
            tom.admin.create_topic("%RETRY%parcels%mine", queues=1024)
        root.admin.set_quota("tom", topics=2)
        with tom.subscribe("parcels", subscription="one", **options) as consumer:
            take(consumer)
        made = {each.name: each for each in root.admin.topics() if "parcels%one" in each.name}
        assert sorted(made) == ["%DLQ%parcels%one", "%RETRY%parcels%one"]
        assert {(len(each.queues), each.owner) for each in made.values()} == {(1, "tom")}
        with (
            pytest.raises(Refused, match="quota"),
            tom.subscribe("parcels", subscription="two", **options) as consumer,
        ):
            consumer.poll(timeout_s=1)
        assert not [each.name for each in root.admin.topics() if "parcels%two" in each.name]
