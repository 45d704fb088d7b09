"""Marks of users in what they own: producer ids, members of groups (SAFETY A6).

A mark is a hash of the user's name. So nodes see without a table whose an id is. It does not show
the name, but a guess of it can be checked. Pure.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

_SPAN: Final = 1 << 36
"""Producer ids of one user, before they begin anew. A user gets few at once (`proposal_checks`), so it takes
a billion proposals until one is given again."""
_SPANS: Final = (1 << 27) - 2
"""Number of spans, from 1: two users have the same one by a chance of one in 134 million."""
_FIRSTS: Final = _SPAN - (1 << 20)
"""Ids that may be the first of those that are given at once, so that all are within the span."""
_JUMP: Final = 1 << 40
"""The name servers pass over a multiple of it where they may not know what they gave before."""
_STEP: Final = 0x9E3779B97
"""How far a jump leads within a span: whatever their number, they lead to places far apart."""


@lru_cache(4_096)
def mark_of(user: str) -> int:
    """Return the mark of a user, above 0; that of nobody ("") is 0."""
    if not user:
        return 0
    digest = hashlib.blake2b(user.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return 1 + int.from_bytes(digest, "big") % ((1 << 63) - 1)


def span_of_user(user: str) -> int:
    """Return the number that all producer ids of a user have in common, above 0."""
    return 1 + mark_of(user) % _SPANS


def span_of_id(producer_id: int) -> int:
    """Return `span_of_user` of the user who has this producer id; 0 or less if it is nobody's."""
    return producer_id // _SPAN


def id_of_user(user: str, number: int) -> int:
    """Return the first producer id of a user for the first number that the name servers gave it.

    Successive numbers have successive ids.
    """
    return span_of_user(user) * _SPAN + (number + number // _JUMP * _STEP) % _FIRSTS


def is_id_of_user(user: str, producer_id: int) -> bool:
    """Return True if a producer id was given to this user."""
    return span_of_id(producer_id) == span_of_user(user)
