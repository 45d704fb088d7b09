"""Values as text, JSON, msgpack and hex, whoever wrote them."""

from __future__ import annotations

import time
import tracemalloc
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.client import Message
from logboom.console.widgets.value_views import (
    MAX_CHARS,
    MAX_HEADERS,
    MAX_LIST_BYTES,
    MAX_ROW_BYTES,
    PREVIEW_CHARS,
    SHOW_AS,
    message_bytes,
    preview,
    replace_unprintable,
    row_bytes,
    short_bytes,
    short_text,
    shown_headers,
    trimmed,
    view_value,
)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b'{"a":[1,2]}', "json", '{\n  "a": [\n    1,\n    2\n  ]\n}'),
        (b" [1]", "json", "[\n  1\n]"),
        (b"{not json", "text", "{not json"),
        (b"hello\nworld", "text", "hello\nworld"),
        (b"", "text", ""),
        (b"17", "text", "17"),
        (msgspec.msgpack.encode({"a": b"\xff"}), "msgpack", '{\n  "a": "0xff"\n}'),
        (b"\x00\x01", "hex", "000000  00 01" + " " * 44 + ".."),
    ],
)
def test_what_a_value_is_taken_for(data: bytes, kind: str, text: str) -> None:
    found = view_value(data)
    assert (found.kind, found.text) == (kind, text)


def test_no_value_is_no_empty_value() -> None:
    assert view_value(None).kind == "none"


@pytest.mark.parametrize("show_as", ["json", "msgpack"])
def test_what_is_not_as_wished_is_shown_as_it_is(show_as: str) -> None:
    found = view_value(b"\xc1 is never used", show_as)
    assert found.kind == "hex"
    assert "this is no" in found.problem


def test_long_values_are_cut() -> None:
    assert view_value(b"x" * 300_000).cut
    assert view_value(b"\x00" * 300_000).cut
    assert len(view_value(b"word " * 100).preview) <= 241


def test_keys_are_one_line() -> None:
    assert short_bytes(b"a\nb") == "a b"
    assert short_bytes(b"\xff\x00") == "0xff00"
    assert short_bytes(None) == ""


def nested(size: int) -> bytes:
    """JSON whose layout is as long as can be: deep, and then many lines."""
    depth = 900
    inside = b",".join([b"0"] * ((size - 2 * depth) // 2))
    return b"[" * depth + inside + b"]" * depth


def packed(value: object, size: int) -> bytes:
    one = msgspec.msgpack.encode(value)
    count = size // len(one)
    return b"\xdd" + count.to_bytes(4) + one * count


HARMFUL: Final = {
    "deep lines": nested(42_000),
    "deep lines, long": nested(400_000),
    "many lists": b"[" + b",".join([b"[]"] * 1_000_000) + b"]",
    "brackets in strings": b'["' + b'\\"[' * 200_000 + b'"]',
    "a string without an end": b'["' + b'\\"' * 500_000,
    "too deep": b"[" * 1_000_000,
    "blanks": b" " * 2_000_000 + b"[1]",
    "one key": b'{"' + b"k" * 3_000_000 + b'":1}',
    "msgpack lists": packed([], 1_000_000),
    "msgpack maps": packed({"a": {}}, 1_000_000),
    "deep msgpack": b"\x91" * 1_000_000,
    "text": b"wood " * 400_000,
    "marks": "\u202e".encode() * 600_000,
    "no text": b"\xff" * 2_000_000,
}
"""Values that cost much to parse, to lay out, or to look through."""


@pytest.mark.parametrize("show_as", SHOW_AS)
@pytest.mark.parametrize("harmful", HARMFUL)
def test_what_a_view_costs_depends_on_what_it_shows(harmful: str, show_as: str) -> None:
    data = HARMFUL[harmful]
    tracemalloc.start()
    try:
        found = view_value(data, show_as)
        shown = [preview(data), short_bytes(data), *shown_headers({harmful: data})[0]]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * 1024 * 1024
    assert len(found.text) <= MAX_CHARS
    assert all(len(each) <= PREVIEW_CHARS + 1 for each in shown)


@pytest.mark.parametrize("harmful", HARMFUL)
def test_a_view_takes_some_milliseconds(harmful: str) -> None:
    def taken_s() -> float:
        begun = time.thread_time()
        for show_as in SHOW_AS:
            view_value(HARMFUL[harmful], show_as)
            preview(HARMFUL[harmful])
        return time.thread_time() - begun

    # The least of some, since a cache may be cold.
    assert min(taken_s() for _ in range(3)) < 0.1


def test_a_list_shows_less_of_each_value_the_more_there_are() -> None:
    assert row_bytes(10) == MAX_ROW_BYTES
    assert 500 * row_bytes(500) <= 2 * MAX_LIST_BYTES
    message = Message("t", 0, 1, b"k" * 5_000, b"v" * 100_000, "tag", {"h": b"w" * 9_000}, 1)
    kept = trimmed(message)
    assert message_bytes(kept) == message_bytes(message) == 114_001
    assert sum(map(len, (kept.key or b"", kept.value or b""))) < 10_000
    assert view_value(kept.value, most=MAX_ROW_BYTES).cut
    assert (kept.topic, kept.offset, kept.tag) == ("t", 1, "tag")


def test_many_headers_are_counted() -> None:
    shown = shown_headers({f"h{number}": b"x" for number in range(5_000)})
    assert len(shown) == MAX_HEADERS + 1
    assert shown[-1][1] == "and 4,900 more"


def test_a_value_that_is_too_deep_says_so() -> None:
    assert "too deep" in view_value(HARMFUL["deep lines"], "json").problem
    assert view_value(b"[" * 32 + b"]" * 32).kind == "json"
    assert view_value(b"[" * 33 + b"]" * 33).kind == "text"
    assert view_value(b'["[[[[' + b"[" * 90 + b'"]').kind == "json"


def test_nothing_turns_the_text_around() -> None:
    odd = "a\u202eb"
    assert shown_headers({odd: odd.encode()}) == (("a\ufffdb", "0x61e280ae62"),)
    assert short_text(odd) == "a\ufffdb"
    assert "\u202e" not in view_value(odd.encode(), "text").text


@given(st.text(max_size=300), st.integers(1, 40))
def test_text_is_cut_between_characters(text: str, most: int) -> None:
    found = view_value(text.encode(), "text", most)
    assert found.text == replace_unprintable(text)[:most]
    assert found.cut == (len(text) > most)


@given(st.binary(max_size=200), st.sampled_from(SHOW_AS))
def test_any_bytes_can_be_shown(data: bytes, show_as: str) -> None:
    found = view_value(data, show_as)
    assert all(char.isprintable() or char in "\n\r\t" for char in found.text)
