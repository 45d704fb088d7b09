"""`logboom dlq` against one embedded node."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client import Client, Message, connect
from logboom.deploy.polling import ask_until
from tests.integration.cli.command import fail, succeed
from tests.integration.waiting import wait_until


# Some twenty commands, each of which takes seconds to start on a machine that does other work too.
@pytest.mark.thorough
def test_dead_letters_are_shown_and_sent_again(servers: str) -> None:
    # A member that stands still for less than the session gets nothing a second time.
    hasty: dict[str, Any] = {"max_attempts": 1, "heartbeat_ms": 100, "session_ms": 60_000}
    got: list[tuple[str, int, bytes | None]] = []

    def refuse(message: Message) -> None:
        raise OSError("the bank is closed")

    def take(message: Message) -> None:
        got.append((message.topic, message.attempt, message.value))

    with connect(servers) as boom:
        boom.admin.create_topic("wages", queues=1)
        with boom.producer() as producer:
            for n in range(3):
                producer.send("wages", b"%d" % n, key=b"k", queue=0).result()
        with boom.push_consumer("wages", group="payroll", listener=refuse, **hasty):

            def listed() -> dict[str, dict[str, Any]]:
                rows = succeed("dlq", "list", "-o", "json", servers=servers).json
                return {row["group"]: row for row in rows}

            found = ask_until(
                listed, lambda found: found.get("payroll", {}).get("messages") == 3, 200.0
            )
        assert found["payroll"]["open"] == 3
        shown = succeed("dlq", "show", "payroll", "-o", "json", servers=servers).json
        # Three threads gave them up, each when it came to it.
        assert sorted(row["value"] for row in shown) == ["0", "1", "2"]
        assert {row["origin"] for row in shown} == {f"wages/0/{n}" for n in range(3)}
        assert {row["cause"] for row in shown} == {"OSError: the bank is closed"}
        table = succeed("dlq", "show", "payroll", "-c", 1, servers=servers).out.decode()
        assert "wages/0/0" in table
        counted = succeed("dlq", "redrive", "payroll", servers=servers)
        assert "3 messages would be sent" in counted.err
        succeed("dlq", "redrive", "payroll", "--count", 1, "--yes", servers=servers)
        rest = succeed("dlq", "redrive", "payroll", "--yes", servers=servers)
        assert "sent 2 messages" in rest.err
        none = succeed("dlq", "redrive", "payroll", "--yes", servers=servers)
        assert "sent 0 messages" in none.err
        assert succeed("dlq", "show", "payroll", "-o", "json", servers=servers).json == []
        every = succeed("dlq", "show", "payroll", "--all", "-o", "json", servers=servers)
        assert len(every.json) == 3
        with boom.push_consumer("wages", group="payroll", listener=take):
            wait_until(lambda: len(got) >= 3, "they do not come again")
        wait_left(boom, "payroll")
    assert sorted(got) == [("wages", 1, b"%d" % n) for n in range(3)]
    assert "does not exist" in fail("dlq", "show", "nobody", servers=servers)
    assert "1 or more" in fail("dlq", "redrive", "payroll", "--count", 0, servers=servers)
    after_the_group_is_gone(servers)


def after_the_group_is_gone(servers: str) -> None:
    """Its dead letters stay until they are deleted, its retries do not."""
    own = "is a group's own"
    assert own in fail("topic", "delete", "%DLQ%payroll", "--yes", servers=servers)
    succeed("topic", "alter", "%DLQ%payroll", "--retention", "90d", servers=servers)
    gone = succeed("group", "delete", "payroll", "--yes", servers=servers)
    assert gone.err == "deleted payroll; 3 dead letters stay in %DLQ%payroll\n"
    assert "%RETRY%payroll" not in topics(servers)
    assert len(succeed("dlq", "show", "payroll", "-o", "json", servers=servers).json) == 3
    (row,) = succeed("dlq", "list", "-o", "json", servers=servers).json
    assert (row["group"], row["messages"]) == ("payroll", 3)
    no_group = fail("dlq", "redrive", "payroll", "--yes", servers=servers)
    assert "group 'payroll' does not exist" in no_group
    succeed("topic", "delete", "%DLQ%payroll", "--yes", servers=servers)
    assert "%DLQ%payroll" not in topics(servers)


def wait_left(boom: Client, group: str) -> None:
    """Wait until the group has no member: one that leaves waits only some seconds for the answer."""
    wait_until(lambda: not boom.admin.describe_group(group).members, "its member does not leave")


def topics(servers: str) -> list[str]:
    """Names of all topics."""
    return [row["name"] for row in succeed("topic", "list", "-o", "json", servers=servers).json]


def test_an_empty_dead_letter_topic_goes_with_its_group(servers: str) -> None:
    with connect(servers) as boom:
        boom.admin.create_topic("raises", queues=1)
        with boom.consumer("raises", group="hr", heartbeat_ms=100, session_ms=3_000):
            wait_until(lambda: {"%RETRY%hr", "%DLQ%hr"} <= set(topics(servers)), "no topics")
        wait_left(boom, "hr")
    done = succeed("group", "delete", "hr", "--yes", servers=servers)
    assert done.err == "deleted hr\n"
    assert not {"%RETRY%hr", "%DLQ%hr"} & set(topics(servers))
