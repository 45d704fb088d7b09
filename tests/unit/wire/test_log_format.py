"""Lines of a node's log: one line each whatever is in it, for people and for programs."""

from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.wire.event_table import Plain
from logboom.wire.log_format import (
    MAX_CHARS,
    EventLine,
    JsonFormatter,
    TextFormatter,
    is_json,
    open_log,
    pair_text,
    rename_log,
)

HOSTILE = [
    "a\nb",
    "a\r\nb",
    "\x1b[2J",
    "\x00",
    "\x85",
    "\u2028",
    "\u202e",
    '"',
    "\\",
    "=",
    "",
    "\udcff",
]
"""What breaks lines, steers terminals, or looks like another field."""
texts = st.text(st.characters(codec="utf-8")) | st.sampled_from(HOSTILE)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def record(message: object, level: int = logging.INFO, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("logboom.nodes.disk", level, "x.py", 1, message, (), None)
    made.created = 1_795_000_000.125
    made.__dict__.update(more)
    return made


def event(times: int = 1, wall_ms: int | None = None, **fields: Plain) -> logging.LogRecord:
    return record(EventLine("broker-1", "disk_full", fields, times, wall_ms))


def test_text_has_time_level_node_event_and_fields() -> None:
    line = TextFormatter("").format(
        event(topic="t", queue=3, in_sync=["a", "b"], share=0.25, on=True, text="two words")
    )
    assert line == (
        "2026-11-18T11:06:40.125Z INFO broker-1 disk_full topic=t queue=3 in_sync=a,b share=0.25 "
        'on=true text="two words"'
    )


def test_json_has_the_same_and_the_logger() -> None:
    line = JsonFormatter("").format(event(5, topic="t", left=None, in_sync=["a"]))
    assert json.loads(line) == {
        "time": "2026-11-18T11:06:40.125Z",
        "level": "info",
        "node": "broker-1",
        "event": "disk_full",
        "topic": "t",
        "in_sync": ["a"],
        "repeated": 5,
        "logger": "logboom.nodes.disk",
    }
    assert TextFormatter("").format(event(5, topic="t")).endswith(" topic=t repeated=5")


def test_the_time_is_when_it_happened() -> None:
    for form in (TextFormatter(""), JsonFormatter("")):
        assert "2026-11-18T11:06:39.500Z" in form.format(event(wall_ms=1_794_999_999_500))


def test_a_line_that_is_no_event_is_a_message() -> None:
    plain = record("said %s", args=("no\nmore",))
    assert TextFormatter("n").format(plain).endswith('Z INFO n message text="said no\\nmore"')
    said = json.loads(JsonFormatter("n").format(plain))
    assert (said["node"], said["event"], said["text"]) == ("n", "message", "said no\nmore")


@given(st.dictionaries(st.sampled_from(["topic", "text", "client"]), values), texts)
def test_a_line_is_one_line_whatever_it_holds(fields: dict[str, Plain], node: str) -> None:
    made = record(EventLine("broker-1", "disk_full", fields))
    text, said = TextFormatter("").format(made), JsonFormatter("").format(made)
    assert len(text.splitlines()) == len(said.splitlines()) == 1
    assert text.isprintable()
    assert said.isascii()
    found = json.loads(said)
    assert found["event"] == "disk_full"
    for name, value in fields.items():
        if isinstance(value, str) and len(value) <= MAX_CHARS:
            assert found[name] == value
    assert str(made.msg) in text


@given(texts)
def test_a_value_can_be_read_back_and_never_looks_like_another_field(value: str) -> None:
    shown = pair_text("topic", value)
    assert shown.startswith("topic=")
    assert shown.isprintable()
    inner = shown.removeprefix("topic=")
    if inner.startswith('"'):
        assert json.loads(inner) == value
    else:
        assert inner == value
        assert " " not in inner


def test_a_long_value_is_cut() -> None:
    long = "x" * (MAX_CHARS + 1)
    assert len(TextFormatter("").format(event(topic=long))) < MAX_CHARS + 200
    assert len(JsonFormatter("").format(event(topic=long))) < MAX_CHARS + 300


def test_a_traceback_is_below_a_line_of_text_and_in_a_field_of_json() -> None:
    try:
        raise RuntimeError("one\nJan 1 forged")
    except RuntimeError as error:
        made = event()
        made.exc_info = (RuntimeError, error, error.__traceback__)
    head, *rest = TextFormatter("").format(made).split("\n")
    assert head.endswith("disk_full")
    assert len(rest) >= 3
    assert all(line.startswith("    ") for line in rest)
    said = JsonFormatter("").format(made)
    assert len(said.splitlines()) == 1
    assert "RuntimeError: one" in json.loads(said)["exception"]


def test_a_process_opens_its_log_once_and_may_rename_it(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    to = io.StringIO()
    open_log("text", "", to=to)
    assert not is_json()
    logging.getLogger("logboom").info(EventLine("", "node_stopped", {}))
    rename_log("json", "broker-7")
    assert is_json()
    logging.getLogger("logboom").info(EventLine("", "node_stopped", {}))
    open_log("text", "", to=to)
    assert len(root.handlers) == 1
    text, said = to.getvalue().splitlines()
    assert text.endswith(" INFO - node_stopped")
    assert json.loads(said)["node"] == "broker-7"
