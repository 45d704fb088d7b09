"""What the audit log says, and what it never says."""

import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from logboom.wire.access.access_commands import AddRule, AddUserKey, AlterUser, CreateUser
from logboom.wire.access.access_rules import AccessRule, Quota, UserKey, principal_of
from logboom.wire.actor import Instant
from logboom.wire.audit_log import (
    COUNTED_EVERY_S,
    MAX_LINE_BYTES,
    MAX_LISTED,
    MAX_SHARES,
    MAX_TEXT_CHARS,
    MAX_UNTAKEN,
    SHARE_BYTES,
    AuditEntry,
    AuditLog,
    details_of,
    entry_about,
    lost_line,
)
from logboom.wire.commands import CreateTopic
from logboom.wire.event_table import Plain
from logboom.wire.view import TopicConfig

PUBLIC = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
KEY = UserKey("laptop", PUBLIC, 5, 9)
NOON = Instant(100.0, 1_795_000_000_123)


def told(log: AuditLog) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.take()]


def test_a_line_says_when_where_who_and_what() -> None:
    log = AuditLog("name-1")
    log.begin(NOON)
    entry = entry_about("command", principal_of("alice", KEY), "10.0.0.9", "me")
    entry.request, entry.result = "createtopic", "ok"
    log.note(entry)
    (line,) = told(log)
    mark = line.pop("key")
    assert mark.startswith("laptop#")
    assert line == {
        "time": "2026-11-18T11:06:40.123+00:00",
        "node": "name-1",
        "event": "command",
        "user": "alice",
        "address": "10.0.0.9",
        "client": "me",
        "request": "createtopic",
        "result": "ok",
    }
    assert told(log) == []


def test_the_questions_of_the_page_have_answers(tmp_path: Path) -> None:
    """Lines without a request or a number are passed over, not an error."""
    if shutil.which("jq") is None:
        # It is a tool of the reader's, and nothing else here needs it: that all guard what a line
        # may lack is looked at below without it.
        pytest.skip("jq is missing: sudo apt-get install jq")
    page = (Path(__file__).parents[3] / "docs" / "SECURITY.md").read_text("utf-8")
    asked = re.findall("jq -.*", page.partition("## Audit log")[2].partition("\n## ")[0])
    log = AuditLog("name-1")
    log.begin(NOON)
    for event, request in (("command", "createrole"), ("authentication", ""), ("refused", "pull")):
        entry = entry_about(event, principal_of("alice", KEY), "10.0.0.9", "me")
        entry.request, entry.result = request, "ok"
        log.note(entry)
    lines = b"\n".join(line.strip() for line in [*log.take(), lost_line("name-1", NOON, 3)])
    (tmp_path / "audit.log").write_bytes(lines)
    for each in asked:
        told = subprocess.run(
            ["sh", "-c", each], cwd=tmp_path, input=lines, capture_output=True, check=False
        )
        assert (told.returncode, told.stderr) == (0, b""), each
        assert told.stdout, each
    assert len(asked) == 3


def test_no_question_of_the_page_searches_a_field_that_a_line_may_lack() -> None:
    page = (Path(__file__).parents[3] / "docs" / "SECURITY.md").read_text("utf-8")
    searched = re.findall(r"select\((\.[^|)]*)\|\s*test\(", page)
    assert searched
    assert [each for each in searched if "//" not in each] == []


def test_refusals_are_told_once_a_second_for_each_user_and_address() -> None:
    log = AuditLog("broker-1")
    for at in range(100):
        log.begin(Instant(100 + at / 100, 0))
        for user in ("alice", "bob"):
            log.refused(AuditEntry(event="refused", user=user, address="a", request_id=at))
    assert [(each["user"], each["count"]) for each in told(log)] == [("alice", 1), ("bob", 1)]
    log.begin(Instant(102.0, 0))
    last = [(each["user"], each["count"], each["request_id"]) for each in told(log)]
    assert last == [("alice", 99, 99), ("bob", 99, 99)]


def test_many_strangers_share_a_line() -> None:
    log = AuditLog("broker-1")
    log.begin(Instant(1.0, 0))
    for at in range(1_000):
        log.refused(AuditEntry(event="refused", address=f"10.0.{at}"))
    log.begin(Instant(3.0, 0))
    lines = told(log)
    assert len(lines) < 60
    assert sum(line["count"] for line in lines) == 1_000


def test_lines_that_nobody_takes_are_bounded_and_counted() -> None:
    log = AuditLog("broker-1")
    for _ in range(MAX_UNTAKEN + 5):
        log.note(AuditEntry(event="command"))
    assert log.lost == 5
    assert len(log.take()) == MAX_UNTAKEN
    assert json.loads(lost_line("broker-1", NOON, 5))["count"] == 5


def test_without_a_file_no_lines_are_kept() -> None:
    log = AuditLog("broker-1")
    for verb in ("admin", "manage"):
        for _ in range(MAX_UNTAKEN):
            log.managed(AuditEntry(event="command", verb=verb))
        log.drop()
    assert (log.take(), log.take_kept(), log.lost) == ([], [], 0)


def test_what_a_peer_says_cannot_make_a_line_of_its_own() -> None:
    log = AuditLog("broker-1")
    log.note(AuditEntry(event="refused", client='x"}\n{"user":"root"}' + "y" * 10_000))
    (line,) = log.take()
    assert line.count(b"\n") == 1
    assert len(json.loads(line)["client"]) == MAX_TEXT_CHARS


class Strange(Struct):
    """A command that none is yet."""

    name: str
    body: bytes
    parts: list[bytes]
    many: list[int]
    keys: list[UserKey]


@pytest.mark.parametrize(
    ("command", "details"),
    [
        (
            CreateTopic("t", 4, 0, TopicConfig(retention_ms=7), 99),
            {"name": "t", "queues": 4, "replicas": 0, "config": {"retention_ms": 7}},
        ),
        (AddUserKey("al", KEY), {"name": "al", "key": {"label": "laptop", "end_ms": 9}}),
        (
            CreateUser("al", [KEY], ["r"], 1),
            {"name": "al", "keys": [{"label": "laptop", "end_ms": 9}], "roles": ["r"]},
        ),
        (
            AlterUser("al", True, None, Quota(produce_bytes_per_s=5), 1),
            {"name": "al", "disabled": True, "quota": {"produce_bytes_per_s": 5}},
        ),
        (
            AddRule("user:al", AccessRule(True, "read", "topic", "o.*")),
            {"holder": "user:al", "rule": "allow read topic o.*"},
        ),
        (
            Strange("n", b"secret", [b"secret"], list(range(50)), []),
            {
                "name": "n",
                "parts": [],
                "many": [*range(MAX_LISTED), "and 30 more"],
                "keys": [],
            },
        ),
    ],
)
def test_details_are_names_and_settings(command: Struct, details: dict[str, Any]) -> None:
    assert details_of(command) == details
    assert PUBLIC not in str(details_of(command))


def test_numbers_of_refusals_are_never_lost() -> None:
    rng, log, refused, now = random.Random(3), AuditLog("n"), 0, 0.0
    lines: list[dict[str, Any]] = []
    for _ in range(5_000):
        now += rng.random() / 100
        log.begin(Instant(now, 0))
        log.refused(AuditEntry(event="refused", user=str(rng.randrange(30))))
        refused += 1
    for _ in range(5):
        lines += told(log)
        now += 1.5
        log.begin(Instant(now, 0))
    assert sum(line["count"] for line in [*lines, *told(log)]) == refused


def test_what_would_steer_a_terminal_or_end_a_line_is_escaped() -> None:
    text = "a\u2028b\u2029c\u202ed\u2066e\u0085f\u200bg\U000e0041é"
    log = AuditLog("n")
    log.note(AuditEntry(event="refused", client=text, details={"name": text}))
    (line,) = log.take()
    written = line.decode()
    assert written.removesuffix("\n").isprintable()
    assert "é" in written
    assert json.loads(line)["client"] == json.loads(line)["details"]["name"] == text


def test_a_line_is_bounded_whatever_is_asked() -> None:
    log = AuditLog("n")
    escaped = "\U000e0041" * 1_000
    listed: list[Plain] = ["x" * 200] * 30
    log.note(AuditEntry(event="command", resource="topic:t", details={"many": listed}))
    log.note(
        AuditEntry(
            event="command", resource="topic:t", details={f"{n}": "x" * 256 for n in range(99)}
        )
    )
    log.note(AuditEntry(event="refused", user="al", client=escaped, resource=escaped, rule=escaped))
    lines = log.take()
    assert all(len(line) <= MAX_LINE_BYTES for line in lines)
    whole, without, short = map(json.loads, lines)
    assert "left_out_bytes" not in whole["details"]
    assert without["details"]["left_out_bytes"] > MAX_LINE_BYTES
    assert without["resource"] == "topic:t"
    assert (short["user"], short["client"][:9]) == ("al", escaped[:9])


def test_beyond_a_share_there_is_a_number_at_once_and_every_hour() -> None:
    log, now = AuditLog("n"), 0.0
    told_lines: list[dict[str, Any]] = []
    for at in range(40_000):
        now = at / 8
        log.begin(Instant(now, 0))
        log.managed(AuditEntry(event="command", user="al", resource="topic:t", request_id=at + 1))
        told_lines += told(log)
    assert "count" not in told_lines[0]
    beyond = [line for line in told_lines if line.get("beyond_share")]
    assert beyond[0]["count"] == 1
    assert beyond[-1]["request_id"] > beyond[0]["request_id"]
    log.flush()
    beyond += told(log)
    assert len(beyond) <= 3 + now / COUNTED_EVERY_S
    ordinary = [line for line in told_lines if not line.get("beyond_share")]
    assert len(ordinary) + sum(line["count"] for line in beyond) == 40_000
    # Another user has a share of its own.
    log.managed(AuditEntry(event="command", user="bob"))
    assert [line["user"] for line in told(log)] == ["bob"]


def test_a_user_beyond_its_share_takes_no_place_of_others_refusals() -> None:
    log = AuditLog("n")
    log.begin(Instant(0.0, 0))
    for at in range(2 * SHARE_BYTES // 100):
        log.begin(Instant(at / 10, 0))
        log.refused(AuditEntry(event="refused", user="al", address=f"{at}", rule="x" * 200))
    log.take()
    for at in range(100):
        log.refused(AuditEntry(event="refused", user="al", address=f"more {at}"))
    log.refused(AuditEntry(event="refused", user="bob", address="b"))
    assert [line["user"] for line in told(log)] == ["bob"]


def test_the_first_refusal_of_a_user_has_a_line_however_many_others_are_refused() -> None:
    log = AuditLog("name-1")
    for second in range(5):
        log.begin(Instant(100.0 + second, NOON.wall_ms))
        for number in range(1_000):
            log.refused(AuditEntry(event="authentication", address=f"10.{second}.{number}"))
        log.take()
        log.refused(AuditEntry(event="refused", user=f"ann {second}", resource="topic:secrets"))
        (line,) = told(log)
        assert (line["user"], line["resource"]) == (f"ann {second}", "topic:secrets")


def test_who_only_says_that_it_is_a_user_uses_up_the_share_of_strangers() -> None:
    log = AuditLog("console")
    for at in range(2 * SHARE_BYTES // 100):
        log.begin(Instant(float(at), 0))
        log.refused(AuditEntry(event="authentication", user="ada", rule="x" * 200), known=False)
        log.take()
    log.refused(AuditEntry(event="refused", user="ada", request_id=7))
    assert [line["request_id"] for line in told(log)] == [7]


def use_up_share(log: AuditLog, user: str = "", address: str = "") -> int:
    """Have one do things until a line says that its share is used up; the bytes of lines until then."""
    size = 0
    while True:
        log.managed(AuditEntry(event="command", resource="topic:t", user=user, address=address))
        (line,) = log.take()
        if json.loads(line).get("beyond_share"):
            return size
        size += len(line)


def test_a_share_is_no_larger_after_a_long_time() -> None:
    log = AuditLog("n")
    for week in range(3):
        log.begin(Instant(7 * 86_400.0 * week, 0))
        log.take()
        assert SHARE_BYTES <= use_up_share(log, user="al") < SHARE_BYTES + MAX_LINE_BYTES


def test_each_peer_without_a_user_has_a_share_for_what_it_does() -> None:
    log = AuditLog("n")
    log.begin(NOON)
    use_up_share(log, address="10.0.0.1")
    log.managed(AuditEntry(event="command", address="10.0.0.1"))
    assert not log.take()
    log.managed(AuditEntry(event="command", address="10.0.0.2"))
    assert [line["address"] for line in told(log)] == ["10.0.0.2"]


def test_shares_are_bounded_and_those_of_the_quiet_are_forgotten_first() -> None:
    log = AuditLog("n")
    log.begin(NOON)
    use_up_share(log, user="quiet")
    use_up_share(log, user="loud")
    for number in range(MAX_SHARES):
        log.managed(AuditEntry(event="command", address=f"{number}"))
        if not number:
            log.managed(AuditEntry(event="command", user="loud"))
        log.take()
    assert len(vars(log)["_shares"]) == MAX_SHARES
    log.managed(AuditEntry(event="command", user="loud"))
    assert not log.take()
    log.managed(AuditEntry(event="command", user="quiet"))
    assert [line["user"] for line in told(log)] == ["quiet"]


def test_the_number_beyond_a_share_is_told_within_an_hour_though_nothing_more_happens() -> None:
    log = AuditLog("n")
    log.begin(NOON)
    use_up_share(log, user="al")
    for _ in range(5):
        log.managed(AuditEntry(event="command", user="al"))
    assert not log.take()
    log.begin(Instant(NOON.mono + COUNTED_EVERY_S, NOON.wall_ms))
    (line,) = told(log)
    assert (line["count"], line["beyond_share"]) == (5, True)
