"""Sticky allocation: even per topic and in total, with as few moves as evenness allows.

Of a topic with n queues, c members have n // c or one more each, and exactly n mod c have one more.
The members that have one more are chosen over all topics, so that the totals differ by at most one
too; topics of one queue each would otherwise all go to the same member. A member that had one more
keeps it as far as that allows. Queues that nobody keeps go to the members that have least.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Generic

from logboom.metadata.allocation.inputs import InvalidAllocation, Q, find

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def sticky(
    topics: Sequence[Sequence[Q]],
    members: Sequence[str],
    previous: Mapping[str, Iterable[Q]] | None,
) -> dict[str, list[Q]]:
    """Assign queues so that sizes differ by at most one, per topic and in total, with few moves.

    Members and queues in `previous` that no longer exist are ignored. A queue without an owner
    among the members moves without costing anybody one. Within one topic the number of moves is
    minimal.

    Raises:
        InvalidAllocation: `previous` gives one queue to two members.
    """
    held = _held(topics, members, previous or {})
    shares = [_Share(queues, members, had) for queues, had in zip(topics, held, strict=True)]
    _spread(shares, members)
    allocation: dict[str, list[Q]] = {member: [] for member in members}
    for share in shares:
        for member, own in share.deal().items():
            allocation[member] += own
    return allocation


class _Share(Generic[Q]):
    """One topic's queues: their previous owners, and the members that get one more than the least."""

    __slots__ = ("extras", "held", "members", "places", "queues", "size")

    def __init__(
        self, queues: Sequence[Q], members: Sequence[str], held: dict[str, list[int]]
    ) -> None:
        self.queues = queues
        self.members = members
        self.held = held
        """Member → places of its queues among the topic's; only members that have some."""
        self.size, self.places = divmod(len(queues), len(members))
        """Queues that everybody gets; number of members that get one more."""
        self.extras: set[str] = set()
        """Members that get one more."""

    def wants(self, member: str) -> bool:
        """Return True if one more queue saves this member a move."""
        return len(self.held.get(member, ())) > self.size

    def deal(self) -> dict[str, list[Q]]:
        """Return the queues of every member that gets any."""
        found: dict[str, list[int]] = {}
        kept: set[int] = set()
        for member in self.members if self.size else sorted(self.extras):
            found[member] = own = self.held.get(member, [])[: self.size + (member in self.extras)]
            kept.update(own)
        least = [(len(own), member) for member, own in found.items()]
        least = [each for each in least if each[0] < self.size + (each[1] in self.extras)]
        heapify(least)
        for at in range(len(self.queues)):
            if at not in kept:
                count, member = least[0]
                found[member].append(at)
                if count + 1 < self.size + (member in self.extras):
                    heapreplace(least, (count + 1, member))
                else:
                    heappop(least)
        return {member: [self.queues[at] for at in sorted(own)] for member, own in found.items()}


def _held(
    topics: Sequence[Sequence[Q]], members: Sequence[str], previous: Mapping[str, Iterable[Q]]
) -> list[dict[str, list[int]]]:
    """List by topic the existing queues that each member had, as places among them, in order."""
    places = [(topic, at) for topic, queues in enumerate(topics) for at in range(len(queues))]
    places.sort(key=lambda place: topics[place[0]][place[1]])
    every = [topics[topic][at] for topic, at in places]
    owner: dict[tuple[int, int], str] = {}
    for member in members:
        for queue in previous.get(member, ()):
            found = find(every, queue)
            if found is not None and owner.setdefault(places[found], member) != member:
                raise InvalidAllocation(
                    f"previous gives queue {queue!r} to {owner[places[found]]!r} and to "
                    f"{member!r}: name one owner"
                )
    held: list[dict[str, list[int]]] = [{} for _ in topics]
    for topic, at in sorted(owner):
        held[topic].setdefault(owner[topic, at], []).append(at)
    return held


def _spread(shares: Sequence[_Share[Q]], members: Sequence[str]) -> None:
    """Choose the members that get one more, for each topic."""
    load = dict.fromkeys(members, 0)
    """Number of topics in which a member gets one more."""
    wanted = [(share, [m for m in share.held if share.wants(m)]) for share in shares]
    # Topics without a choice first; then the member with the smallest load and excess, because that
    # drains nothing.
    wanted.sort(key=lambda each: len(each[1]) > each[0].places)
    for share, wanters in wanted:
        if len(wanters) > share.places:
            wanters.sort(key=lambda member: (load[member], len(share.held[member]), member))
        for member in wanters[: share.places]:
            share.extras.add(member)
            load[member] += 1
    least = [(count, member) for member, count in load.items()]
    heapify(least)
    for share in shares:
        passed: list[tuple[int, str]] = []
        while len(share.extras) < share.places:
            count, member = heappop(least)
            if member not in share.extras:
                share.extras.add(member)
                count = load[member] = count + 1
            passed.append((count, member))
        for each in passed:
            heappush(least, each)
    _level(shares, load)


def _level(shares: Sequence[_Share[Q]], load: dict[str, int]) -> None:
    """Move extra queues from the largest to the smallest load until loads differ by at most one."""
    most = [(-count, member) for member, count in load.items()]
    least = [(count, member) for member, count in load.items()]
    heapify(most)
    heapify(least)
    of: dict[str, list[_Share[Q]]] = {member: [] for member in load}
    for share in shares:
        for member in share.extras:
            of[member].append(share)
    while True:
        high, heavy = most[0]
        low, light = least[0]
        if load[heavy] != -high:
            heapreplace(most, (-load[heavy], heavy))
        elif load[light] != low:
            heapreplace(least, (load[light], light))
        elif -high - low <= 1:
            return
        else:
            # A member with two extra queues more has one in a topic where the other has none.
            share = min(
                (share for share in of[heavy] if light not in share.extras),
                key=lambda share: share.wants(heavy) - share.wants(light),
            )
            share.extras.remove(heavy)
            share.extras.add(light)
            of[heavy].remove(share)
            of[light].append(share)
            load[heavy] -= 1
            load[light] += 1
