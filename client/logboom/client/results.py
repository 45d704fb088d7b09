"""What the client hands out: messages, results of sends and pulls, counters of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Any, TypeAlias, overload

from msgspec import Struct

from logboom.client.delays import Parking
from logboom.wire.columns import Columns
from logboom.wire.messages import PullStatus


class Message(Struct, frozen=True, gc=False):
    """One message as it was read."""

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
    """Which delivery this is, from 1."""
    read_from: tuple[str, int, int] | None = None
    """Of a retry: topic, queue and offset of the copy that was read; all else is as it was sent
    first."""


class SendResult(Struct, frozen=True, gc=False):
    """Where a message went. `offset` is -1 with acks="none": nobody said."""

    topic: str
    queue: int
    offset: int
    timestamp_ms: int
    """Message time, ms since 1970 UTC."""
    parked: Parking | None = None
    """Where it waits if it was sent with a delay: `offset` is -1 then, and `Producer.recall` takes
    it back."""


Run: TypeAlias = tuple[int, int, int]
"""(queue, first offset, count) of messages that `send_many` stored in a row."""


def messages_of(
    topic: str, queue: int, columns: Columns, picked: bytes | None = None
) -> list[Message]:
    """All messages of a batch or of a slice of it, built in one sweep; or those picked, by a byte
    each."""
    parts: Sequence[Iterable[Any]]
    parts = columns.parts() if picked is None else columns.some_parts(picked)
    return list(map(Message, repeat(topic), repeat(queue), *parts))


def _picked(messages: list[Message], picked: bytes | None) -> Iterable[Message]:
    return messages if picked is None else compress(messages, picked)


class Messages(Sequence[Message]):
    """The messages of a pull, decoded when first looked at."""

    __slots__ = ("_decoded", "_queue", "_topic", "batches", "selected")

    def __init__(
        self,
        topic: str,
        queue: int,
        batches: list[Columns],
        selected: list[bytes | None] | None = None,
    ) -> None:
        """`selected`: as `PullResult.selectors` has it; None: everything."""
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
    """What one pull found."""

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
        """Where to pull next; with OFFSET_ILLEGAL the nearest offset that exists."""
        self.min_offset = min_offset
        self.max_offset = max_offset
        """The high watermark: the offset after the last message that can be read."""

    def columns(self) -> list[Columns]:
        """The same messages as bare columns, one group a batch; decodes nothing by itself.

        With a filter the messages between those that match are there too: see `selectors`.
        """
        return self.messages.batches

    def selectors(self) -> list[bytes | None]:
        """Per group of `columns`, a byte a message, 1 where it matches; None: all do."""
        return self.messages.selected

    def __repr__(self) -> str:
        return (
            f"PullResult({self.status}, {len(self.messages)} messages, next {self.next_offset}, "
            f"offsets {self.min_offset} to {self.max_offset})"
        )


class ColumnBatch:
    """Columns with the place that they come from; what `poll_columns` returns."""

    __slots__ = ("columns", "queue", "topic")

    def __init__(self, topic: str, queue: int, columns: Columns) -> None:
        self.topic = topic
        self.queue = queue
        self.columns = columns

    def __len__(self) -> int:
        return self.columns.count

    def messages(self) -> list[Message]:
        """The same as Message objects."""
        return messages_of(self.topic, self.queue, self.columns)


class NodeStats(Struct, frozen=True):
    """Flat counters of one node; `error` tells why there are none."""

    node: str
    role: str
    endpoint: str
    counters: dict[str, int | float | str]
    error: str = ""
