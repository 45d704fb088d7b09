"""Strategies that only count queues: in runs, in turn, or as an operator configured them.

Behaviour and names are RocketMQ's (AVG, AVG_BY_CIRCLE, CONFIG).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from logboom.metadata.allocation.inputs import InvalidAllocation, Q, find

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def averagely(queues: Sequence[Q], members: Sequence[str]) -> dict[str, list[Q]]:
    """Assign runs of neighbouring queues; the first members get the remainder, one more each.

    Members without queues are left out.
    """
    size, larger = divmod(len(queues), len(members))
    allocation: dict[str, list[Q]] = {}
    start = 0
    for rank, member in enumerate(members[: len(queues)]):
        end = start + size + (rank < larger)
        allocation[member] = list(queues[start:end])
        start = end
    return allocation


def averagely_by_circle(queues: Sequence[Q], members: Sequence[str]) -> dict[str, list[Q]]:
    """Deal queues out in turn: the member of rank i gets every queue k with k mod members = i.

    Members without queues are left out.
    """
    some = members[: len(queues)]
    return {member: list(queues[rank :: len(members)]) for rank, member in enumerate(some)}


def by_config(
    queues: Sequence[Q],
    members: Sequence[str],
    config: Mapping[str, Iterable[Q]] | Iterable[Q] | None,
) -> dict[str, list[Q]]:
    """Assign what the configuration gives to each member, in its order; a plain list is for each.

    As in RocketMQ the configuration may give a queue to nobody or to several members. `owners`
    rejects the latter where a queue must have one owner.

    Raises:
        InvalidAllocation: there is no configuration, it names a member or queue that does not
            exist, or it names a queue twice for one member.
    """
    if config is None:
        raise InvalidAllocation("by_config needs config=, the queues of each member")
    if not isinstance(config, Mapping):
        fixed = list(config)
        config = dict.fromkeys(members, fixed)
    if strangers := sorted(config.keys() - set(members)):
        raise InvalidAllocation(
            f"config names member {strangers[0]!r}, who is not in the group: leave it out"
        )
    return {member: _configured(queues, member, config.get(member, ())) for member in members}


def _configured(queues: Sequence[Q], member: str, chosen: Iterable[Q]) -> list[Q]:
    listed = list(chosen)
    seen: set[int] = set()
    for queue in listed:
        at = find(queues, queue)
        if at is None:
            raise InvalidAllocation(
                f"config gives {member!r} queue {queue!r}, which does not exist: leave it out"
            )
        if at in seen:
            raise InvalidAllocation(f"config gives {member!r} queue {queue!r} twice: name it once")
        seen.add(at)
    return listed
