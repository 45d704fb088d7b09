"""Keys, values and headers of messages as pages show them: text, JSON, msgpack or hex; pure.

Contents of messages come from anybody. They are shown as text, never as markup, and cut where they
are long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from logboom.console.widgets.page_query import PageQuery

ValueKind: TypeAlias = Literal["text", "json", "msgpack", "hex", "none"]
ShowAs: TypeAlias = Literal["auto", "text", "json", "msgpack", "hex"]
SHOW_AS: Final[tuple[str, ...]] = get_args(ShowAs)
PREVIEW_CHARS: Final = 240
MAX_CHARS: Final = 200_000
"""Characters of a value that a page shows; the rest can be downloaded."""
MAX_HEX_BYTES: Final = 4_096
MAX_DEPTH: Final = 64


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
    """Return the headers of a message, each value in one line."""
    return tuple((name, short_bytes(value)) for name, value in (headers or {}).items())


def view_value(data: bytes | None, show_as: str = "auto") -> ValueView:
    """Return a value as text, JSON, msgpack or hex; "auto" finds out which of them it is."""
    if data is None:
        return ValueView("none", "no value")
    match show_as:
        case "text":
            return _cut("text", printable(data.decode("utf-8", "replace")))
        case "json":
            return _json(data) or _other(data, "this is no JSON")
        case "msgpack":
            return _msgpack(data) or _other(data, "this is no msgpack")
        case "hex":
            return _hex(data)
        case _:
            return _guess(data)


def _guess(data: bytes) -> ValueView:
    if data[:1].strip() in (b"{", b"[") or data.lstrip()[:1] in (b"{", b"["):
        found = _json(data)
        if found is not None:
            return found
    text = as_text(data)
    if text is not None:
        return _cut("text", text)
    return _msgpack(data, containers_only=True) or _hex(data)


def _other(data: bytes, problem: str) -> ValueView:
    found = _guess(data)
    return ValueView(found.kind, found.text, found.cut, problem)


def as_text(data: bytes) -> str | None:
    """Return bytes as text, or None if they are not UTF-8 that can be read."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    odd = sum(1 for char in text if not (char.isprintable() or char in "\n\r\t"))
    return text if odd == 0 else None


def printable(text: str) -> str:
    """Return a text with marks in the place of what cannot be seen."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )


def _json(data: bytes) -> ValueView | None:
    try:
        shown = msgspec.json.format(data, indent=2).decode()
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    compact = data[: PREVIEW_CHARS * 4].decode("utf-8", "ignore")
    return replace(_cut("json", printable(shown)), compact=printable(compact))


def _msgpack(data: bytes, *, containers_only: bool = False) -> ValueView | None:
    try:
        found = msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, TypeError, ValueError):
        return None
    if containers_only and not isinstance(found, dict | list):
        return None
    encoded = msgspec.json.encode(_plain(found), enc_hook=str)
    shown = _cut("msgpack", printable(msgspec.json.format(encoded, indent=2).decode()))
    return replace(shown, compact=printable(encoded[: PREVIEW_CHARS * 4].decode("utf-8", "ignore")))


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


def _hex(data: bytes) -> ValueView:
    lines = []
    for place in range(0, min(len(data), MAX_HEX_BYTES), 16):
        part = data[place : place + 16]
        pairs = " ".join(f"{byte:02x}" for byte in part)
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{place:06x}  {pairs:<47}  {seen}")
    return ValueView("hex", "\n".join(lines), len(data) > MAX_HEX_BYTES)


def _cut(kind: ValueKind, text: str) -> ValueView:
    return ValueView(kind, text[:MAX_CHARS], len(text) > MAX_CHARS)


def short_bytes(data: bytes | None) -> str:
    """Return a key or a header in one line: text, or 0x…; "" for none."""
    if data is None:
        return ""
    text = as_text(data[: PREVIEW_CHARS * 4])
    shown = f"0x{data[:PREVIEW_CHARS].hex()}" if text is None else " ".join(text.split())
    return shown if len(shown) <= PREVIEW_CHARS else f"{shown[:PREVIEW_CHARS]}…"
