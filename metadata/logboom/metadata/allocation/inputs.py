"""The inputs of a strategy, sorted and checked, and the error for invalid ones.

Strategies get queues and members sorted and without duplicates, so that their results do not depend
on the order in which they were listed.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from logboom.wire.errors import InvalidRequest
from logboom.wire.hashing import murmur3

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Sortable(Protocol):
    """A value that stands for a queue: it compares with other queues and need not be hashable."""

    def __lt__(self, other: Any, /) -> bool: ...


Q = TypeVar("Q", bound=Sortable)
"""A value that stands for a queue: a number, a name, (topic id, number)."""


class InvalidAllocation(InvalidRequest, ValueError):
    """Queues, members or options do not fit together; the text says what to change."""


def ordered_queues(queues: Iterable[Q]) -> list[Q]:
    """Sort the queues.

    Raises:
        InvalidAllocation: there are none, one is listed twice, or they cannot be compared.
    """
    try:
        ordered = sorted(queues)
    except TypeError as error:
        raise InvalidAllocation(
            f"queues cannot be sorted, use values of one type: {error}"
        ) from None
    if not ordered:
        raise InvalidAllocation("there are no queues to allocate, name at least one")
    for queue, following in pairwise(ordered):
        if queue == following:
            raise InvalidAllocation(f"queue {queue!r} comes twice, name it once")
    return ordered


def ordered_members(members: Iterable[str]) -> list[str]:
    """Sort the members lexicographically.

    Raises:
        InvalidAllocation: there are none, or one is listed twice.
    """
    ordered = sorted(members)
    if not ordered:
        raise InvalidAllocation("there are no members to allocate to, name at least one")
    for member, following in pairwise(ordered):
        if member == following:
            raise InvalidAllocation(f"member {member!r} comes twice, name it once")
    return ordered


def find(queues: Sequence[Q], queue: Q) -> int | None:
    """Find the place of a queue among sorted queues; None if it is not one of them."""
    try:
        at = bisect_left(queues, queue)
    except TypeError:  # It is of another type than they are, so it is not one of them.
        return None
    return at if at < len(queues) and queues[at] == queue else None


def hash_of(queue: object) -> int:
    """Hash a queue by its bytes or text, else by its `repr`, which must not change."""
    if isinstance(queue, bytes):
        return murmur3(queue)
    return murmur3((queue if isinstance(queue, str) else repr(queue)).encode())
