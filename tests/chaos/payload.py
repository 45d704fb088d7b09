"""What producers send: every message says who sent it, to which queue, and as which.

A *stream* is what one producer sends to one queue; its messages are numbered from 0. From a stream
and a number follow key and value, byte for byte, so a reader proves all of a message with nothing
but itself. The keys of a stream all belong to its queue.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Final

from logboom.wire.hashing import queue_for
from tests.sim.judges.logs import Stream

KEYS: Final = 16
"""Keys of one queue, used in turn."""
FILLINGS: Final = 61
"""Different tails of values; prime, so that they do not go along with the keys."""
TAIL_BYTES: Final = 80

_DRAW: Final = random.Random(61)
_TAILS: Final = [b"/" + _DRAW.randbytes(TAIL_BYTES) for _ in range(FILLINGS)]


@lru_cache(maxsize=256)
def keys_of(queue: int, queues: int) -> tuple[bytes, ...]:
    """Keys that go to `queue` of a topic with `queues` queues."""
    found: list[bytes] = []
    number = 0
    while len(found) < KEYS:
        key = b"key-%d" % number
        if queue_for(key, queues) == queue:
            found.append(key)
        number += 1
    return tuple(found)


def values(stream: Stream, first: int, count: int) -> list[bytes]:
    """The values of messages `first` to `first + count` of a stream."""
    prefix = stream.prefix
    return [prefix + b"%d" % n + _TAILS[n % FILLINGS] for n in range(first, first + count)]


def keys(stream: Stream, first: int, count: int, queues: int) -> list[bytes]:
    """Their keys."""
    own = keys_of(stream.queue, queues)
    return [own[n % KEYS] for n in range(first, first + count)]


def parse(value: bytes) -> tuple[Stream, int]:
    """Stream and number of a value.

    Raises:
        ValueError: no producer of ours sent it.
    """
    producer, queue, number, _ = value.split(b"/", 3)
    stream, found = Stream(producer.decode(), int(queue)), int(number)
    if values(stream, found, 1) != [value]:
        raise ValueError(f"{value[:40]!r} is not what was sent")
    return stream, found


def runs(
    taken: list[bytes], taken_keys: list[bytes | None], queues: int
) -> list[tuple[Stream, int, int]]:
    """(stream, first number, count) of messages that lie in a row; most batches are one run.

    Raises:
        ValueError: a message that no producer of ours sent.
    """
    found: list[tuple[Stream, int, int]] = []
    place = 0
    while place < len(taken):
        stream, first = parse(taken[place])
        rest = len(taken) - place
        count = rest
        if taken[place:] != values(stream, first, rest):
            expected = values(stream, first, rest)
            count = next(n for n in range(rest) if taken[place + n] != expected[n])
        if taken_keys[place : place + count] != keys(stream, first, count, queues):
            raise ValueError(f"keys of {stream} from {first} on are not those that were sent")
        found.append((stream, first, count))
        place += count
    return found
