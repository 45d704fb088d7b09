"""The idempotent producers of one queue, with a window of the last batches of each (Q9).

The windows are derived from batch heads at append, so that every replica has them. A batch leaves
the window only when five newer ones of its producer are committed. Because the log is never
truncated below the HW, a truncation leaves a complete window, and nothing has to be read again.
`encode` stores only what is committed, with the position that it is valid for.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from logboom.nodes.log.keys import Position
from logboom.wire.base import UNDECODABLE
from logboom.wire.errors import DataDamaged, ProducerError
from logboom.wire.head import BatchHead, sequence_after
from logboom.wire.user_marks import span_of_id, span_of_user

WINDOW: Final = 5
"""Batches that a producer may have in flight to a queue, and so the minimum that is remembered."""
MAX_CHANGED: Final = 1_000
"""Windows that may have changed since they were encoded; of more, two are encoded with each batch."""


class BatchMetadata(NamedTuple):
    """One batch of a producer in the log."""

    epoch: int
    sequence: int
    messages: int
    offset: int
    append_time_ms: int
    side: int = 0
    parked: bool = False
    """True if it is parked at (offset, side) and took no offset."""

    @property
    def at(self) -> Position:
        """Position at which its entry begins."""
        return Position(self.offset, self.side)

    @property
    def after(self) -> Position:
        """Position after its entry."""
        if self.parked:
            return Position(self.offset, self.side + 1)
        return Position(self.offset + self.messages)


_decode: Final = msgspec.msgpack.Decoder(dict[int, list[BatchMetadata]]).decode
_decode_each: Final = msgspec.msgpack.Decoder(dict[int, msgspec.Raw]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class ProducerWindows:
    """The windows of all producers of a queue."""

    __slots__ = ("_changed", "_encoded", "_of_span", "_windows")

    def __init__(self) -> None:
        self._windows: dict[int, list[BatchMetadata]] = {}
        self._of_span: dict[int, dict[int, None]] = {}
        """`span_of_id` → ids with a window, in their order."""
        self._encoded: dict[int, msgspec.Raw] = {}
        """What `encode` last made of each window."""
        self._changed: dict[int, None] = {}
        """Ids whose window has changed since, or had batches above the HW."""

    def __len__(self) -> int:
        return len(self._windows)

    def of_user(self, user: str) -> Iterable[int]:
        """Return the producers whose ids were given to a user."""
        return self._of_span.get(span_of_user(user), {})

    def find(self, head: BatchHead) -> BatchMetadata | None:
        """Find the original if this batch is a retained duplicate; None if it is the next in order.

        Raises:
            ProducerError: FENCED_PRODUCER or OUT_OF_ORDER_SEQUENCE.
        """
        window = self._windows.get(head.producer_id)
        last = window[-1] if window else None
        if last is not None and head.producer_epoch < last.epoch:
            raise ProducerError(
                f"producer {head.producer_id} epoch {head.producer_epoch} was replaced by epoch "
                f"{last.epoch}: only one producer may use an id; open a new one",
                "FENCED_PRODUCER",
                epoch=last.epoch,
            )
        if last is None or window is None or head.producer_epoch > last.epoch:
            expected = 0
        else:
            expected = sequence_after(last.sequence, last.messages)
        if head.base_sequence == expected:
            return None
        for written in window or ():
            if (
                written.epoch == head.producer_epoch
                and written.sequence == head.base_sequence
                and written.messages == head.count
            ):
                return written
        raise ProducerError(
            f"producer {head.producer_id} sent sequence {head.base_sequence}, expected {expected}: "
            "a batch before it is missing, or it is older than the last "
            f"{WINDOW}; take a new producer epoch",
            "OUT_OF_ORDER_SEQUENCE",
            expected=expected,
        )

    def add(
        self,
        head: BatchHead,
        at: Position,
        append_time_ms: int,
        hw: Position,
        *,
        parked: bool = False,
    ) -> None:
        """Note a batch at `at`; ignore one that is older than the window (a replay)."""
        window = self._windows.get(head.producer_id)
        if window is None:
            window = self._windows[head.producer_id] = []
            self._of_span.setdefault(span_of_id(head.producer_id), {})[head.producer_id] = None
        elif window[-1].at >= at:
            return
        place = (at.offset, append_time_ms, at.side, parked)
        window.append(BatchMetadata(head.producer_epoch, head.base_sequence, head.count, *place))
        # The oldest can go once five newer ones are committed.
        while len(window) > WINDOW and window[WINDOW].at < hw:
            del window[0]
        self._changed[head.producer_id] = None
        if len(self._changed) > MAX_CHANGED:
            for producer_id in list(islice(self._changed, 2)):
                self._encode_window(producer_id, hw)

    def cut(self, end: Position) -> None:
        """Follow a truncation of the log to `end`."""
        for producer_id in [p for p, w in self._windows.items() if w[-1].offset >= end.offset]:
            window = self._windows[producer_id]
            while window and window[-1].at >= end:
                window.pop()
                self._changed[producer_id] = None
            if not window:
                self._forget(producer_id)

    def idle(self, before_ms: int) -> dict[int, Position]:
        """Return producers whose last batch was appended before `before_ms`, with its position."""
        windows = self._windows.items()
        return {p: w[-1].at for p, w in windows if w[-1].append_time_ms < before_ms}

    def ahead(self, now_ms: int) -> dict[int, Position]:
        """Return producers whose last batch has an append time after `now_ms`, with its position."""
        windows = self._windows.items()
        return {p: w[-1].at for p, w in windows if w[-1].append_time_ms > now_ms}

    def expire(self, producer_ids: Iterable[int], before: Position) -> None:
        """Forget producers that wrote nothing at or after `before`."""
        for producer_id in producer_ids:
            window = self._windows.get(producer_id)
            if window is not None and window[-1].at < before:
                self._forget(producer_id)

    def _forget(self, producer_id: int) -> None:
        del self._windows[producer_id]
        self._encoded.pop(producer_id, None)
        self._changed.pop(producer_id, None)
        span = span_of_id(producer_id)
        del self._of_span[span][producer_id]
        if not self._of_span[span]:
            del self._of_span[span]

    def encode(self, hw: Position) -> bytes:
        """Encode all windows up to the HW, which never goes back but by a cut.

        What has not changed since the last time is not encoded again.
        """
        for producer_id in list(self._changed):
            self._encode_window(producer_id, hw)
        return _encode(self._encoded)

    def _encode_window(self, producer_id: int, hw: Position) -> None:
        window = self._windows[producer_id]
        kept = [written for written in window if written.at < hw]
        del self._changed[producer_id]
        if len(kept) < len(window):
            self._changed[producer_id] = None
        if kept:
            self._encoded[producer_id] = msgspec.Raw(_encode(kept[-WINDOW:]))
        else:
            self._encoded.pop(producer_id, None)

    def load(self, stored: bytes, hw: Position) -> None:
        """Replace all windows by encoded ones; batches in them may be above the HW.

        Raises:
            DataDamaged: they cannot be decoded.
        """
        try:
            self._windows = {p: w for p, w in _decode(stored).items() if w}
            self._encoded = _decode_each(stored)
        except UNDECODABLE as error:
            raise DataDamaged(f"a queue's producer windows cannot be read: {error}") from None
        self._changed = {p: None for p, w in self._windows.items() if w[-1].at >= hw}
        self._of_span = {}
        for producer_id in self._windows:
            self._of_span.setdefault(span_of_id(producer_id), {})[producer_id] = None
