"""The reasons why a queue of a group with members has no owner.

The Raft leader states them when it allocates, and clients when they describe the group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from logboom.wire.group_view import GroupConfig


def why_unowned(config: GroupConfig, members: Container[str], topic: str, queue: int) -> str:
    """Return the reason why a strategy gives a queue to nobody, in a few words.

    `members` are the names of the members: the instance of a static one, the id of any other. The
    result is "" if the strategy gives every queue to somebody, so that an allocation is under way.
    """
    if config.strategy == "machine_room":
        rooms = ", ".join(config.options.rooms) or "none"
        return f"its leader is in none of the rooms that machine_room consumes: {rooms}"
    if config.strategy != "by_config":
        return ""
    for name, chosen in config.options.config.items():
        if (topic, queue) in chosen and name not in members:
            return f"by_config gives it to {name!r}, who is not in the group"
    return "by_config gives it to nobody"


def strategy_fault(config: GroupConfig) -> str | None:
    """Return why a strategy cannot work with its options, in one line with the remedy, or None."""
    options = config.options
    if config.strategy == "machine_room" and not options.rooms:
        return (
            "strategy machine_room needs the rooms whose queues are consumed, which are zones of "
            "brokers: give options.rooms (--rooms)"
        )
    if config.strategy != "by_config":
        return None
    if not any(options.config.values()):
        return (
            "strategy by_config needs a configuration, the queues of each member: give "
            "options.config (--assign MEMBER=TOPIC/QUEUES)"
        )
    owner: dict[tuple[str, int], str] = {}
    for name, chosen in options.config.items():
        for topic, queue in chosen:
            if owner.setdefault((topic, queue), name) != name:
                first = owner[topic, queue]
                return (
                    f"by_config gives {topic}/{queue} to {first!r} and to {name!r}: "
                    "give it to one of them"
                )
    return None
