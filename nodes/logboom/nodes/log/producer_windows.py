"""Idempotent producers of one queue: a window of their last batches (SAFETY Q9).

Derived at append from batch heads, so that every replica has it. An entry is evicted only when
five newer ones of its producer lie below the HW; since a cut never goes below the HW, what a cut
leaves is still a whole window, and nothing must be read again. Only what lies below the HW is
written down (`encode`), with the position it holds for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from logboom.nodes.log.keys import Position
from logboom.wire.errors import DataDamaged, ProducerError
from logboom.wire.head import BatchHead, sequence_after

WINDOW: Final = 5
"""Batches of a producer that may be in flight to a queue, and are remembered at least."""


class BatchMetadata(NamedTuple):
    """One batch of a producer in the log."""

    epoch: int
    sequence: int
    messages: int
    offset: int
    append_time_ms: int
    side: int = 0
    parked: bool = False
    """It waits at (offset, side) and took no offset."""

    @property
    def at(self) -> Position:
        """Where its entry begins."""
        return Position(self.offset, self.side)

    @property
    def after(self) -> Position:
        """Behind its entry."""
        if self.parked:
            return Position(self.offset, self.side + 1)
        return Position(self.offset + self.messages)


_decode: Final = msgspec.msgpack.Decoder(dict[int, list[BatchMetadata]]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class ProducerWindows:
    """The windows of all producers of a queue."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: dict[int, list[BatchMetadata]] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def find(self, head: BatchHead) -> BatchMetadata | None:
        """The original if this batch is a retained duplicate, None if it is next in order.

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
        """Note a batch at `at`; older than what is known (a replay): nothing happens."""
        window = self._windows.get(head.producer_id)
        if window is None:
            window = self._windows[head.producer_id] = []
        elif window[-1].at >= at:
            return
        place = (at.offset, append_time_ms, at.side, parked)
        window.append(BatchMetadata(head.producer_epoch, head.base_sequence, head.count, *place))
        # Five newer ones below the HW make the oldest dispensable.
        while len(window) > WINDOW and window[WINDOW].at < hw:
            del window[0]

    def cut(self, end: Position) -> None:
        """The log now ends at `end`: forget all behind it."""
        for producer_id in list(self._windows):
            window = self._windows[producer_id]
            while window and window[-1].at >= end:
                window.pop()
            if not window:
                del self._windows[producer_id]

    def idle(self, before_ms: int) -> dict[int, Position]:
        """Producers whose last batch was appended before `before_ms`, and where that is."""
        lasts = ((producer, window[-1]) for producer, window in self._windows.items())
        return {p: last.at for p, last in lasts if last.append_time_ms < before_ms}

    def expire(self, producer_ids: Iterable[int], before: Position) -> None:
        """Forget producers that wrote nothing at or after `before`."""
        for producer_id in producer_ids:
            window = self._windows.get(producer_id)
            if window is not None and window[-1].at < before:
                del self._windows[producer_id]

    def encode(self, hw: Position) -> bytes:
        """All windows as they stand below the HW."""
        below = {}
        for producer_id, window in self._windows.items():
            kept = [written for written in window if written.at < hw]
            if kept:
                below[producer_id] = kept[-WINDOW:]
        return _encode(below)

    def load(self, stored: bytes) -> None:
        """Replace all by what `encode` gave.

        Raises:
            DataDamaged: it cannot be read.
        """
        try:
            self._windows = {p: w for p, w in _decode(stored).items() if w}
        except msgspec.DecodeError as error:
            raise DataDamaged(f"a queue's producer windows cannot be read: {error}") from None
