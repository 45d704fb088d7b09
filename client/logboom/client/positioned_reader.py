# Generated from aio/positioned_reader.py by client/generate_blocking.py: do not edit, run `make generate`.
"""What the two consumers share that read queues of their own: positions, pauses, whole columns."""

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
    """A reader that has queues, and a position in each of them."""

    _intake: FetchCollector | GroupFetchCollector
    _intake_lock: AbstractContextManager[Any]
    """Held while positions are read and moved."""

    def poll_columns(self, timeout_s: float = 1.0) -> list[ColumnBatch]:
        """The batches that are here, as columns, else the first to come in `timeout_s`.

        Batches are whole: a filter leaves out only those that hold no match. In a group,
        acknowledge them whole.
        """
        if not self._opened:
            self.open()
        with self._read_lock:
            self._check()
            return self._take_columns() or self._wait_for(self._take_columns, timeout_s)

    def seek(self, topic: str, queue: int, offset: int | str) -> None:
        """Read a queue on from `offset`, or from its "first" or "last". Commits never go back."""
        self.open()
        with self._intake_lock:
            self._intake.seek(topic, queue, seek_start(offset))

    def seek_to_time(self, topic: str, queue: int, timestamp_ms: int) -> None:
        """Read a queue on from the messages at or after a message time."""
        self.open()
        with self._intake_lock:
            self._intake.seek(topic, queue, MessageTime(timestamp_ms))

    def position(self, topic: str, queue: int) -> int | None:
        """Offset of the next message of a queue; None while it is looked up."""
        with self._intake_lock:
            return self._intake.position(topic, queue)

    def pause(self, topic: str, queue: int) -> None:
        """Give nothing of this queue until `resume`."""
        self.open()
        with self._intake_lock:
            self._intake.pause(topic, queue)

    def resume(self, topic: str, queue: int) -> None:
        """Give messages of this queue again."""
        self.open()
        with self._intake_lock:
            self._intake.resume(topic, queue)
        self._event.set()

    @abstractmethod
    def _take_columns(self) -> list[ColumnBatch]:
        """The batches that are here."""
