"""Values as text, JSON, msgpack and hex, whoever wrote them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.console.widgets.value_views import SHOW_AS, short_bytes, view_value


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


@given(st.binary(max_size=200), st.sampled_from(SHOW_AS))
def test_any_bytes_can_be_shown(data: bytes, show_as: str) -> None:
    found = view_value(data, show_as)
    assert all(char.isprintable() or char in "\n\r\t" for char in found.text)
