"""Which member of a group consumes which queue: seven strategies, pure and deterministic.

`sticky` is what a group gets unless it asks for another. Behaviour and vectors of the others are
RocketMQ's, as is that nobody and nothing to allocate are errors: a caller asks only when there is
somebody and something. Each topic is allocated by itself; only sticky looks at the others, for who
has one queue more. Nothing here depends on the order in which queues and members are named.
It is computed outside apply and proposed with the version of the group that it saw (DESIGN §7);
1,000 members and 10,000 queues take less than 100 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logboom.metadata.allocation.even import averagely, averagely_by_circle, by_config
from logboom.metadata.allocation.inputs import (
    InvalidAllocation,
    Q,
    Sortable,
    ordered_members,
    ordered_queues,
)
from logboom.metadata.allocation.ring import VIRTUAL_NODES, consistent_hash
from logboom.metadata.allocation.rooms import machine_room, machine_room_nearby
from logboom.metadata.allocation.sticky import sticky

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "DEFAULT",
    "STRATEGIES",
    "InvalidAllocation",
    "Sortable",
    "allocate",
    "allocate_topics",
    "owners",
]

STRATEGIES: Final = (
    "averagely",
    "averagely_by_circle",
    "by_config",
    "consistent_hash",
    "machine_room",
    "machine_room_nearby",
    "sticky",
)
"""Every name that `allocate` knows."""

DEFAULT: Final = "sticky"
"""The strategy of a group that asks for none."""


def allocate(
    strategy: str,
    queues: Iterable[Q],
    members: Iterable[str],
    *,
    config: Mapping[str, Iterable[Q]] | Iterable[Q] | None = None,
    rooms: Iterable[str] | None = None,
    room_of: Callable[[Q | str], str | None] | None = None,
    virtual_nodes: int = VIRTUAL_NODES,
    previous: Mapping[str, Iterable[Q]] | None = None,
) -> dict[str, list[Q]]:
    """The queues of one topic that each member has; a member without any has an empty list.

    Members are in order, and so are the queues of each, but for by_config's. Each queue has exactly one owner, but under `machine_room`, where queues of other rooms have
    none, and `by_config`, which is taken as it is written.

    Args:
        strategy: one of `STRATEGIES`.
        queues: any values that sort.
        members: any names; they sort lexicographically.
        config: by_config: member → its queues, or one list that each member gets.
        rooms: machine_room: the rooms whose queues are consumed.
        room_of: machine_room of a queue, machine_room_nearby of a queue or a member.
        virtual_nodes: consistent_hash: points of a member on the ring.
        previous: sticky: member → the queues it has now; of those as few move as can be.

    Options of other strategies are ignored, so that a group may keep them while it tries one.

    Raises:
        InvalidAllocation: unknown strategy, no queues, no members, either twice, or an option
            that is missing or does not fit.
    """
    return allocate_topics(
        strategy,
        [queues],
        members,
        config=config,
        rooms=rooms,
        room_of=room_of,
        virtual_nodes=virtual_nodes,
        previous=previous,
    )


def allocate_topics(
    strategy: str,
    topics: Iterable[Iterable[Q]],
    members: Iterable[str],
    *,
    config: Mapping[str, Iterable[Q]] | Iterable[Q] | None = None,
    rooms: Iterable[str] | None = None,
    room_of: Callable[[Q | str], str | None] | None = None,
    virtual_nodes: int = VIRTUAL_NODES,
    previous: Mapping[str, Iterable[Q]] | None = None,
) -> dict[str, list[Q]]:
    """The queues of all topics that each member has: those of each topic as `allocate` gives them.

    `config` names queues of any topic. All but by_config's are in order, topic by topic.

    Raises:
        InvalidAllocation: as `allocate`; of any topic.
    """
    if strategy not in STRATEGIES:
        raise InvalidAllocation(
            f"there is no strategy {strategy!r}: choose from {', '.join(STRATEGIES)}"
        )
    ordered = [ordered_queues(queues) for queues in topics]
    members = ordered_members(members)
    match strategy:
        case "by_config":
            # As it is written, whichever topics it names.
            return by_config(
                sorted(queue for queues in ordered for queue in queues), members, config
            )
        case "consistent_hash":
            return consistent_hash(ordered, members, virtual_nodes)
        case "sticky":
            return sticky(ordered, members, previous)
    allocation: dict[str, list[Q]] = {member: [] for member in members}
    for queues in ordered:
        match strategy:
            case "averagely":
                found = averagely(queues, members)
            case "averagely_by_circle":
                found = averagely_by_circle(queues, members)
            case "machine_room":
                found = machine_room(queues, members, rooms, room_of)
            case _:
                found = machine_room_nearby(queues, members, room_of)
        for member, own in found.items():
            allocation[member] += own
    return allocation


def owners(allocation: Mapping[str, Iterable[Q]]) -> dict[Q, str]:
    """The allocation the other way round: the owner of each (hashable) queue.

    Raises:
        InvalidAllocation: a queue has two owners, as only by_config may say.
    """
    found: dict[Q, str] = {}
    for member, queues in allocation.items():
        for queue in queues:
            if found.setdefault(queue, member) != member:
                raise InvalidAllocation(
                    f"queue {queue!r} is given to {found[queue]!r} and to {member!r}: "
                    "give it to one of them"
                )
    return found
