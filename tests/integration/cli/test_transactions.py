"""`logboom transaction` against one embedded node."""

from __future__ import annotations

from typing import Any

from logboom.client import Client, connect
from tests.integration.cli.command import fail, succeed


def listed(servers: str, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = succeed(
        "transaction", "list", *arguments, "-o", "json", servers=servers
    ).json
    return rows


def read(boom: Client, topic: str) -> list[bytes | None]:
    return [message.value for message in boom.pull(topic, 0, 0).messages]


def test_a_transaction_is_seen_and_decided_by_a_person(servers: str) -> None:
    with connect(servers) as boom:
        boom.admin.create_topic("wires", queues=1)
        for sequence in (1, 2):
            boom.park([("wires", 0, [b"%d" % sequence] * 2)], "bank", 5, sequence)
        boom.park([("wires", 0, [b"other"])], "bank", 6, 2)
        rows = listed(servers, "bank")
        assert [(r["sequence"], r["attempt"], r["messages"]) for r in rows] == [
            (1, 5, 2),
            (2, 5, 2),
            (2, 6, 1),
        ]
        assert {row["kind"] for row in rows} == {"transaction"}
        table = succeed("transaction", "list", servers=servers).out.decode()
        assert "wires/0" in table
        shown = succeed("transaction", "show", "bank", "-n", 2, "-o", "json", servers=servers).json
        assert [(row["topic"], row["messages"]) for row in shown] == [("wires", 2), ("wires", 1)]
        assert "bytes" in shown[0]
        assert succeed("transaction", "show", "bank", servers=servers).lines[0].startswith("SEQ")

        dry = succeed("transaction", "commit", "bank", "-n", 1, servers=servers)
        assert "2 messages in wires/0 would be published" in dry.err
        assert read(boom, "wires") == []
        done = succeed("transaction", "commit", "bank", "-n", 1, "--yes", servers=servers)
        assert "published 2 messages in wires/0" in done.err
        assert read(boom, "wires") == [b"1"] * 2
        several = fail("transaction", "abort", "bank", "-n", 2, "--yes", servers=servers)
        assert "--attempt, one of 5, 6" in several
        succeed("transaction", "abort", "bank", "-n", 2, "-a", 6, "--yes", servers=servers)
        assert [row["attempt"] for row in listed(servers, "bank")] == [5]
        succeed("transaction", "abort", "bank", "-n", 2, "--yes", servers=servers)
        assert listed(servers, "bank") == []
        assert read(boom, "wires") == [b"1"] * 2
        assert "nothing of sequence 2" in fail(
            "transaction", "commit", "bank", "-n", 2, "--yes", servers=servers
        )
        assert "say --sequence" in fail("transaction", "commit", "bank", servers=servers)


def test_half_messages_are_decided_one_by_one_or_all(servers: str) -> None:
    with (
        connect(servers) as boom,
        boom.producer() as producer,
        producer.transactional_sender(group="till", check=lambda message: "unknown") as sender,
    ):
        boom.admin.create_topic("sales", queues=1)
        for n in range(4):
            sender.send("sales", b"%d" % n, local=lambda message: "unknown")
        rows = listed(servers, "till")
        assert {row["kind"] for row in rows} == {"half"}
        table = succeed("transaction", "list", "till", servers=servers).out.decode()
        assert rows[0]["half"] in table
        assert (
            rows[0]["half"] in succeed("transaction", "show", "till", servers=servers).out.decode()
        )
        first, second = (row["half"] for row in rows[:2])
        succeed("transaction", "commit", "till", "--half", first, "--yes", servers=servers)
        succeed("transaction", "abort", "till", "--half", second, "--yes", servers=servers)
        assert read(boom, "sales") == [b"0"]
        dry = succeed("transaction", "commit", "till", "--half", "all", servers=servers)
        assert "2 messages in sales/0 would be published" in dry.err
        succeed("transaction", "commit", "till", "--half", "all", "--yes", servers=servers)
        assert read(boom, "sales") == [b"0", b"2", b"3"]
        assert "no such half message" in fail(
            "transaction", "abort", "till", "--half", first, "--yes", servers=servers
        )
        assert "names no half message" in fail(
            "transaction", "abort", "till", "--half", "x", servers=servers
        )
