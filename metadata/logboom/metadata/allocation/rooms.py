"""Strategies that consider the rooms of brokers and members.

Behaviour and names are RocketMQ's (MACHINE_ROOM, MACHINE_ROOM_NEARBY). A room is RocketMQ's word
for a broker's zone. `room_of` returns the room of a queue or of a member.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from logboom.metadata.allocation.even import averagely
from logboom.metadata.allocation.inputs import InvalidAllocation, Q

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def machine_room(
    queues: Sequence[Q],
    members: Sequence[str],
    rooms: Iterable[str] | None,
    room_of: Callable[[Q | str], str | None] | None,
) -> dict[str, list[Q]]:
    """Assign only the queues of certain rooms; queues of other rooms have no owner.

    Members get runs of equal size, then the remainder one by one: of five queues, two members get
    0, 1, 4 and 2, 3.

    Raises:
        InvalidAllocation: `rooms` or `room_of` is missing, or a queue has no room.
    """
    if rooms is None or isinstance(rooms, str):
        raise InvalidAllocation('machine_room needs rooms=, a list of rooms such as ["room1"]')
    chosen = set(rooms)
    located = _by_room("machine_room", "queue", queues, room_of)
    kept = sorted(queue for room in chosen for queue in located.get(room, ()))
    size, left = divmod(len(kept), len(members))
    runs_end = size * len(members)
    return {
        member: kept[size * rank : size * (rank + 1)]
        + (kept[runs_end + rank : runs_end + rank + 1] if rank < left else [])
        for rank, member in enumerate(members)
    }


def machine_room_nearby(
    queues: Sequence[Q],
    members: Sequence[str],
    room_of: Callable[[Q | str], str | None] | None,
) -> dict[str, list[Q]]:
    """Assign each room's queues to its own members, and those of rooms without members to all.

    Raises:
        InvalidAllocation: `room_of` is missing, or a queue or member has no room.
    """
    housed = _by_room("machine_room_nearby", "member", members, room_of)
    located = _by_room("machine_room_nearby", "queue", queues, room_of)
    allocation: dict[str, list[Q]] = {member: [] for member in members}
    for room, neighbours in housed.items():
        allocation.update(averagely(located.get(room, []), neighbours))
    # One round over all such rooms: a round for each would favour the first members.
    deserted = sorted(queue for room in located.keys() - housed for queue in located[room])
    for member, more in averagely(deserted, members).items():
        allocation[member] = sorted(allocation[member] + more)
    return allocation


def _by_room(
    strategy: str,
    kind: str,
    values: Sequence[Q],
    room_of: Callable[[Q | str], str | None] | None,
) -> dict[str, list[Q]]:
    """Group values by their room, in their order."""
    if room_of is None:
        raise InvalidAllocation(f"{strategy} needs room_of=, the room of a queue or member")
    rooms: dict[str, list[Q]] = defaultdict(list)
    for value in values:
        room = room_of(value)
        if not room:
            raise InvalidAllocation(f"{kind} {value!r} has no room, which {strategy} needs")
        rooms[room].append(value)
    return rooms
