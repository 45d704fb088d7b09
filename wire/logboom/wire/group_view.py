"""What the name server tells of consumer groups: their settings, members, queues and offsets.

`GroupView` travels in WATCH, to coordinators and to clients; offsets do not, they grow all the
time: `GroupOffsets` is in the answer to DESCRIBEGROUP. A queue is (topic id, number) throughout.
`gc=False`: none of these can be part of a cycle.
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
"""Instead of a committed offset: nobody has said yet where the group starts in this queue."""
MAX_OFFSET: Final = 1 << 62
"""Offsets of queues lie below."""

QueueKey: TypeAlias = tuple[int, int]
"""(topic id, number of the queue)."""


class StrategyOptions(Struct, frozen=True, array_like=True, gc=False):
    """Options of the allocation strategies; those of other strategies are kept and not looked at.

    The room of a queue is the zone of its leader; of a member, what it said when it joined.
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
    """Silence after which a member is out and its queues are given to others."""
    heartbeat_ms: int = 3_000
    """Between a member's heartbeats."""
    drain_ms: int = 30_000
    """How long a member may take to finish with a queue that it has to give away (G2)."""
    max_attempts: int = 16
    """Deliveries of a message before it goes to %DLQ%group."""
    retry: Literal["levels", "exponential"] = "levels"
    """How long a failed message waits: `DELAY_LEVELS_MS`, or doubling from `retry_first_ms`."""
    retry_first_ms: int = 5_000
    """exponential: wait after the first failure."""
    retry_last_ms: int = 7_200_000
    """exponential: the longest wait."""
    consume_timeout_ms: int = 900_000
    """How long a handler may run before its message counts as failed."""
    strategy: str = "sticky"
    """One of `logboom.metadata.allocate.STRATEGIES`."""
    options: StrategyOptions = StrategyOptions()
    start: Literal["first", "last"] | int = "first"
    """Where the group begins in queues that exist when it first subscribes: the first message, the
    end, or the first message at or after this time (Unix milliseconds)."""
    when_slow: Literal["stay", "follower"] = "stay"
    """Whether a consumer far behind is sent to a follower."""
    mode: Literal["clustering", "broadcasting"] = "clustering"
    """broadcasting: each member reads every queue and keeps its offsets itself."""
    paused: bool = False
    """Nobody gets the group's queues; who has some finishes with them and releases them (RocketMQ's
    consumeEnable=false). Not of broadcasting groups."""


class OwnedQueue(Struct, frozen=True, array_like=True, gc=False):
    """One queue that a member has."""

    topic_id: int
    queue: int
    owner_epoch: int
    """New with each assignment and each reset, growing per queue; commits, releases and fetches
    carry it, and an older one is refused."""
    start: int
    """Committed offset: where a new owner begins."""
    ranges: bytes = b""
    """Finished ranges above `start`, which are not to be delivered again; the clients' encoding."""
    revoking: bool = False
    """The member has to drain and release it. If this goes back to False under the same owner
    epoch, the queue stays: go on with it."""


class MemberView(Struct, frozen=True, array_like=True, gc=False):
    """One member and all it has."""

    id: str
    epoch: int
    client_id: str
    instance: str
    """Name of a static member, which keeps its queues over a restart; "" for all others."""
    room: str
    subscription_version: int
    """The version of the subscription that it joined with."""
    queues: list[OwnedQueue]
    version: int
    """Metadata version of its last change."""


class GroupView(Struct, frozen=True, array_like=True, gc=False):
    """One group: the head always whole, the members whole (`full`) or those that changed."""

    name: str
    id: int
    """Never used again after a delete."""
    config: GroupConfig
    subscription: dict[str, str]
    """Topic → filter text."""
    subscription_version: int
    coordinator: str
    """Broker that takes the group's heartbeats and commits; "" while no broker is alive."""
    coordinator_epoch: int
    group_epoch: int
    """Grows with members, subscription, and the queues of its topics."""
    target_epoch: int
    """Group epoch that the members' queues lead to; smaller: an allocation is under way."""
    fault: str
    """Why the strategy could not allocate, or which queues it gives to nobody, in one line; ""
    if it gives each to somebody."""
    version: int
    member_count: int
    full: bool
    """All members are listed; what is not listed is gone."""
    members: list[MemberView]
    """Empty, and `full` False, where the asker wanted heads only."""
    gone: list[str]
    """Ids of members that went."""
    unstarted: list[QueueKey]
    """Queues that nobody gets before the coordinator has said where the group starts (SetStart)."""


class GroupOffsets(Struct, frozen=True, array_like=True, gc=False):
    """How far a group has come in one topic; one value per queue, in order."""

    topic_id: int
    topic: str
    subscribed: bool
    """False: offsets of a former subscription, kept until the topic or the group goes."""
    committed: list[int]
    """-1: unknown, see `UNKNOWN_START`."""
    seen_ends: list[int]
    """Greatest end that a committing member's pulls had shown (G3)."""
    ranges: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """(queue, finished ranges above its committed offset), where there are any."""


class GroupSummary(Struct, frozen=True, array_like=True, gc=False):
    """One line of a list of groups."""

    name: str
    id: int
    mode: str
    topics: list[str]
    member_count: int
    coordinator: str
    group_epoch: int
    target_epoch: int
    fault: str
