"""`logboom group` against one embedded node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.command import environment, fail, logboom, succeed
from tests.integration.waiting import wait_until


@pytest.fixture(scope="module")
def group(servers: str) -> str:
    """A group without members that reads two queues with five messages."""
    succeed("topic", "create", "bills", "--queues", 2, servers=servers)
    for queue, count in ((0, 3), (1, 2)):
        for number in range(count):
            succeed("produce", "bills", f"bill {number}", "--queue", queue, servers=servers)
    succeed("group", "alter", "billing", "--create", "--subscribe", "bills", servers=servers)
    return "billing"


def test_a_group_is_listed_and_described(servers: str, group: str) -> None:
    rows = succeed("group", "list", "-o", "json", servers=servers).json
    (row,) = (row for row in rows if row["name"] == group)
    assert (row["state"], row["members"], row["coordinator"]) == ("empty", 0, "broker-1")
    told = succeed("group", "describe", group, "-o", "json", servers=servers).json
    assert told["subscription"] == {"bills": "*"}
    lines = {q["queue"]: q for q in told["queues"] if q["topic"] == "bills"}
    assert [(lines[n]["committed"], lines[n]["end"], lines[n]["lag"]) for n in (0, 1)] == [
        (0, 3, 3),
        (0, 2, 2),
    ]
    assert lines[0]["age_ms"] > 0
    assert lines[0]["stuck"] == "the group has no member"
    table = succeed("group", "describe", group, servers=servers).out.decode()
    assert "billing: empty, clustering, strategy sticky, 0 members, 5 messages behind" in table
    assert "the group has no member" in table


def test_a_reset_is_a_plan_until_it_is_meant(servers: str, group: str, tmp_path: Path) -> None:
    def committed() -> list[int]:
        told = succeed("group", "describe", group, "-o", "json", servers=servers)
        (tmp_path / "kept.json").write_bytes(told.out)
        return [q["committed"] for q in told.json["queues"] if q["topic"] == "bills"]

    only = ("group", "reset", group, "--topic", "bills")
    assert committed() == [0, 0]
    kept = (tmp_path / "kept.json").rename(tmp_path / "first.json")
    planned = succeed(*only, "--to", "last", "-o", "json", servers=servers)
    assert [(line["target"], line["change"]) for line in planned.json] == [(3, 3), (2, 2)]
    assert "--yes" in planned.err
    assert committed() == [0, 0]
    succeed(*only, "--to", "last", "--yes", servers=servers)
    assert committed() == [3, 2]
    succeed(*only, "--shift", -1, "--queue", 1, "--yes", servers=servers)
    assert committed() == [3, 1]
    succeed("group", "reset", group, "--offset", "bills/0=1", "--yes", servers=servers)
    assert committed() == [1, 1]
    succeed("group", "reset", group, "--file", kept, "--yes", servers=servers)
    assert committed() == [0, 0]
    succeed(*only, "--to", "2001-01-01T00:00:00Z", "--yes", servers=servers)
    assert committed() == [0, 0]


def test_a_member_on_the_command_line_goes_on_where_its_group_was(servers: str) -> None:
    succeed("topic", "create", "member", "--queues", 2, servers=servers)
    lines = b"".join(b"%d\n" % n for n in range(10))
    succeed("produce", "member", servers=servers, stdin=lines)
    member = ("consume", "member", "--group", "shell")
    first = succeed(*member, "--count", 4, servers=servers).lines
    rest = succeed(*member, "--exit", servers=servers).lines
    assert sorted(map(int, first + rest)) == list(range(10))
    assert succeed(*member, "--exit", servers=servers).lines == []
    told = succeed("group", "describe", "shell", "-o", "json", servers=servers).json
    assert {queue["lag"] for queue in told["queues"] if queue["topic"] == "member"} == {0}
    late = ("consume", "member", "--group", "late", "--exit")
    assert succeed(*late, "--offset", "last", servers=servers).lines == []
    assert "say --group or --queue" in fail(*member, "--queue", 0, servers=servers)
    assert "logboom group reset" in fail(*member, "--offset", 3, servers=servers)
    mismatch = fail(*member, "--tags", "late", servers=servers)
    assert "filters 'member' by 'late', not '*'" in mismatch


def test_what_is_wrong_is_said_in_one_line(servers: str, group: str) -> None:
    assert "does not exist" in fail("group", "describe", "nobody", servers=servers)
    assert "with --to, --offset" in fail("group", "reset", group, servers=servers)
    assert "not 9" in fail("group", "reset", group, "--offset", "bills/0=9", servers=servers)
    wrong = ("group", "alter", group, "--subscribe", "bills=* WHERE price >")
    assert "at character 16" in fail(*wrong, servers=servers)
    assert "nothing to change" in fail("group", "alter", group, servers=servers)
    assert "choose one of" in fail("group", "alter", group, "--strategy", "best", servers=servers)
    assert "--yes" in fail("group", "delete", group, servers=servers)


def test_a_member_has_a_room(servers: str) -> None:
    succeed("topic", "create", "housed", "-q", 1, servers=servers)
    assert "--group" in fail("consume", "housed", "--room", "north", servers=servers)
    words = ["consume", "housed", "--group", "housed", "--room", "north"]
    with subprocess.Popen(
        [sys.executable, "-m", "logboom", *words], env=environment(servers)
    ) as member:
        try:

            def rooms() -> list[str]:
                told = logboom("group", "describe", "housed", "-o", "json", servers=servers)
                return [m["room"] for m in told.json["members"]] if told.code == 0 else []

            wait_until(lambda: rooms() == ["north"], "it does not say where it is")
        finally:
            member.terminate()


def test_a_group_is_altered_and_forgotten(servers: str) -> None:
    succeed("group", "alter", "short", "--create", "--subscribe", "bills=b||a", servers=servers)
    succeed("group", "alter", "short", "--session", "30s", servers=servers)
    told = succeed("group", "describe", "short", "-o", "json", servers=servers).json
    assert told["subscription"] == {"bills": "a || b"}
    assert told["config"]["session_ms"] == 30_000
    assert told["config"]["heartbeat_ms"] == 3_000
    succeed("group", "alter", "short", "--paused", servers=servers)
    assert "short: paused," in succeed("group", "describe", "short", servers=servers).out.decode()
    succeed("group", "alter", "short", "--no-paused", servers=servers)
    told = succeed("group", "describe", "short", "-o", "json", servers=servers).json
    assert told["config"]["paused"] is False
    succeed("group", "delete", "short", "--yes", servers=servers)
    rows = succeed("group", "list", "-o", "json", servers=servers).json
    assert "short" not in [row["name"] for row in rows]


def test_a_strategy_without_what_it_needs_is_refused(servers: str) -> None:
    alter = ("group", "alter", "rooms", "--strategy")
    succeed("group", "alter", "rooms", "--create", "--subscribe", "bills", servers=servers)
    said = fail(*alter, "by_config", servers=servers)
    assert "by_config needs a configuration" in said
    assert "--assign MEMBER=TOPIC/QUEUES" in said
    assert "machine_room needs the rooms" in fail(*alter, "machine_room", servers=servers)
    told = succeed("group", "describe", "rooms", "-o", "json", servers=servers).json
    assert told["config"]["strategy"] == "sticky"
    succeed(*alter, "by_config", "--assign", "a=bills/0-1", "--assign", "b=x/0", servers=servers)
    succeed("group", "alter", "rooms", "--virtual-nodes", 7, servers=servers)
    succeed(*alter, "machine_room", "--rooms", "north, south", servers=servers)
    config = succeed("group", "describe", "rooms", "-o", "json", servers=servers).json["config"]
    assert config["strategy"] == "machine_room"
    assert config["options"] == {
        "config": {"a": [["bills", 0], ["bills", 1]], "b": [["x", 0]]},
        "rooms": ["north", "south"],
        "virtual_nodes": 7,
    }
    twice = ("--assign", "a=bills/0", "--assign", "b=bills/0-1")
    assert "give it to one" in fail(*alter, "by_config", *twice, servers=servers)
