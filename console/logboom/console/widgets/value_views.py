"""Keys, values and headers of messages as pages show them: text, JSON, msgpack or hex; pure.

Contents of messages come from anybody. They are shown as text, never as markup. What is shown, and what it
may cost, is defined here alone, for all pages: a value is cut *before* it is looked at, so the cost depends on
how much is shown and not on what was sent; only values of few bytes are parsed, and only flat ones are laid
out, since each level of JSON indents all lines within it.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from logboom.client import Message
from logboom.console.widgets.page_query import PageQuery

ValueKind: TypeAlias = Literal["text", "json", "msgpack", "hex", "none"]
ShowAs: TypeAlias = Literal["auto", "text", "json", "msgpack", "hex"]
SHOW_AS: Final[tuple[str, ...]] = get_args(ShowAs)
PREVIEW_CHARS: Final = 240
"""Characters of a value, a key, a tag, or a header in a list."""
PREVIEW_BYTES: Final = 4 * PREVIEW_CHARS
MAX_CHARS: Final = 64 * 1024
"""Characters of a value that its own page shows; the rest can be downloaded."""
MAX_ROW_BYTES: Final = 8_000
"""Bytes of a value that a row of a list shows when it is opened, and that CSV and JSON have."""
MAX_LIST_BYTES: Final = 256 * 1024
"""Bytes of values that all rows of a list show when they are opened."""
MAX_JSON_BYTES: Final = 64 * 1024
"""Bytes of a value that is laid out as JSON; a longer one is shown as text."""
MAX_MSGPACK_BYTES: Final = 16 * 1024
"""Bytes of a value that is read as msgpack; a longer one is shown as hex."""
MAX_PREVIEW_MSGPACK_BYTES: Final = 256
MAX_HEX_BYTES: Final = 4_096
MAX_DEPTH: Final = 32
"""Levels of JSON and msgpack that are laid out."""
MAX_HEADERS: Final = 100
"""Headers of a message that are shown."""
ODD: Final = "\N{REPLACEMENT CHARACTER}"
"""Shown for what cannot be seen, or turns the direction of the text around."""
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.|\\\Z)*(?:"|\Z)', re.DOTALL)
"""A string of JSON, or what begins as one and has no end, so that no byte is looked at twice."""
_BRACKETS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHERS: Final = bytes(set(range(256)) - _BRACKETS.keys())
_NOT_PLAIN: Final = re.compile(r"[^ -~\n\t]+")


ViewLink: TypeAlias = tuple[str, str, bool]
"""Title, link and whether it is current, of a way to show a value."""


@dataclass(frozen=True, slots=True)
class ValueView:
    """A value as it is shown."""

    kind: ValueKind
    text: str
    cut: bool = False
    """True if the text is not all of it."""
    problem: str = ""
    """Why it is not shown as it was asked for."""
    compact: str = ""
    """The same in fewer characters, if there is such."""

    @property
    def preview(self) -> str:
        """Its beginning, in one line."""
        line = " ".join((self.compact or self.text)[: PREVIEW_CHARS * 4].split())
        return line if len(line) <= PREVIEW_CHARS else f"{line[:PREVIEW_CHARS]}…"


def asked_view(query: PageQuery) -> str:
    """Return how a URL wants values to be shown."""
    asked = query.text("as", "auto")
    return asked if asked in SHOW_AS else "auto"


def view_links(query: PageQuery) -> tuple[ViewLink, ...]:
    """Return the links that show the same value in other ways."""
    asked = asked_view(query)
    return tuple((each, query.url(**{"as": each}), each == asked) for each in SHOW_AS)


def shown_headers(headers: Mapping[str, bytes] | None) -> tuple[tuple[str, str], ...]:
    """Return the headers of a message, each in one line: as many as are shown."""
    found = headers or {}
    shown = [
        (short_text(name), short_bytes(found[name]))
        for name, _ in zip(found, range(MAX_HEADERS), strict=False)
    ]
    if len(found) > len(shown):
        shown.append(("…", f"and {len(found) - len(shown):,} more"))
    return tuple(shown)


def view_value(data: bytes | None, show_as: str = "auto", most: int = MAX_CHARS) -> ValueView:
    """Return a value as text, JSON, msgpack or hex; "auto" finds out which of them it is.

    Args:
        most: bytes and characters of it that are shown.
    """
    if data is None:
        return ValueView("none", "no value")
    match show_as:
        case "text":
            shown = data[: 4 * most].decode("utf-8", "replace")
            return ValueView("text", replace_unprintable(shown[:most]), _is_cut(shown, data, most))
        case "json":
            return _json(data, most) or _other(data, _why_no_json(data, most), most)
        case "msgpack":
            return _msgpack(data, most) or _other(data, _why_no_msgpack(data, most), most)
        case "hex":
            return _hex(data, most)
        case _:
            return _guess(data, most)


def preview(data: bytes | None) -> str:
    """Return the beginning of a value, in one line."""
    if data is None:
        return view_value(None).preview
    found = _text(data, PREVIEW_BYTES)
    if found is None and len(data) <= MAX_PREVIEW_MSGPACK_BYTES:
        found = _msgpack(data, PREVIEW_BYTES, containers_only=True)
    return (found or _hex(data, PREVIEW_CHARS)).preview


def trimmed(message: Message) -> Message:
    """Return what a list needs of a message, which may be long, with its whole size."""
    headers = message.headers or {}
    kept = {
        name: headers[name][:PREVIEW_BYTES]
        for name, _ in zip(headers, range(MAX_HEADERS + 1), strict=False)
    }
    key, value = message.key, message.value
    return TrimmedMessage(
        **{name: getattr(message, name) for name in Message.__struct_fields__}
        | {
            "key": key if key is None else key[: PREVIEW_BYTES + 1],
            # One byte more than is shown says that it was cut.
            "value": value if value is None else value[: MAX_ROW_BYTES + 1],
            "headers": None if message.headers is None else kept,
        },
        size_bytes=message_bytes(message),
    )


class TrimmedMessage(Message, frozen=True, gc=False, kw_only=True):
    """A message of which only what a list shows was kept."""

    size_bytes: int


def message_bytes(message: Message) -> int:
    """Return the bytes of a message: key, value and headers."""
    if isinstance(message, TrimmedMessage):
        return message.size_bytes
    headers = message.headers or {}
    return (
        len(message.key or b"")
        + len(message.value or b"")
        + sum(len(name.encode()) + len(value) for name, value in headers.items())
    )


def row_bytes(rows: int) -> int:
    """Return how much of each value a list of so many rows shows when one is opened."""
    return max(PREVIEW_BYTES, min(MAX_ROW_BYTES, MAX_LIST_BYTES // max(1, rows)))


def _guess(data: bytes, most: int) -> ValueView:
    if data[:MAX_JSON_BYTES].lstrip()[:1] in (b"{", b"["):
        found = _json(data, most)
        if found is not None:
            return found
    return _text(data, most) or _msgpack(data, most, containers_only=True) or _hex(data, most)


def _other(data: bytes, problem: str, most: int) -> ValueView:
    return replace(_guess(data, most), problem=problem)


def _text(data: bytes, most: int) -> ValueView | None:
    """Return a value as text, or None if its beginning is not UTF-8 that can be read."""
    text = _beginning(data, most)
    if text is None or not _is_readable(text):
        return None
    return ValueView("text", text[:most], _is_cut(text, data, most))


def _is_cut(text: str, data: bytes, most: int) -> bool:
    return len(text) > most or len(data) > 4 * most


def _beginning(data: bytes, most: int) -> str | None:
    """Return the first characters of UTF-8, at least so many if there are, or None if it is none."""
    is_whole = len(data) <= 4 * most
    try:
        # A character may be cut in two.
        return codecs.getincrementaldecoder("utf-8")().decode(data[: 4 * most], is_whole)
    except UnicodeDecodeError:
        return None


def _is_readable(text: str) -> bool:
    return text.replace("\n", "").replace("\r", "").replace("\t", "").isprintable()


def as_text(data: bytes) -> str | None:
    """Return bytes as text, or None if they are not UTF-8 that can be read."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if _is_readable(text) else None


def plain_text(data: bytes | None) -> str | None:
    """Return a value for CSV and JSON: as text, or 0x…, as much of it as a row has."""
    if data is None:
        return None
    found = _text(data, MAX_ROW_BYTES)
    return f"0x{data[:MAX_ROW_BYTES].hex()}" if found is None else found.text


def replace_unprintable(text: str) -> str:
    """Return a text with marks in the place of what cannot be seen."""
    if text.isprintable():
        return text
    return _NOT_PLAIN.sub(lambda found: "".join(map(_mark, found[0])), text)


def _mark(char: str) -> str:
    return char if char.isprintable() else ODD


def is_flat(data: bytes) -> bool:
    """Return True if JSON has few levels; it is not parsed for that."""
    structure = _STRING.sub(b"", data).translate(None, _OTHERS)
    return max(accumulate(map(_BRACKETS.__getitem__, structure)), default=0) <= MAX_DEPTH


def _json(data: bytes, most: int) -> ValueView | None:
    if len(data) > min(MAX_JSON_BYTES, most) or not is_flat(data):
        return None
    try:
        msgspec.json.decode(data)
        shown = msgspec.json.format(data, indent=2)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    compact = replace_unprintable(data[:PREVIEW_BYTES].decode("utf-8", "ignore"))
    return replace(_laid_out("json", shown, most), compact=compact)


def _why_no_json(data: bytes, most: int) -> str:
    return "this is no JSON" + _or_too_much(
        len(data) > min(MAX_JSON_BYTES, most) or not is_flat(data)
    )


def _why_no_msgpack(data: bytes, most: int) -> str:
    return "this is no msgpack" + _or_too_much(len(data) > min(MAX_MSGPACK_BYTES, most))


def _or_too_much(is_too_much: bool) -> str:
    return ", or too long or too deep to be laid out" if is_too_much else ""


def _msgpack(data: bytes, most: int, *, containers_only: bool = False) -> ValueView | None:
    if len(data) > min(MAX_MSGPACK_BYTES, most):
        return None
    try:
        found = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, TypeError, ValueError):
        return None
    if containers_only and not isinstance(found, dict | list):
        return None
    encoded = msgspec.json.encode(_plain(found), enc_hook=str)
    compact = replace_unprintable(encoded[:PREVIEW_BYTES].decode("utf-8", "ignore"))
    return replace(
        _laid_out("msgpack", msgspec.json.format(encoded, indent=2), most), compact=compact
    )


def _laid_out(kind: ValueKind, shown: bytes, most: int) -> ValueView:
    text = shown[: 4 * most].decode("utf-8", "ignore")
    return ValueView(kind, replace_unprintable(text[:most]), _is_cut(text, shown, most))


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can hold."""
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        return {_name(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, bytes):
        text = as_text(value)
        return f"0x{value.hex()}" if text is None else text
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _name(key: Any) -> str:
    return (as_text(key) or key.hex()) if isinstance(key, bytes) else str(key)


def _hex(data: bytes, most: int) -> ValueView:
    end = min(len(data), MAX_HEX_BYTES, most)
    lines = []
    for place in range(0, end, 16):
        part = data[place : min(place + 16, end)]
        pairs = " ".join(f"{byte:02x}" for byte in part)
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{place:06x}  {pairs:<47}  {seen}")
    return ValueView("hex", "\n".join(lines), len(data) > end)


def short_bytes(data: bytes | None) -> str:
    """Return a key or a header in one line: text, or 0x…; "" for none."""
    if data is None:
        return ""
    text = _beginning(data, PREVIEW_CHARS)
    if text is None or not _is_readable(text):
        text = f"0x{data[:PREVIEW_CHARS].hex()}"
    return short_text(text)


def short_text(text: str) -> str:
    """Return the beginning of a text that anybody chose, in one line."""
    shown = replace_unprintable(" ".join(text[:PREVIEW_BYTES].split()))
    return shown if len(shown) <= PREVIEW_CHARS else f"{shown[:PREVIEW_CHARS]}…"
