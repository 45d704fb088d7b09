"""The keyword arguments of a send, once for both clients and all that send through them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from logboom.client.argument_checks import BytesLike


class MessageOptions(TypedDict, total=False):
    """Everything that one message has beside its value."""

    key: BytesLike | None
    """Messages with one key go to one queue, and stay in order there."""
    tag: str | None
    headers: Mapping[str, bytes] | None
    timestamp_ms: int | None
    """Message time, ms since 1970 UTC; None: when its batch is made."""
    queue: int | None
    """None: that of the key's hash, or without a key one after the other by batches."""


class SendOptions(MessageOptions, total=False):
    """The keyword arguments of `Producer.send`."""

    delay_s: float | None
    """Nobody reads the message before so many seconds have passed."""
    deliver_at: datetime | int | None
    """The same as a time: ms since 1970 UTC, or a datetime with its time zone."""


class ColumnOptions(TypedDict, total=False):
    """Everything that whole columns of messages have beside values and keys."""

    queue: int | None
    tags: str | Sequence[str | None] | None
    """One for all, or one for each."""
    headers: Sequence[Mapping[str, bytes] | None] | None
    timestamps_ms: int | Sequence[int] | None
    """One for all, or one for each."""


class SendManyOptions(ColumnOptions, total=False):
    """The keyword arguments of `Producer.send_many`."""

    delay_s: float | None
    deliver_at: datetime | int | None


def check_options(call: str, given: SendOptions | SendManyOptions, known: type) -> None:
    """Check the names of keyword arguments that are used later.

    Raises:
        TypeError: one is not known, in Python's own words.
    """
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
