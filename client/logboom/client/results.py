"""Results of the client: messages, sends, pulls, and counters of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Any, TypeAlias, overload

from msgspec import Struct

from logboom.client.delays import Parking
from logboom.wire.columns import Columns
from logboom.wire.messages import ConfigEntry, ConnectionState, PullStatus


class Message(Struct, frozen=True, gc=False):
    """A message that was read."""

    topic: str
    queue: int
    offset: int
    key: bytes | None
    value: bytes | None
    """None: a tombstone."""
    tag: str | None
    headers: dict[str, bytes] | None
    timestamp_ms: int
    """Message time, ms since 1970 UTC."""
    attempt: int = 1
    """Number of this delivery, from 1."""
    read_from: tuple[str, int, int] | None = None
    """For a retry: topic, queue and offset of the copy that was read; the rest is as first sent."""


class SendResult(Struct, frozen=True, gc=False):
    """Where a message was stored. `offset` is -1 with acks="none", because there is no answer."""

    topic: str
    queue: int
    offset: int
    timestamp_ms: int
    """Message time, ms since 1970 UTC."""
    parked: Parking | None = None
    """Where a delayed message waits: `offset` is -1 then, and `Producer.recall` takes it back."""


Run: TypeAlias = tuple[int, int, int]
"""(queue, first offset, count) of messages that `send_many` stored in a row."""


def messages_of(
    topic: str, queue: int, columns: Columns, picked: bytes | None = None
) -> list[Message]:
    """Return the messages of a batch or of a slice, built in one sweep.

    With `picked` only those whose byte is 1.
    """
    parts: Sequence[Iterable[Any]]
    parts = columns.parts() if picked is None else columns.some_parts(picked)
    return list(map(Message, repeat(topic), repeat(queue), *parts))


def _picked(messages: list[Message], picked: bytes | None) -> Iterable[Message]:
    return messages if picked is None else compress(messages, picked)


class Messages(Sequence[Message]):
    """The messages of a pull, decoded at first use."""

    __slots__ = ("_decoded", "_queue", "_topic", "batches", "selected")

    def __init__(
        self,
        topic: str,
        queue: int,
        batches: list[Columns],
        selected: list[bytes | None] | None = None,
    ) -> None:
        """Wrap batches; `selected` as in `PullResult.selectors`, None: everything."""
        self._topic = topic
        self._queue = queue
        self.batches = batches
        self.selected: list[bytes | None] = [None] * len(batches)
        if selected is not None:
            self.selected = selected
        self._decoded: list[Message] | None = None

    def __len__(self) -> int:
        return sum(
            len(batch) if picked is None else picked.count(1)
            for batch, picked in zip(self.batches, self.selected, strict=True)
        )

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        return self._all()[place]

    def __repr__(self) -> str:
        return f"<{len(self)} messages of {self._topic}/{self._queue}>"

    def _all(self) -> list[Message]:
        if self._decoded is None:
            self._decoded = [
                message
                for batch, picked in zip(self.batches, self.selected, strict=True)
                for message in _picked(messages_of(self._topic, self._queue, batch), picked)
            ]
        return self._decoded


class PullResult:
    """The result of one pull."""

    __slots__ = ("max_offset", "messages", "min_offset", "next_offset", "status")

    def __init__(
        self,
        status: PullStatus,
        messages: Messages,
        next_offset: int,
        min_offset: int,
        max_offset: int,
    ) -> None:
        self.status: PullStatus = status
        """FOUND, NO_NEW_MESSAGE, NO_MATCHED_MESSAGE or OFFSET_ILLEGAL."""
        self.messages = messages
        self.next_offset = next_offset
        """The offset to pull next; with OFFSET_ILLEGAL the nearest one that exists."""
        self.min_offset = min_offset
        self.max_offset = max_offset
        """The high watermark: the offset after the last message that can be read."""

    def columns(self) -> list[Columns]:
        """Return the same messages as columns, one group per batch, without decoding them.

        With a filter, messages that do not match are included: see `selectors`.
        """
        return self.messages.batches

    def selectors(self) -> list[bytes | None]:
        """Return one byte per message for each group of `columns`, 1 if it matches; None: all do."""
        return self.messages.selected

    def __repr__(self) -> str:
        return (
            f"PullResult({self.status}, {len(self.messages)} messages, next {self.next_offset}, "
            f"offsets {self.min_offset} to {self.max_offset})"
        )


class ColumnBatch:
    """Columns with their topic and queue, as `poll_columns` returns them."""

    __slots__ = ("columns", "queue", "topic")

    def __init__(self, topic: str, queue: int, columns: Columns) -> None:
        self.topic = topic
        self.queue = queue
        self.columns = columns

    def __len__(self) -> int:
        return self.columns.count

    def messages(self) -> list[Message]:
        """Return the same as Message objects."""
        return messages_of(self.topic, self.queue, self.columns)


class NodeConnections(Struct, frozen=True):
    """Connections of one node; `error` tells why there are none."""

    node: str
    connections: list[ConnectionState]
    total: int
    """Number of all, also beyond those that were asked for."""
    error: str = ""


class NodeConfig(Struct, frozen=True):
    """Settings that one node goes by; `error` tells why there are none."""

    node: str
    role: str
    entries: list[ConfigEntry]
    error: str = ""


class NodeStats(Struct, frozen=True):
    """Counters of one node; `error` tells why there are none."""

    node: str
    role: str
    endpoint: str
    counters: dict[str, int | float | str]
    error: str = ""
