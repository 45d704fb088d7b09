"""The messages of the rivals' load: short JSON texts, alike in all processes, and their checksum.

They compress about as well as records of a shop do. Random bytes would make LZ4 a cost without
a gain, and repeated ones a gain that nobody has.
"""

from __future__ import annotations

import functools
import itertools
import random
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

DISTINCT: Final = 10_000
"""The number of different values, used in turn: many times what a batch holds."""
WORDS: Final = [
    "amber",
    "anchor",
    "apple",
    "basket",
    "bottle",
    "bridge",
    "candle",
    "canvas",
    "carpet",
    "cellar",
    "cherry",
    "copper",
    "cotton",
    "desk",
    "drawer",
    "engine",
    "feather",
    "fiddle",
    "flour",
    "garden",
    "ginger",
    "hammer",
    "harbour",
    "honey",
    "kettle",
    "ladder",
    "lantern",
    "leather",
    "linen",
    "marble",
    "mirror",
    "needle",
    "orchard",
    "paper",
    "pepper",
    "pillow",
    "pocket",
    "ribbon",
    "saddle",
    "silver",
    "spindle",
    "thimble",
    "timber",
    "velvet",
    "walnut",
    "window",
    "woollen",
]


@functools.cache
def pool(size: int) -> list[bytes]:
    """Return `DISTINCT` values of `size` bytes, the same in every process."""
    source = random.Random(size)
    found = []
    for _ in range(DISTINCT):
        order, customer = source.randrange(10**9), source.randrange(1 << 48)
        text = f'{{"order":{order},"customer":"{customer:012x}","price":{source.random():.4f},"items":"'
        while len(text) < size - 2:
            text += f"{source.choice(WORDS)} {source.randrange(10_000)} "
        found.append((text[: size - 2] + '"}').encode())
    return found


def values(count: int, size: int) -> list[bytes]:
    """Return `count` values of `size` bytes."""
    return list(itertools.islice(itertools.cycle(pool(size)), count))


def checksum(lists: Iterable[Iterable[bytes]]) -> int:
    """Return a checksum that depends on the values but not on their order.

    RocketMQ keeps no order between calls that are in flight together; losses and doubles show.
    """
    return sum(map(zlib.crc32, itertools.chain.from_iterable(lists)))
