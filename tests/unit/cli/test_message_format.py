"""Messages written and read: kcat's tokens, JSON lines that come back as they went."""

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.cli.message_format import (
    NewMessage,
    as_json,
    compile_format,
    read_headers,
    read_json,
    split_key,
)
from logboom.client.results import Message
from logboom.wire.errors import InvalidRequest


def message(
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    tag: str | None = None,
    headers: dict[str, bytes] | None = None,
) -> Message:
    return Message("flights", 3, 120, key, value, tag, headers, 1_700_000_000_000)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("%s\\n", b"v\n"),
        ("%t[%p]@%o %k: %v", b"flights[3]@120 k: v"),
        ("%T %g %h", b"1700000000000 late a=1,b=2"),
        ("%S %K %q", b"1 1 3"),
        ("100%% \\x41\\t\\\\", b"100% A\t\\"),
        ("", b""),
    ],
)
def test_a_format_writes_what_its_tokens_say(text: str, written: bytes) -> None:
    full = message(tag="late", headers={"a": b"1", "b": b"2"})
    assert compile_format(text)(full) == written


def test_what_is_absent_is_empty_and_minus_one_long() -> None:
    assert compile_format("<%s><%k><%g><%h>%S%K")(message(None, None)) == b"<><><><>-1-1"


@pytest.mark.parametrize("text", ["%z", "\\q", "%", "a%", "\\"])
def test_an_unknown_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        compile_format(text)


@given(
    value=st.none() | st.binary(),
    key=st.none() | st.binary(),
    tag=st.none() | st.text(min_size=1),
    headers=st.none() | st.dictionaries(st.text(), st.binary(), min_size=1),
)
def test_a_json_line_comes_back_as_it_went(
    value: bytes | None,
    key: bytes | None,
    tag: str | None,
    headers: dict[str, bytes] | None,
) -> None:
    line = as_json(message(value, key, tag, headers))
    assert b"\n" not in line
    assert read_json(line) == NewMessage(value, key, tag, headers, 1_700_000_000_000)


def test_bytes_that_are_no_text_travel_in_base64() -> None:
    row = msgspec.json.decode(as_json(message(b"\xff\x00")))
    assert base64.b64decode(row["value_base64"]) == b"\xff\x00"
    assert "value" not in row


def test_a_value_that_is_no_string_is_sent_as_its_json() -> None:
    assert read_json(b'{"value": {"delay": 12}, "key": "UA"}').value == b'{"delay": 12}'
    assert read_json(b'{"value": 12}').value == b"12"


DEEP = b'{"value": ' + b"[" * 100_000


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"[1]", b'{"key": 1}', b'{"value_base64": "?"}', DEEP]
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidRequest, match="not a JSON message"):
        read_json(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"key": "a", "Value": "5"}', "Value"),
        (b'{"key": "a", "value": "5", "tags": "late"}', "tags"),
        (b'{"key": "a", "value": "5", "timestamp": 7}', "timestamp"),
        (b'{"key": "a"}', "no value"),
        (b'{"key": "a", "value_base64": null}', "no value"),
        (b'{"value": "5", "value_base64": "NQ=="}', "value and value_base64"),
        (b'{"value": "5", "key": "a", "key_base64": "YQ=="}', "key and key_base64"),
    ],
)
def test_a_slip_of_the_pen_is_no_message(line: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest, match="not a JSON message") as refused:
        read_json(line)
    assert said in str(refused.value)
    assert "timestamp_ms" in str(refused.value), "it names what there is"


def test_null_deletes_a_key_only_where_it_is_written() -> None:
    assert read_json(b'{"key": "a", "value": null}') == NewMessage(None, b"a")
    assert read_json(b'{"value": "", "value_base64": null}').value == b""


def test_a_key_is_split_off_at_the_first_separator() -> None:
    assert split_key(b"UA:a:b", b":") == (b"UA", b"a:b")
    assert split_key(b"no separator", b":") == (None, b"no separator")
    assert split_key(b"UA:a", None) == (None, b"UA:a")


def test_headers_are_name_and_value() -> None:
    assert read_headers(["a=1", "b=x=y"]) == {"a": b"1", "b": b"x=y"}
    assert read_headers([]) is None
    with pytest.raises(InvalidRequest, match="name=value"):
        read_headers(["a"])
