"""What the admin tells of consumer groups: members, queues with their lag, resets."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from logboom.wire.group_view import GroupConfig

Place: TypeAlias = tuple[str, int]
"""(topic, queue)."""


class GroupQueue(Struct, frozen=True):
    """How a group fares in one queue."""

    topic: str
    queue: int
    committed: int | None
    """Offset of the first message that is not finished; None: where it starts is not known yet."""
    first: int | None
    """First offset that the queue holds; None: it did not say."""
    end: int | None
    """The high watermark: the offset after the last message."""
    lag: int | None
    """Messages that the group wants and has not finished, those above `committed` included."""
    lag_exact: bool
    """False: with a filter only the beginning was counted, the rest reckoned from it."""
    age_ms: int | None
    """Age of the oldest of them by its message time; None: there is none, or it is not known."""
    owner: str
    """Id of the member that has the queue; "": nobody."""
    stuck: str
    """Why nothing moves although there is a lag, or why nobody gets the queue, in a few words; "":
    nothing says so."""
    still_ms: int | None = None
    """For how long it has been so, in ms, as its coordinator or its owner said; None: they did not."""


class GroupMember(Struct, frozen=True):
    """One member of a group."""

    id: str
    client_id: str
    instance: str
    """Name of a static member; "" for others."""
    room: str
    epoch: int
    silent_ms: int | None
    """Since its last heartbeat; None: the coordinator did not say."""
    subscription_version: int
    queues: list[Place]


class GroupDescription(Struct, frozen=True):
    """One group as it is now."""

    name: str
    id: int
    config: GroupConfig
    subscription: dict[str, str]
    """Topic → filter text."""
    subscription_version: int
    coordinator: str
    """Broker that takes its heartbeats and commits."""
    coordinator_epoch: int
    group_epoch: int
    target_epoch: int
    """Smaller than `group_epoch`: an allocation is under way."""
    fault: str
    """Why the strategy could not allocate, or which queues it gives to nobody; "" if to somebody."""
    members: list[GroupMember]
    queues: list[GroupQueue]


class OffsetReset(Struct, frozen=True):
    """One line of a plan to reset offsets, or of what was done."""

    topic: str
    queue: int
    committed: int | None
    """Before; None: it was not known."""
    target: int
    """After."""
    first: int
    end: int
    """What the queue holds."""
    code: str = ""
    """Why it was refused, of `logboom.wire.errors`; "": it was not."""
