"""What a queue's log holds in the end, held against what clients saw: the judge of simulation and chaos.

A message is named by its stream, which is what one producer sends to one queue, and its number there.
Messages in a row are judged together, so that tens of millions fit; the simulation has rows of one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

LOST: Final = "nothing acknowledged is lost"
DOUBLED: Final = "nothing is doubled"
REORDERED: Final = "producers' order holds"
PHANTOM: Final = "what is stored was sent"
UNSTABLE: Final = "reads are final"
GAPS: Final = "offsets are gap-free"
ALIKE: Final = "replicas agree byte for byte"
WHOLE: Final = "entries are whole"
OUTCOMES: Final = "one outcome per send"


class Found(Protocol):
    """Is told of a broken promise: by which name, where, and for how many messages."""

    def __call__(self, name: str, detail: str, count: int = 1) -> None:
        """Raise it, or write it down."""


class Stream(NamedTuple):
    """Who sends, and to which queue."""

    producer: str
    queue: int

    @property
    def prefix(self) -> bytes:
        """What all its values begin with."""
        return f"{self.producer}/{self.queue}/".encode()


@dataclass(frozen=True, slots=True)
class Stored:
    """Messages in a row on the disks of a queue's replicas."""

    offset: int
    stream: Stream
    first: int
    count: int


def never(_row: Stored) -> bool:
    """No message may be there twice."""
    return False


class Log:
    """One queue's messages by offset."""

    def __init__(self, queue: object, rows: Sequence[Stored], start: int = 0) -> None:
        """`start`: the first offset that retention has left."""
        self._queue = queue
        self._rows = rows
        self._start = start
        self._offsets = [row.offset for row in rows]
        self.end = rows[-1].offset + rows[-1].count if rows else start

    def differing(self, offset: int, stream: Stream, first: int, count: int) -> Iterator[str]:
        """One text for each message from `offset` on that is not the one expected there."""
        place = bisect_right(self._offsets, offset) - 1
        done = 0
        while done < count:
            at, number = offset + done, first + done
            row = self._rows[place] if 0 <= place < len(self._rows) else None
            if row is None or not row.offset <= at < row.offset + row.count:
                yield from (
                    f"queue {self._queue} offset {offset + n}: {stream.producer}/{first + n}, "
                    "nothing is stored there"
                    for n in range(done, count)
                )
                return
            part = min(count - done, row.offset + row.count - at)
            stored = row.first + at - row.offset
            if (row.stream, stored) != (stream, number):
                yield from (
                    f"queue {self._queue} offset {at + n}: {stream.producer}/{number + n}, "
                    f"stored is {row.stream.producer}/{stored + n}"
                    for n in range(part)
                )
            done += part
            place += 1

    def check(
        self,
        found: Found,
        was_sent: Callable[[Stored], bool],
        may_repeat: Callable[[Stored], bool] = never,
    ) -> None:
        """Check that there is no gap, and that every message was sent, and is stored once, in its
        producer's order.

        Args:
            found: is told what is wrong.
            was_sent: whether somebody has sent all messages of a row.
            may_repeat: whether the messages of a row, which begins before the last of its stream, may
                be there twice.
        """
        end = self._start
        parts: defaultdict[Stream, list[tuple[int, int]]] = defaultdict(list)
        ends: defaultdict[Stream, int] = defaultdict(int)
        for row in self._rows:
            if row.offset != end:
                found(GAPS, f"queue {self._queue}: offset {row.offset} follows on {end}")
            end = row.offset + row.count
            if not was_sent(row):
                found(PHANTOM, f"queue {self._queue} offset {row.offset}: {row}", row.count)
            known = parts[row.stream]
            if row.first < ends[row.stream]:
                self._again(found, row, known, may_repeat)
            known.append((row.first, row.first + row.count))
            ends[row.stream] = max(ends[row.stream], row.first + row.count)

    def _again(
        self,
        found: Found,
        row: Stored,
        known: list[tuple[int, int]],
        may_repeat: Callable[[Stored], bool],
    ) -> None:
        """A row begins before the end of its stream: it is there again, or too late."""
        numbers = range(row.first, row.first + row.count)
        twice = sum(any(a <= number < b for a, b in known) for number in numbers)
        detail = (
            f"queue {self._queue} offset {row.offset}: {row.stream.producer} from {row.first} on"
        )
        if twice and not may_repeat(row):
            found(DOUBLED, f"{detail}, {twice} of {row.count} again", twice)
        if twice < row.count:
            last = max(end for _, end in known) - 1
            found(REORDERED, f"{detail}, behind {last}", row.count - twice)
