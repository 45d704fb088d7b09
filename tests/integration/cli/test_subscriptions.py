"""`logboom subscription` against one embedded node."""

from __future__ import annotations

import pytest

from logboom.client import Client, Message, connect
from logboom.deploy.polling import ask_until
from tests.integration.cli.command import fail, succeed
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module")
def topic(servers: str) -> str:
    """A topic of two queues with five messages, and subscription "billing" that acknowledged one."""
    succeed("topic", "create", "bought", "--queues", 2, servers=servers)
    with connect(servers) as boom:
        with boom.producer() as producer:
            for queue, count in ((0, 3), (1, 2)):
                for number in range(count):
                    producer.send("bought", b"%d" % number, queue=queue).result(200)
        settings = {"subscription": "billing", "type": "shared", "start": "first"}
        with boom.subscribe("bought", **settings) as consumer:  # type: ignore[arg-type]  # texts
            found: list[Message] = []
            while len(found) < 5:
                found += consumer.poll(timeout_s=10)
            consumer.ack([m for m in found if (m.queue, m.offset) == (0, 1)])
            consumer.flush()
        wait_alone(boom)
    return "bought"


def wait_alone(boom: Client) -> None:
    """Wait until the brokers have heard that the consumer of "billing" left: it waits for no answer."""

    def alone() -> bool:
        queues = boom.admin.subscriptions.describe("bought", "billing")
        return not any(each.state.consumers or each.state.held for each in queues)

    wait_until(alone, "its consumer does not leave")


def test_it_is_listed_and_described(servers: str, topic: str) -> None:
    (row,) = succeed("subscription", "list", topic, "-o", "json", servers=servers).json
    assert row == {
        "name": "billing",
        "type": None,
        "queues": 2,
        "consumers": 0,
        "unacked": 4,
        "held": 0,
    }
    told = succeed("subscription", "describe", topic, "billing", "-o", "json", servers=servers).json
    assert [(q["queue"], q["floor"], q["acked"]) for q in told] == [(0, 0, [[1, 2]]), (1, 0, [])]
    table = succeed("subscription", "describe", topic, "billing", servers=servers).lines
    assert table[0].split() == [
        "QUEUE",
        "FLOOR",
        "END",
        "UNACKED",
        "HELD",
        "WAITING",
        "REDELIVERED",
        "UNCOVERED",
    ]
    with (
        connect(servers) as boom,
        boom.subscribe(
            topic, subscription="billing", type="key_shared", name="me", messages_per_s=5_000
        ),
    ):
        shown = succeed("subscription", "describe", topic, "billing", servers=servers)
        assert any("me" in line and "0-65535" in line for line in shown.lines)
        assert "billing: key_shared, messages_per_s 5000" in shown.err
        told = succeed("subscription", "describe", topic, "billing", "-o", "json", servers=servers)
        assert told.json[0]["consumers"][0]["name"] == "me"
        assert told.json[0]["config"]["messages_per_s"] == 5_000
        text = fail("subscription", "delete", topic, "billing", "--yes", servers=servers)
        assert "force" in text
    with connect(servers) as boom:
        wait_alone(boom)


def test_peek_skip_reset_and_delete(servers: str, topic: str) -> None:
    peeked = succeed(
        "subscription", "peek", topic, "billing", "-q", 0, "-o", "json", servers=servers
    ).json
    assert [row["offset"] for row in peeked] == [0, 2]
    plan = succeed("subscription", "skip", topic, "billing", 1, "-o", "json", servers=servers)
    assert [(line["floor"], line["target"]) for line in plan.json] == [(0, 1), (0, 1)]
    assert "--yes" in plan.err

    def floors() -> list[int]:
        told = succeed("subscription", "describe", topic, "billing", "-o", "json", servers=servers)
        return [line["floor"] for line in told.json]

    assert floors() == [0, 0]
    succeed("subscription", "skip", topic, "billing", 1, "--yes", servers=servers)
    # What was acknowledged above stays so.
    assert floors() == [2, 1]
    only = ("subscription", "reset", topic, "billing")
    succeed(*only, "--to", "first", "--queue", 0, "--yes", servers=servers)
    assert floors() == [0, 1]
    succeed(*only, "--to", "last", "--yes", servers=servers)
    assert floors() == [3, 2]
    succeed("subscription", "delete", topic, "billing", "--yes", servers=servers)
    assert "billing" in fail("subscription", "describe", topic, "billing", servers=servers)


def test_what_is_not_there(servers: str, topic: str) -> None:
    assert "nobody" in fail("subscription", "describe", topic, "nobody", servers=servers)
    assert "messages" in fail("subscription", "skip", topic, "billing", 0, servers=servers)
    assert "is not a reset target" in fail(
        "subscription", "reset", topic, "billing", "--to", "moon", servers=servers
    )


def test_its_dead_letters_are_shown_and_sent_again(servers: str) -> None:
    succeed("topic", "create", "refused", "--queues", 1, servers=servers)
    with connect(servers) as boom, boom.producer() as producer:
        producer.send("refused", b"bad").result(200)
        with boom.subscribe(
            "refused", subscription="s", type="shared", start="first", max_attempts=1
        ) as consumer:
            (message,) = consumer.poll(timeout_s=200)
            consumer.nack(message, cause="no such customer")
            consumer.flush()
            # The consumer writes it meanwhile.
            (row,) = ask_until(
                lambda: succeed("dlq", "show", "refused%s", "-o", "json", servers=servers).json,
                bool,
                200.0,
            )
            assert (row["origin"], row["attempts"]) == ("refused/0/0", 1)
            assert row["cause"] == "no such customer"
            told = succeed("dlq", "redrive", "refused%s", "--yes", servers=servers)
            assert "sent 1 message " in told.err
            (again,) = consumer.poll(timeout_s=200)
            assert (again.topic, again.offset, again.value) == ("refused", 0, b"bad")
            consumer.ack(again)
            consumer.flush()
    told = succeed("dlq", "redrive", "refused%s", servers=servers)
    assert "0 messages would be sent" in told.err
