"""One request of every type and every command, about resources of given names."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, Final, Literal, Union, get_args, get_origin

import msgspec

from logboom.wire.base import Command, Request, WireMessage
from logboom.wire.batch import encode_batch
from logboom.wire.commands import AnyCommand
from logboom.wire.frames import Frame, encode
from logboom.wire.messages import AnyMessage, Produce, Propose

ANSWERED_BY_CONNECTION: Final = ("hello", "challenge", "prove", "welcome", "needhello", "ping")
"""Messages about the connection itself, which need no right."""


def _value(kind: Any, field: str, name: str) -> Any:
    """A plausible value of a declared type; every text that names something is `name`."""
    origin = get_origin(kind)
    if origin is typing.Annotated:
        return _value(get_args(kind)[0], field, name)
    if origin is Literal:
        return get_args(kind)[0]
    if origin in (Union, types.UnionType):
        return _value(get_args(kind)[0], field, name)
    if origin is list:
        return [_value(get_args(kind)[0], field, name)]
    if origin is tuple:
        parts = [part for part in get_args(kind) if part is not Ellipsis]
        return tuple(_value(part, field, name) for part in parts)
    if origin is dict:
        key, value = get_args(kind)
        return {_value(key, field, name): _value(value, field, name)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return build(kind, name)
    if kind is int:
        return _number(field)
    simple: dict[Any, Any] = {
        str: "" if field in ("filter", "expression") else name,
        bytes: b"",
        bool: False,
        float: 0.0,
        type(None): None,
        Any: None,
        msgspec.Raw: msgspec.Raw(b"\xc0"),
    }
    return simple[kind]


def _number(field: str) -> int:
    """Waits are short, and limits let something through."""
    if field == "wait_ms":
        return 0
    if field == "timeout_ms":
        return 60_000
    if field.startswith("max_") or field in ("limit", "count", "queues"):
        return 10
    return 1 if field in ("replicas", "topic_id") else 0


def build(kind: type[Any], name: str) -> Any:
    """An instance of a message, a command or a part of one."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return kind(*[_value(hints[field], field, name) for field in kind.__struct_fields__])


def request_types() -> list[type[Any]]:
    """Every message that a peer may send and that asks for something."""
    found = []
    for kind in get_args(AnyMessage):
        tag = str(kind.__struct_config__.tag)
        if tag in ANSWERED_BY_CONNECTION or not issubclass(kind, Request):
            continue
        found.append(kind)
    return found


def command_types() -> list[type[Command]]:
    """Every command that can be proposed."""
    return list(get_args(AnyCommand))


def requests_about(name: str) -> Iterator[tuple[str, WireMessage, list[Frame]]]:
    """(what it is, the request, its batches) for every request and every proposed command."""
    for kind in request_types():
        if kind is Propose:
            continue
        batches: list[Frame] = [encode_batch([b"stranger"], now_ms=5)] if kind is Produce else []
        yield kind.__name__, build(kind, name), batches
    for number, command in enumerate(command_types()):
        message = Propose(0, 60_000, f"stranger of {name}", number, build(command, name))
        yield f"Propose({command.__name__})", message, []


def frames_of(message: WireMessage, number: int, batches: list[Frame]) -> list[Frame]:
    """The frames of a request under a number."""
    message.id = number
    return encode(message, batches)
