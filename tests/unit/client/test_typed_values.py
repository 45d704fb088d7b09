"""What handlers are called with, and how values are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from logboom.client.app import App
from logboom.client.push.listener_task import Context
from logboom.client.results import Message
from logboom.client.typed_values import BadValue, Codec, Handler, encode_value
from logboom.wire.errors import InvalidRequest


class Order(msgspec.Struct):
    """A msgspec struct."""

    item: str
    count: int = 1


@dataclass
class Parcel:
    """A dataclass."""

    weight: float


CONTEXT = Context.__new__(Context)


def message(value: bytes | None) -> Message:
    """A message with this value."""
    return Message("orders", 0, 5, b"k", value, None, None, 1)


def called(
    function: Any, *values: bytes | None, codec: Codec = "json", batch: bool = False
) -> tuple[Any, ...]:
    """What a function that returns its arguments is called with."""
    given = [message(value) for value in values]
    result = Handler(function, codec, batch=batch)(given if batch else given[0], CONTEXT)
    return tuple(result)


def test_a_parameter_gets_what_its_annotation_says() -> None:
    def struct(order: Order) -> Any:
        return (order,)

    def parcel(it: Parcel, which: Message) -> Any:
        return it, which.offset

    def raw(value: bytes, context: Context) -> Any:
        return value, context

    def text(value: str | None) -> Any:
        return (value,)

    def plain(it: Message) -> Any:
        return it.offset, it.value

    plain.__annotations__.clear()

    def loose(value: dict[str, int], note: str = "unused") -> Any:
        return value, note

    def late(context: Context, order: Order | None) -> Any:
        return context, order

    assert called(struct, b'{"item": "pen"}') == (Order("pen"),)
    assert called(parcel, b'{"weight": 2}') == (Parcel(2.0), 5)
    assert called(raw, b"\xff") == (b"\xff", CONTEXT)
    assert called(text, "ü".encode()) == ("ü",)
    assert called(text, None) == (None,)
    assert called(plain, b"x") == (5, b"x")
    assert called(loose, b'{"a": 1}') == ({"a": 1}, "unused")
    assert called(late, None) == (CONTEXT, None)
    packed = msgspec.msgpack.encode(Order("pen", 3))
    assert called(struct, packed, codec="msgpack") == (Order("pen", 3),)


def test_a_batch_handler_gets_lists() -> None:
    def orders(them: list[Order], messages: list[Message]) -> Any:
        return them, [each.offset for each in messages]

    values = [b'{"item": "a"}', b'{"item": "b"}']
    assert called(orders, *values, batch=True) == ([Order("a"), Order("b")], [5, 5])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "truncated"),
        (b'{"item": 3}', "Expected `str`"),
        (b"\xff", "malformed"),
        (b'{"more": ' + b"[" * 100_000, "maximum recursion depth"),
        (None, "no message without a value"),
    ],
)
def test_a_value_of_another_type_is_said_so(value: bytes | None, why: str) -> None:
    def charge(order: Order) -> Any:
        return (order,)

    with pytest.raises(BadValue, match=why):
        called(charge, value)


def test_functions_that_cannot_be_called_are_refused_at_once() -> None:
    def nothing() -> None:
        """Takes nothing."""

    def two(one: Order, other: Parcel) -> None:
        """Takes two values."""

    def named(*, order: Order) -> None:
        """Takes it by name."""

    def gone(order: Order) -> None:
        """Has an annotation that is nowhere."""

    gone.__annotations__["order"] = "Missing"

    def single(order: Order) -> None:
        """Is no batch handler."""

    async def late(order: Order) -> None:
        """Is async."""

    app = App()
    cases: list[tuple[Callable[..., Any], str]] = [
        (nothing, "takes nothing"),
        (two, "annotate one as Message"),
        (named, "nothing is known for parameter order"),
        (gone, "cannot be read"),
        (late, "logboom.client.aio"),
    ]
    for function, why in cases:
        with pytest.raises(InvalidRequest, match=why):
            app.subscriber("orders", group="billing")(function)
    with pytest.raises(InvalidRequest, match="takes batches"):
        app.subscriber("orders", group="billing", batch=10)(single)
    codec: Any = "yaml"
    with pytest.raises(InvalidRequest, match="codec"):
        Handler(single, codec, batch=False)


def test_values_are_written() -> None:
    assert encode_value(None) is None
    assert encode_value(b"\xff") == b"\xff"
    assert encode_value("ü") == "ü".encode()
    assert encode_value(Order("pen")) == b'{"item":"pen","count":1}'
    assert encode_value(Parcel(2.5)) == b'{"weight":2.5}'
    assert msgspec.msgpack.decode(encode_value([1, 2], "msgpack") or b"") == [1, 2]
    with pytest.raises(InvalidRequest, match="cannot encode object"):
        encode_value(object())


def test_a_decorated_function_stays_itself() -> None:
    app = App()

    @app.subscriber("orders", group="billing")
    @app.subscriber(["returns", "refunds"], group="refunding", threads=2)
    def charge(order: Order) -> str:
        return order.item

    assert charge(Order("pen")) == "pen"
    found = app.subscribers.of(charge)
    assert [(each.topics, each.group, each.options) for each in found] == [
        (["returns", "refunds"], "refunding", {"threads": 2}),
        (["orders"], "billing", {}),
    ]
    with pytest.raises(InvalidRequest, match="does not run"):
        app.publish("orders", Order("pen"))
