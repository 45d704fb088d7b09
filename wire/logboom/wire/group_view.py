"""The name servers' view of consumer groups: settings, members, queues and offsets.

`GroupView` travels in WATCH, to coordinators and to clients. Offsets do not, because they grow all
the time: `GroupOffsets` is in the answer to DESCRIBEGROUP. A queue is (topic id, number)
throughout. `gc=False`: none of these can be part of a cycle.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

DELAY_LEVELS_MS: Final = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * 60_000 for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
"""Milliseconds of the delay levels 1 to 18; the attempt after n failures waits level 2 + n."""
UNKNOWN_START: Final = -1
"""In place of a committed offset: the start of the group in this queue is not known yet."""
MAX_OFFSET: Final = 1 << 62
"""Upper bound of the offsets of queues."""

QueueKey: TypeAlias = tuple[int, int]
"""(topic id, number of the queue)."""


class StrategyOptions(Struct, frozen=True, array_like=True, gc=False):
    """Options of the allocation strategies; a strategy ignores those of others.

    The room of a queue is the zone of its leader. A member names its room when it joins.
    """

    config: dict[str, list[tuple[str, int]]] = {}
    """by_config: member (its instance name if it is static) → (topic, number) of its queues."""
    rooms: list[str] = []
    """machine_room: the rooms whose queues are consumed."""
    virtual_nodes: int = 100
    """consistent_hash: points of a member on the ring."""


class GroupConfig(Struct, frozen=True, array_like=True, gc=False):
    """Settings of a group; the defaults are RocketMQ's unless the design says otherwise."""

    session_ms: int = 10_000
    """Silence after which a member is removed and its queues are given to others."""
    heartbeat_ms: int = 3_000
    """Interval between a member's heartbeats."""
    drain_ms: int = 30_000
    """Time for which a member may drain a queue that it has to give away."""
    max_attempts: int = 16
    """Deliveries of a message before it goes to %DLQ%group."""
    retry: Literal["levels", "exponential"] = "levels"
    """Delay of a failed message: `DELAY_LEVELS_MS`, or doubling from `retry_first_ms`."""
    retry_first_ms: int = 5_000
    """exponential: delay after the first failure."""
    retry_last_ms: int = 7_200_000
    """exponential: the longest delay."""
    consume_timeout_ms: int = 900_000
    """Time for which a listener may run before its message counts as failed."""
    strategy: str = "sticky"
    """One of `logboom.metadata.allocate.STRATEGIES`."""
    options: StrategyOptions = StrategyOptions()
    start: Literal["first", "last"] | int = "first"
    """Start of the group in queues that exist when it first subscribes: the first message, the end,
    or the first message at or after this time (Unix milliseconds)."""
    when_slow: Literal["stay", "follower"] = "stay"
    """"follower" if a consumer that is far behind is sent to a follower."""
    mode: Literal["clustering", "broadcasting"] = "clustering"
    """broadcasting: each member reads every queue and keeps its offsets itself."""
    paused: bool = False
    """No member gets the group's queues, and owners drain and release theirs (RocketMQ's
    consumeEnable=false). Not available for broadcasting groups."""


class OwnedQueue(Struct, frozen=True, array_like=True, gc=False):
    """A queue that a member owns."""

    topic_id: int
    queue: int
    owner_epoch: int
    """New with each assignment and each reset, growing per queue. Commits, releases and fetches
    carry it, and an older one is refused."""
    start: int
    """Committed offset, at which a new owner begins."""
    ranges: bytes = b""
    """Finished ranges above `start` that are not delivered again, in the clients' encoding."""
    revoking: bool = False
    """The member has to drain and release the queue. If this returns to False under the same owner
    epoch, the member keeps the queue."""


class MemberView(Struct, frozen=True, array_like=True, gc=False):
    """A member and its queues."""

    id: str
    epoch: int
    client_id: str
    instance: str
    """Name of a static member, which keeps its queues across restarts; "" for all others."""
    room: str
    subscription_version: int
    """The version of the subscription with which it joined."""
    queues: list[OwnedQueue]
    version: int
    """Metadata version of its last change."""
    user: int = 0
    """Mark of the user who has joined; 0: nobody, or before features level 3."""


class GroupView(Struct, frozen=True, array_like=True, gc=False):
    """A group: always the whole head, and all members (`full`) or those that changed."""

    name: str
    id: int
    """Never used again after the group was deleted."""
    config: GroupConfig
    subscription: dict[str, str]
    """Topic → filter text."""
    subscription_version: int
    coordinator: str
    """The broker that serves the group's heartbeats and commits; "" while no broker is alive."""
    coordinator_epoch: int
    group_epoch: int
    """Grows with changes of members, subscription, and the queues of its topics."""
    target_epoch: int
    """Group epoch of the current allocation; if it is smaller, another allocation is under way."""
    fault: str
    """Why the strategy could not allocate, or which queues it gives to nobody, in one line; "" if
    every queue gets an owner."""
    version: int
    member_count: int
    full: bool
    """True if all members are listed, so that all others have left."""
    members: list[MemberView]
    """Empty, with `full` False, if only heads were requested."""
    gone: list[str]
    """Ids of members that have left."""
    unstarted: list[QueueKey]
    """Queues that are assigned to nobody until the coordinator has set the start of the group
    there."""


class GroupOffsets(Struct, frozen=True, array_like=True, gc=False):
    """The progress of a group in one topic, with one value per queue, in order."""

    topic_id: int
    topic: str
    subscribed: bool
    """False for offsets of a former subscription, kept until the topic or the group is deleted."""
    committed: list[int]
    """Committed offsets; -1 if unknown, see `UNKNOWN_START`."""
    seen_ends: list[int]
    """Greatest end of each queue that a committing member's pulls have shown."""
    ranges: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """(queue, finished ranges above its committed offset), for queues that have any."""


class GroupSummary(Struct, frozen=True, array_like=True, gc=False):
    """A group in a list of groups."""

    name: str
    id: int
    mode: str
    topics: list[str]
    member_count: int
    coordinator: str
    group_epoch: int
    target_epoch: int
    fault: str
    paused: bool = False
