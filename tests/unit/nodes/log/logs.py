"""Logs to test with: entries appended as a broker does, with their record and epoch table."""

from collections.abc import Sequence

import msgspec

from logboom.nodes.log.index import QueueIndex
from logboom.nodes.log.keys import Position, log_key
from logboom.nodes.log.log_state import LogState, put_epochs, put_record
from logboom.nodes.log.recovery import after_entry
from logboom.nodes.log.storage import Storage, WriteSet
from logboom.wire.batch import ControlKind, encode_batch, encode_control, peek, stamp

TOPIC, QUEUE = 3, 1


class Log:
    """One queue's log in a storage; everything appended is below the HW."""

    def __init__(self, storage: Storage, index: QueueIndex | None = None) -> None:
        self.storage = storage
        self.index = index
        self.record = LogState()
        self.epochs: list[tuple[int, Position]] = []

    def append(
        self,
        count: int = 1,
        *,
        width: int = 10,
        time_ms: int = 0,
        timestamps: Sequence[int] | None = None,
        keys: Sequence[bytes] | None = None,
        epoch: int = 1,
    ) -> Position:
        """Append a batch; where it begins."""
        if timestamps is not None:
            count = len(timestamps)
        if keys is not None:
            count = len(keys)
        values = [bytes(width)] * count
        batch = encode_batch(values, keys, timestamps_ms=timestamps, now_ms=time_ms)
        return self._append(batch, time_ms, epoch)

    def control(self, time_ms: int = 0, epoch: int = 1) -> Position:
        """Append a control entry; where it stands."""
        return self._append(encode_control(ControlKind.PRODUCER_EXPIRY, b"\x90"), time_ms, epoch)

    def _append(self, batch: bytes, time_ms: int, epoch: int) -> Position:
        at = self.record.end
        entry = stamp(batch, at.offset, epoch, time_ms)
        head = peek(entry)
        writes = WriteSet()
        writes.put("log", log_key(TOPIC, QUEUE, *at), entry)
        end = after_entry(at, head)
        self.record = msgspec.structs.replace(
            self.record,
            end=end,
            hw=end,
            append_time_ms=time_ms,
            size=self.record.size + len(entry),
        )
        put_record(writes, TOPIC, QUEUE, self.record)
        if not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, at))
            put_epochs(writes, TOPIC, QUEUE, self.epochs)
        self.storage.write(writes)
        if self.index is not None:
            self.index.note(at, head)
        return at

    def advance(self) -> None:
        """Let the index take in everything."""
        assert self.index is not None
        more = True
        while more:
            writes = WriteSet()
            more = self.index.advance(writes, self.record.hw)
            self.storage.write(writes)


def new_index(storage: Storage, log_start: int = 0) -> QueueIndex:
    """The index as a start of the broker finds it."""
    return QueueIndex(storage, TOPIC, QUEUE, log_start)
