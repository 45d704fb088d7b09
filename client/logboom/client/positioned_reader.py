# Generated from aio/positioned_reader.py by `make generate`: do not edit.
"""The base of the two consumers that have positions in queues of their own."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from logboom.client.calls import MessageTime
from logboom.client.fetch.fetch_collector import FetchCollector, seek_start
from logboom.client.groups.group_collector import GroupFetchCollector
from logboom.client.reader import Reader
from logboom.client.results import ColumnBatch


class PositionedReader(Reader):
    """A reader with a position in each of its queues."""

    _intake: FetchCollector | GroupFetchCollector
    _intake_lock: AbstractContextManager[Any]
    """The lock for reading and moving positions."""

    def poll_columns(self, timeout_s: float = 1.0) -> list[ColumnBatch]:
        """Return the batches that have arrived, as columns, or wait up to `timeout_s` for the
        first.

        Batches are whole: a filter only drops those without any match. In a group, acknowledge them
        whole.
        """
        if not self._opened:
            self.open()
        with self._read_lock:
            self._check()
            return self._take_columns() or self._wait_for(self._take_columns, timeout_s)

    def seek(self, topic: str, queue: int, offset: int | str) -> None:
        """Continue reading a queue at `offset`, or at its "first" or "last". Commits never go back.

        Raises:
            UnknownResource: this consumer does not read the queue.
            InvalidRequest: the offset is invalid.
        """
        self.open()
        with self._intake_lock:
            self._intake.seek(topic, queue, seek_start(offset))

    def seek_to_time(self, topic: str, queue: int, timestamp_ms: int) -> None:
        """Continue reading a queue at the first message at or after a message time, or at its end at
        this moment if there is none."""
        self.open()
        with self._intake_lock:
            self._intake.seek(topic, queue, MessageTime(timestamp_ms))

    def position(self, topic: str, queue: int) -> int | None:
        """Return the offset of the next message of a queue; None while it is being looked up."""
        with self._intake_lock:
            return self._intake.position(topic, queue)

    def pause(self, topic: str, queue: int) -> None:
        """Return no messages of a queue until `resume`."""
        self.open()
        with self._intake_lock:
            self._intake.pause(topic, queue)

    def resume(self, topic: str, queue: int) -> None:
        """Return messages of a queue again."""
        self.open()
        with self._intake_lock:
            self._intake.resume(topic, queue)
        self._event.set()

    @abstractmethod
    def _take_columns(self) -> list[ColumnBatch]:
        """Return the batches that have arrived."""
