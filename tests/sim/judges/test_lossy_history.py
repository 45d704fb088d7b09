"""What a loss excuses, and what it does not."""

from __future__ import annotations

import pytest

from tests.sim.judges.history import Queue
from tests.sim.judges.lossy_history import LossyHistory
from tests.sim.world.trace import BrokenProperty, Trace

QUEUE = Queue("t", 0)


class Disk:
    """What a history sees of a disk."""

    def __init__(self, *values: bytes) -> None:
        self.values = list(values)
        self.history = LossyHistory(Trace(lambda: 0.0), lambda: 0.0, self._holds)
        for value in values:
            self.history.send(QUEUE, value)

    def _holds(self, _queue: Queue, offset: int, value: bytes) -> bool:
        return self.values[offset : offset + 1] == [value]

    def lose_all(self) -> None:
        """Another disk takes its place, and is led."""
        self.values = []
        self.history.lose(QUEUE, 0)

    def store(self, value: bytes) -> None:
        """A new message is acknowledged."""
        self.history.send(QUEUE, value)
        self.values.append(value)
        self.history.ack(value, QUEUE, len(self.values) - 1)


def test_what_is_lost_is_owed_to_nobody_and_what_is_new_to_everybody() -> None:
    disk = Disk(b"p/0", b"p/1")
    seen = disk.history
    seen.ack(b"p/0", QUEUE, 0)
    seen.read("r", QUEUE, [(0, b"p/0")])
    disk.lose_all()
    seen.ack(b"p/1", QUEUE, 1)
    assert (seen.unanswered(), seen.unread("r"), seen.known_end(QUEUE)) == ([], [], 0)
    disk.store(b"p/2")
    assert seen.unread("r") == [b"p/2"]
    seen.illegal("r", QUEUE, 1, 0)
    seen.read("r", QUEUE, [(0, b"p/2")])
    assert seen.unread("r") == []


def test_what_the_queue_still_has_is_not_excused() -> None:
    disk = Disk(b"p/0")
    disk.history.ack(b"p/0", QUEUE, 0)
    disk.values = []
    disk.history.lose(QUEUE, 1)
    with pytest.raises(BrokenProperty, match="nothing acknowledged is lost"):
        disk.history.compare(QUEUE, {"a": {}})


def test_a_reader_goes_back_only_where_messages_were_lost() -> None:
    disk = Disk(b"p/0")
    disk.history.read("r", QUEUE, [(0, b"p/0")])
    with pytest.raises(BrokenProperty, match="never rewinds a reader"):
        disk.history.illegal("r", QUEUE, 1, 0)
