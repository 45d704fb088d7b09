"""Sticky: even, and as little moves as being even allows.

With n queues and c members everybody has n // c or one more, and exactly n mod c have one more.
A member that had at least so many keeps as many, and gets one of the places for one more first;
any further move would be one too many. What nobody keeps goes to whoever has least.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from logboom.metadata.allocation.inputs import InvalidAllocation, Q, find, hash_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def sticky(
    queues: Sequence[Q], members: Sequence[str], previous: Mapping[str, Iterable[Q]] | None
) -> dict[str, list[Q]]:
    """Sizes that differ by at most one, with the least queues moved from `previous`.

    Members and queues that `previous` names and that are gone do not matter; a queue that had no
    owner among the members moves to nobody's loss.

    Raises:
        InvalidAllocation: `previous` gives one queue to two members.
    """
    held = _held(queues, members, previous or {})
    _let_go(queues, held)
    kept = {at for own in held.values() for at in own}
    least = [(len(held[member]), member) for member in members]
    heapify(least)
    for at in range(len(queues)):
        if at not in kept:
            count, member = least[0]
            held[member].append(at)
            heapreplace(least, (count + 1, member))
    return {member: [queues[at] for at in sorted(held[member])] for member in members}


def _held(
    queues: Sequence[Q], members: Sequence[str], previous: Mapping[str, Iterable[Q]]
) -> dict[str, list[int]]:
    """What each member had of the queues that exist, as places among them."""
    owner: dict[int, str] = {}
    for member in members:
        for queue in previous.get(member, ()):
            at = find(queues, queue)
            if at is not None and owner.setdefault(at, member) != member:
                raise InvalidAllocation(
                    f"previous gives queue {queue!r} to {owner[at]!r} and to {member!r}: "
                    "name one owner"
                )
    held: dict[str, list[int]] = {member: [] for member in members}
    for at, member in owner.items():
        held[member].append(at)
    return held


def _let_go(queues: Sequence[Q], held: dict[str, list[int]]) -> None:
    """Take from each member what it has too many."""
    size, larger = divmod(len(queues), len(held))
    # Whoever is over by least first: with one place more it has nothing to drain at all.
    for own in sorted(held.values(), key=len):
        quota = size
        if larger and len(own) > size:
            quota += 1
            larger -= 1
        if len(own) > quota:
            # By hash, so that a newcomer is not given the tail of everybody, all of one topic.
            own.sort(key=lambda at: (hash_of(queues[at]), at))
            del own[quota:]
