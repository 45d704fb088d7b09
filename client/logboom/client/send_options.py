"""The keyword arguments for sending messages, shared by both clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from logboom.client.argument_checks import BytesLike


class MessageOptions(TypedDict, total=False):
    """The optional parts of one message."""

    key: BytesLike | None
    """Messages with the same key go to the same queue, and stay in order there."""
    tag: str | None
    headers: Mapping[str, bytes] | None
    timestamp_ms: int | None
    """Message time in ms since 1970 UTC; None: the time at which its batch is made."""
    queue: int | None
    """None: the queue of the key's hash; without a key, one queue after the other, batch by
    batch."""


class SendOptions(MessageOptions, total=False):
    """The keyword arguments of `Producer.send`."""

    delay_s: float | None
    """Seconds before which nobody reads the message."""
    deliver_at: datetime | int | None
    """Time before which nobody reads the message: ms since 1970 UTC, or a datetime with its
    zone."""


class ColumnOptions(TypedDict, total=False):
    """The optional columns of many messages."""

    queue: int | None
    tags: str | Sequence[str | None] | None
    """One for all messages, or one for each."""
    headers: Sequence[Mapping[str, bytes] | None] | None
    timestamps_ms: int | Sequence[int] | None
    """One for all messages, or one for each."""


class SendManyOptions(ColumnOptions, total=False):
    """The keyword arguments of `Producer.send_many`."""

    delay_s: float | None
    deliver_at: datetime | int | None


def check_options(call: str, given: SendOptions | SendManyOptions, known: type) -> None:
    """Check the names of keyword arguments that are only used later.

    Raises:
        TypeError: a name is not known; the text is Python's own.
    """
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
