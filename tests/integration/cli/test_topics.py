"""`topic`, `doctor`, `bench` and help against one embedded node."""

import pytest

from logboom.deploy.polling import ask_until
from tests.integration.cli.command import fail, logboom, succeed
from tests.integration.waiting import wait_until


def test_a_topic_from_creation_to_deletion(servers: str) -> None:
    succeed("topic", "create", "life", "--queues", 2, "--retention", "1h", servers=servers)
    rows = succeed("topic", "list", "-o", "json", servers=servers).json
    assert [row["queues"] for row in rows if row["name"] == "life"] == [2]
    assert "life" in succeed("topic", "list", servers=servers).out.decode()
    succeed("produce", "life", "hello", "--queue", 1, servers=servers)
    shown = succeed("topic", "describe", "life", "-o", "json", servers=servers).json
    assert shown["config"]["retention_ms"] == 3_600_000
    assert [queue["next_offset"] for queue in shown["queues"]] == [0, 1]
    assert {queue["leader"] for queue in shown["queues"]} == {"broker-1"}
    table = succeed("topic", "describe", "life", servers=servers).out.decode()
    assert "kept for 1h" in table
    succeed("topic", "alter", "life", "--queues", 3, "--retention", "2h", servers=servers)
    shown = succeed("topic", "describe", "life", "-o", "json", servers=servers).json
    assert shown["config"]["retention_ms"] == 7_200_000
    assert len(shown["queues"]) == 3
    assert "--yes" in fail("topic", "delete", "life", servers=servers)
    succeed("topic", "delete", "life", "--yes", servers=servers)
    assert "life" in fail("topic", "describe", "life", servers=servers)


def test_the_doctor_finds_nothing_wrong(servers: str) -> None:
    # A node that is slow to answer fails too.
    done = ask_until(
        lambda: logboom("doctor", "-o", "json", servers=servers), lambda done: done.code == 0, 200.0
    )
    assert done.code == 0, done.out
    rows = done.json
    assert {row["result"] for row in rows} <= {"ok", "warning"}
    checks = {row["check"] for row in rows}
    assert {"raft leader", "node broker-1", "node name-1", "every queue has a leader"} <= checks


def test_the_doctor_says_what_does_not_answer() -> None:
    done = logboom("doctor", "-s", "127.0.0.1:9", "-o", "json")
    assert done.code == 1
    (silent,) = (row for row in done.json if row["result"] == "failed")
    assert silent["check"] == "node 127.0.0.1:9"
    assert silent["fix"]


def test_the_bench_measures(servers: str) -> None:
    few = ["--messages", "20000", "--json"]
    produced = succeed("bench", "produce", *few, servers=servers).json
    assert produced["messages"] == 20_000
    assert produced["messages_per_s"] > 0
    assert produced["latency_ms_p50"] <= produced["latency_ms_p99"]
    consumed = succeed("bench", "consume", *few, servers=servers).json
    assert consumed["messages"] >= 20_000
    e2e = ("bench", "e2e", "--seconds", 1, "-t", "e2e", "--json")
    # It waits ten seconds for the last ones, which a busy machine may take.
    timed = ask_until(
        lambda: succeed(*e2e, servers=servers).json, lambda told: told["messages"] == 1_000, 200.0
    )
    assert timed["messages"] == 1_000
    names = [row["name"] for row in succeed("topic", "list", "-o", "json", servers=servers).json]
    assert "e2e" not in names, "what the bench made it takes away"
    assert "msg/s" in succeed("bench", "consume", servers=servers).out.decode()


@pytest.mark.parametrize(
    "command",
    [
        "",
        "cluster up",
        "cluster down",
        "cluster status",
        "cluster logs",
        "dev",
        "node name-server",
        "node broker",
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "produce",
        "consume",
        "message get",
        "message find",
        "message trace",
        "bench produce",
        "bench consume",
        "bench e2e",
        "doctor",
    ],
)
def test_every_help_teaches_by_an_example(command: str) -> None:
    shown = succeed(*command.split(), "--help").out.decode()
    # Not the usage line, which every help has.
    assert f"logboom {command}".strip() in shown.partition("\n")[2]


def test_the_latest_of_each_key(servers: str) -> None:
    succeed("topic", "create", "prices", "-q", 1, "--compaction", "on", servers=servers)
    for value in ("1", "2", "3"):
        succeed("produce", "prices", value, "--key", "a", servers=servers)
    succeed("produce", "prices", "b's", "--key", "b", servers=servers)

    def horizon() -> int | None:
        shown = succeed("topic", "describe", "prices", "-o", "json", servers=servers).json
        found: int | None = shown["queues"][0]["horizon"]
        return found

    wait_until(lambda: horizon() == 4, "all of the topic is compacted")
    table = succeed("topic", "describe", "prices", servers=servers).out.decode()
    assert "compacted" in table
    assert "HORIZON" in table
    read = succeed("consume", "prices", "--compacted", "-e", "-f", "%k=%s\\n", servers=servers)
    assert read.out == b"a=3\nb=b's\n"
    assert len(succeed("consume", "prices", "-e", servers=servers).out.splitlines()) == 4
    assert "--compacted" in fail("consume", "prices", "--compacted", "-g", "g", servers=servers)
    succeed("topic", "alter", "prices", "--compaction", "off", servers=servers)
    wait_until(lambda: horizon() is None, "it is not compacted any more")
