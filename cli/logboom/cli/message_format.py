"""Formats of messages in text: kcat's format strings, and JSON lines.

| in a format | stands for | | in a format | stands for |
|---|---|---|---|---|
| %s or %v | value | | %t | topic |
| %S | length of the value in bytes | | %p or %q | queue |
| %k | key | | %o | offset |
| %K | length of the key (-1: none) | | %T | timestamp, ms since 1970 |
| %h | headers, k=v,k=v | | %g | tag |
| \\n \\t \\r \\0 \\\\ \\xHH | that character | | %% | a percent sign |

A JSON line is an object with topic, queue, offset, timestamp_ms, key, value, tag and headers. Bytes
that are not UTF-8 text are in `key_base64`, `value_base64` and `headers_base64`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import InvalidRequest


class StoredMessage(Protocol):
    """The part of a client's Message that is written out."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def queue(self) -> int:
        """Its queue."""

    @property
    def offset(self) -> int:
        """Its offset there."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def tag(self) -> str | None:
        """Its tag."""

    @property
    def headers(self) -> Mapping[str, bytes] | None:
        """Its headers."""

    @property
    def timestamp_ms(self) -> int:
        """Its message time."""


Part: TypeAlias = Callable[[StoredMessage], bytes]

_PARTS: Final[dict[str, Part]] = {
    "s": lambda m: m.value or b"",
    "v": lambda m: m.value or b"",
    "S": lambda m: b"%d" % (-1 if m.value is None else len(m.value)),
    "k": lambda m: m.key or b"",
    "K": lambda m: b"%d" % (-1 if m.key is None else len(m.key)),
    "t": lambda m: m.topic.encode(),
    "p": lambda m: b"%d" % m.queue,
    "q": lambda m: b"%d" % m.queue,
    "o": lambda m: b"%d" % m.offset,
    "T": lambda m: b"%d" % m.timestamp_ms,
    "g": lambda m: (m.tag or "").encode(),
    "h": lambda m: b",".join(k.encode() + b"=" + v for k, v in (m.headers or {}).items()),
}
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)", re.DOTALL)


def compile_format(text: str) -> Part:
    """Return a function that writes a message in this format.

    Raises:
        InvalidRequest: an unknown token; the text lists the known ones.
    """
    parts: list[bytes | Part] = []
    end = 0
    for match in _TOKEN.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        parts.append(_part(text, *match.groups()))
    if end != len(text):
        raise InvalidRequest(f"format {text!r} ends within a token: write %% for a percent sign")

    def write(message: StoredMessage) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(message) for part in parts)

    return write


def _part(
    text: str, token: str | None, code: str | None, escape: str | None, plain: str | None
) -> bytes | Part:
    if plain is not None:
        return plain.encode()
    if code is not None:
        return bytes.fromhex(code)
    if token == "%":
        return b"%"
    found = _PARTS.get(token) if token is not None else _ESCAPES.get(escape or "")
    if found is None:
        wrong = f"%{token}" if token is not None else f"\\{escape}"
        known = " ".join(f"%{name}" for name in _PARTS)
        raise InvalidRequest(f"unknown {wrong} in format {text!r}: known are {known} %% \\n \\t")
    return found


def as_json(message: StoredMessage) -> bytes:
    """Return a message as one line of JSON, without the newline."""
    return msgspec.json.encode(as_row(message))


def as_row(message: StoredMessage) -> dict[str, Any]:
    """Return a message as JSON values."""
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        **_text("key", message.key),
        **_text("value", message.value),
    }
    if message.tag is not None:
        row["tag"] = message.tag
    for name, content in (message.headers or {}).items():
        ((field, text),) = _text("headers", content).items()
        row.setdefault(field, {})[name] = text
    return row


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


class NewMessage(NamedTuple):
    """A message that a line of input asks to send."""

    value: bytes | None
    key: bytes | None = None
    tag: str | None = None
    headers: dict[str, bytes] | None = None
    timestamp_ms: int | None = None
    queue: int | None = None


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """A JSON line of input.

    An unknown member is refused: a typing error must not send less than was meant, and a missing
    value would delete its key from a compacted topic.
    """

    value: msgspec.Raw = msgspec.Raw()
    key: str | None = None
    key_base64: str | None = None
    value_base64: str | None = None
    tag: str | None = None
    headers: dict[str, str] | None = None
    headers_base64: dict[str, str] | None = None
    timestamp_ms: int | None = None
    # Further members that `consume` writes; they are ignored.
    topic: str | None = None
    queue: int | None = None
    offset: int | None = None


_envelope: Final = msgspec.json.Decoder(_Envelope)
_MEMBERS: Final = "key, value, tag, headers and timestamp_ms"


def read_json(line: bytes) -> NewMessage:
    """Return the message of a JSON line, as `as_json` writes it.

    A value that is not a string is sent as the JSON it is, null as no value. The queue is ignored,
    because the key determines it.

    Raises:
        InvalidRequest: the JSON is invalid, has no value, or has unknown members.
    """
    try:
        read = _envelope.decode(line)
        value = _plain(read)
        key = _bytes(read.key, read.key_base64)
        headers = _headers(read)
    # A ValueError of ours names a missing or repeated member.
    except (*UNDECODABLE, ValueError) as error:
        text = f'not a JSON message ({error}): write lines like {{"key": "a", "value": "b"}}'
        raise InvalidRequest(f"{text}, of {_MEMBERS}") from None
    return NewMessage(value, key, read.tag, headers, read.timestamp_ms)


def _plain(read: _Envelope) -> bytes | None:
    raw = bytes(read.value)
    if read.value_base64 is not None:
        if raw:
            raise ValueError("both value and value_base64")
        return base64.b64decode(read.value_base64, validate=True)
    if not raw:
        raise ValueError("no value: write null for a message without one")
    if raw == b"null":
        return None
    return msgspec.json.decode(raw, type=str).encode() if raw.startswith(b'"') else raw


def _headers(read: _Envelope) -> dict[str, bytes] | None:
    headers = {name: text.encode() for name, text in (read.headers or {}).items()}
    for name, encoded in (read.headers_base64 or {}).items():
        if name in headers:
            raise ValueError(f"header {name} twice")
        headers[name] = base64.b64decode(encoded, validate=True)
    return headers or None


def _bytes(text: str | None, encoded: str | None) -> bytes | None:
    if encoded is not None:
        if text is not None:
            raise ValueError("both key and key_base64")
        return base64.b64decode(encoded, validate=True)
    return None if text is None else text.encode()


def split_key(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """Return the key and the value of a line. Without a separator in it there is no key."""
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    return (key, value) if found else (None, line)


def read_headers(pairs: list[str]) -> dict[str, bytes] | None:
    """Return the headers from `name=value` arguments.

    Raises:
        InvalidRequest: an argument has no equals sign.
    """
    headers: dict[str, bytes] = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found or not name:
            raise InvalidRequest(f"header {pair!r}: write name=value")
        headers[name] = value.encode()
    return headers or None
