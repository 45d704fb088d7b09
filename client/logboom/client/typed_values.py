"""Typed values: conversions between messages and the annotations of handlers.

| annotation of a parameter | it gets |
|---|---|
| none, or `Message` | the message |
| `Context` | the context of the listener: whether to stop |
| `bytes`, `bytes \\| None` | the value as it is |
| `str` | the value as UTF-8 |
| msgspec structs, dataclasses, TypedDicts, lists, dicts, numbers … | the value, decoded and checked
|

A batch handler has a list of these as its first parameter.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from logboom.client.push.listener_task import Context
from logboom.client.results import Message
from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import InvalidRequest

Codec: TypeAlias = Literal["json", "msgpack"]
"""Encoding of typed values."""

_DECODERS: Final[dict[str, Any]] = {
    "json": msgspec.json.Decoder,
    "msgpack": msgspec.msgpack.Decoder,
}
_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "json": msgspec.json.encode,
    "msgpack": msgspec.msgpack.encode,
}


class BadValue(InvalidRequest):
    """The value of a message has the wrong type for its handler.

    Another delivery will not help: after the group's `max_attempts` the message becomes a dead
    letter, with this error as its cause.
    """


def encode_value(value: object, codec: Codec = "json") -> bytes | None:
    """Encode a message's value: bytes and None as they are, text as UTF-8, all else by the codec.

    Raises:
        InvalidRequest: the codec cannot encode it.
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return _ENCODERS[codec](value)
    except (TypeError, ValueError, OverflowError) as error:
        text = f"{codec} cannot encode {type(value).__name__}: {error}"
        raise InvalidRequest(text) from None


class Handler:
    """An application's function with the conversions for its parameters."""

    def __init__(self, function: Callable[..., Any], codec: Codec = "json", *, batch: bool) -> None:
        """Read the annotations of a function.

        Raises:
            InvalidRequest: a parameter cannot be served.
        """
        if codec not in _DECODERS:
            raise InvalidRequest(f"codec must be one of {', '.join(_DECODERS)}, not {codec!r}")
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._makers = self._read(codec, batch=batch)

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", repr(self.function))

    def __call__(self, given: Any, context: Context) -> Any:
        """Call the function with its arguments; `given` is a message, or a list of them.

        Raises:
            BadValue: a value does not have the annotated type.
            Exception: what the function raises.
        """
        return self.function(*(make(given, context) for make in self._makers))

    def _read(self, codec: Codec, *, batch: bool) -> list[Callable[[Any, Context], Any]]:
        try:
            hints = typing.get_type_hints(self.function, include_extras=True)
            parameters = inspect.signature(self.function).parameters.values()
        except (NameError, TypeError, ValueError) as error:
            raise InvalidRequest(
                f"the annotations of {self.name} cannot be read: {error}"
            ) from None
        makers: list[Callable[[Any, Context], Any]] = []
        wants_value = False
        for parameter in parameters:
            kind = hints.get(parameter.name, inspect.Parameter.empty)
            if kind is Context:
                makers.append(_context)
                continue
            if parameter.default is not inspect.Parameter.empty:
                break
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                raise InvalidRequest(
                    f"{self.name}: nothing is known for parameter {parameter.name}"
                )
            is_message, maker = _maker(kind, codec, self.name, batch=batch)
            if not is_message and wants_value:
                text = f"{self.name} has two parameters for one value: annotate one as Message"
                raise InvalidRequest(text)
            wants_value |= not is_message
            makers.append(maker)
        if not makers:
            raise InvalidRequest(f"{self.name} takes nothing: give it a parameter for the value")
        return makers


def _maker(
    kind: Any, codec: Codec, name: str, *, batch: bool
) -> tuple[bool, Callable[[Any, Context], Any]]:
    """Return whether a parameter takes messages, and the function that makes it."""
    if batch:
        if kind is inspect.Parameter.empty:
            return True, _as_it_is
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin not in (list, Sequence) or len(arguments) != 1:
            raise InvalidRequest(f"{name} takes batches: annotate a list, such as list[Message]")
        is_message, one = _maker(arguments[0], codec, name, batch=False)
        return is_message, lambda given, context: [one(each, context) for each in given]
    if kind is inspect.Parameter.empty or kind is Message:
        return True, _as_it_is
    return False, _value_maker(kind, codec, name)


def _value_maker(kind: Any, codec: Codec, name: str) -> Callable[[Any, Context], Any]:
    bare, nullable = _without_none(kind)
    if bare is bytes:
        decode: Callable[[bytes], Any] = bytes
    elif bare is str:
        decode = bytes.decode
    else:
        try:
            decode = _DECODERS[codec](bare).decode
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"{name}: no value can be a {kind}: {error}") from None

    def make(message: Message, _context: Context) -> Any:
        if message.value is None:
            if nullable:
                return None
            raise BadValue(f"{name} takes no message without a value: annotate `| None`")
        try:
            return decode(message.value)
        except UNDECODABLE as error:
            raise BadValue(f"no value for {name}: {error}") from None

    return make


def _without_none(kind: Any) -> tuple[Any, bool]:
    """Split `T | None` into (T, True)."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind, kind is None or kind is type(None) or kind is Any
    parts = typing.get_args(kind)
    rest = tuple(part for part in parts if part is not type(None))
    if len(rest) == len(parts):
        return kind, False
    return functools.reduce(operator.or_, rest), True


def _as_it_is(given: Any, _context: Context) -> Any:
    return given


def _context(_given: Any, context: Context) -> Any:
    return context
