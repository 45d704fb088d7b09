"""Logs of either form are read, filtered and merged by time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logboom.cli.cluster_commands import logs
from logboom.cli.logged_lines import (
    BLOCK_BYTES,
    LineFilter,
    LoggedLine,
    NodeLog,
    merged,
    parse_lines,
)
from logboom.wire.errors import InvalidRequest

TEXT = '2026-01-02T03:04:05.006Z WARNING name-1 isr_shrunk topic="a b" queue=1 left=b-1,b-2'
JSON = json.dumps(
    {
        "time": "2026-01-02T03:04:05.007Z",
        "level": "error",
        "node": "broker-1",
        "event": "damage_found",
        "topic": "t",
        "queue": 3,
        "text": "it is\nfetched again",
        "logger": "logboom.nodes.replication",
    }
)
TRACE = ["    Traceback (most recent call last):", '      File "x.py"', "    KeyError: 7"]


def parsed(*lines: str, node: str = "name-1") -> list[LoggedLine]:
    return list(parse_lines(lines, node))


def test_both_forms_are_read_alike() -> None:
    text, said = parsed(TEXT, JSON)
    assert (text.time, text.level, text.node, text.event) == (
        "2026-01-02T03:04:05.006Z",
        "warning",
        "name-1",
        "isr_shrunk",
    )
    assert text.fields == {"topic": "a b", "queue": "1", "left": "b-1,b-2"}
    assert (said.level, said.node, said.fields["queue"]) == ("error", "broker-1", 3)
    assert text.shown() == TEXT
    assert said.shown() == (
        "2026-01-02T03:04:05.007Z ERROR broker-1 damage_found topic=t queue=3 "
        'text="it is\\nfetched again"'
    )
    assert json.loads(said.as_json())["text"] == "it is\nfetched again"
    assert json.loads(text.as_json())["left"] == "b-1,b-2"


def test_a_traceback_belongs_to_its_line() -> None:
    first, second = parsed(TEXT, *TRACE, TEXT)
    assert first.shown().split("\n") == [TEXT, *TRACE]
    assert second.trace == []
    assert json.loads(first.as_json())["exception"].endswith("KeyError: 7")
    (of_json,) = parsed(JSON[:-1] + ', "exception": "Traceback\\nKeyError"}')
    assert of_json.trace == ["Traceback", "KeyError"]


def test_what_is_no_line_of_a_log_is_shown_with_the_time_before_it() -> None:
    _, last, odd = parsed(TEXT, "logboom: port 7711 is in use", "{no json \x1b[2J", node="broker-9")
    assert last.shown() == "2026-01-02T03:04:05.006Z - broker-9 logboom: port 7711 is in use"
    assert odd.shown().isprintable()
    (alone,) = parsed("Assertion failed")
    assert alone.shown() == "- name-1 Assertion failed"


def test_filters() -> None:
    lines = parsed(TEXT, JSON, "last words")

    def passing(wanted: LineFilter) -> list[str]:
        return [line.event for line in lines if wanted.passes(line)]

    assert passing(LineFilter()) == ["isr_shrunk", "damage_found", ""]
    assert passing(LineFilter("error")) == ["damage_found", ""]
    assert passing(LineFilter(events=["isr_*"])) == ["isr_shrunk"]
    assert passing(LineFilter("error", ["isr_*", "damage_found"])) == ["damage_found"]


def test_the_end_of_a_long_log_is_found_and_what_is_added_follows(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    rare = TEXT.replace("isr_shrunk", "election")
    path.write_text(f"{rare}\n" + f"{TEXT}\n" * (3 * BLOCK_BYTES // len(TEXT)))
    log = NodeLog("name-1", path)
    assert [line.event for line in log.read_last(2, LineFilter())] == ["isr_shrunk"] * 2
    # It lies three blocks before the end.
    assert len(log.read_last(5, LineFilter(events=["election"]))) == 1
    assert log.read_last(0, LineFilter()) == []
    assert log.read_more(LineFilter()) == []
    with path.open("a") as file:
        file.write(f"{rare}\n{TEXT[:30]}")
    assert [line.event for line in log.read_more(LineFilter())] == ["election"]
    with path.open("a") as file:
        file.write(f"{TEXT[30:]}\n")
    assert [line.shown() for line in log.read_more(LineFilter())] == [TEXT]
    path.write_text(f"{rare}\n")
    assert [line.event for line in log.read_more(LineFilter())] == ["election"]


def test_nodes_are_merged_by_time_and_keep_their_own_order() -> None:
    def at(node: str, *seconds: int) -> list[LoggedLine]:
        return [LoggedLine(f"2026-01-02T03:04:{s:02}.000Z", "info", node, "x", {}) for s in seconds]

    # The second of b was counted, and written later than it happened.
    found = merged([at("a", 1, 4, 6), at("b", 3, 2, 5)])
    assert [(line.node, line.time[17:19]) for line in found] == [
        ("a", "01"),
        ("b", "03"),
        ("b", "02"),
        ("a", "04"),
        ("b", "05"),
        ("a", "06"),
    ]


def test_the_command_shows_all_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for node, line in (("name-1", TEXT), ("broker-1", JSON)):
        (tmp_path / node).mkdir()
        (tmp_path / node / "node.log").write_text(f"{line}\n")
    logs(data=tmp_path)
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == [
        "name-1",
        "broker-1",
    ]
    logs(data=tmp_path, level="error", output="json")
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["event"] == "damage_found"
    logs("name-1", data=tmp_path, event=["isr_*"])
    assert capsys.readouterr().out == f"{TEXT}\n"
    with pytest.raises(InvalidRequest, match="did you mean election"):
        logs(data=tmp_path, event=["electoin"])
    with pytest.raises(InvalidRequest, match="there is no event 'zzz\\*'"):
        logs(data=tmp_path, event=["zzz*"])
