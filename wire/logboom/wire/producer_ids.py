"""Producer ids that belong to a user: who wrote a batch is told by the id in its head (SAFETY A6).

The name servers count ids, and a user gets them above a mark of its name. So brokers know without
a table whose id a batch has, and successive ids stay successive. Pure.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

_SPAN: Final = 1 << 36
"""Ids of one user, before they begin anew: what was used that long ago, queues have forgotten."""
_MARKS: Final = (1 << 27) - 2
"""Number of the marks, from 1: two users have the same one by a chance of one in 134 million."""
_FIRSTS: Final = _SPAN - (1 << 20)
"""Ids that may be the first of those that are given at once, so that all are within the span."""
_JUMP: Final = 1 << 40
"""The name servers pass over a multiple of it where they may not know what they gave before."""
_STEP: Final = 0x9E3779B97
"""How far a jump leads within a span: whatever their number, they lead to places far apart."""


@lru_cache(4_096)
def _first_id(user: str) -> int:
    digest = hashlib.blake2b(user.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (1 + int.from_bytes(digest, "big") % _MARKS) * _SPAN


def id_of_user(user: str, number: int) -> int:
    """Return the first producer id of a user for the first number that the name servers gave it."""
    return _first_id(user) + (number + number // _JUMP * _STEP) % _FIRSTS


def is_id_of_user(user: str, producer_id: int) -> bool:
    """Return True if a producer id was given to this user."""
    return 0 <= producer_id - _first_id(user) < _SPAN
