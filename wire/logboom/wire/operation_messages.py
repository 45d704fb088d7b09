"""Messages about the load of brokers and the moves of replicas.

They are part of `logboom.wire.messages.AnyMessage`. All go to the Raft leader, which keeps what
brokers report in memory only: a new leader has everything again after one interval of reports.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field

from logboom.wire.base import Name, Request, WireMessage

MoveReason: TypeAlias = Literal["repair", "replicas", "drain", "balance", "operator"]
"""repair: a broker that has a replica is dead for long. replicas: the topic shall have more or
fewer. drain: a broker is being drained. balance: shares of brokers differ. operator: somebody asked,
or a former Raft leader planned it and did not say why."""
PlannerState: TypeAlias = Literal["off", "idle", "moving", "waiting", "stalled"]
"""off: nothing to repair or to drain, and balancing is off. idle: nothing to do. moving: moves are
under way. waiting: something is to be done, later. stalled: something is to be done and cannot."""
MAX_REPORTED: Final = 5_000
"""Maximum number of replicas in one ReportLoad."""


class ReplicaLoad(Struct, frozen=True, array_like=True, gc=False):
    """The load of one replica; rates are 5 min means, and 0 except at the queue's leader."""

    topic_id: int
    queue: int
    size_bytes: int
    """Bytes of its log."""
    in_bytes_per_s: int = 0
    """Bytes appended."""
    out_bytes_per_s: int = 0
    """Bytes read by consumers."""


class ReportLoad(Request, array_like=True):
    """A broker's load, told to the Raft leader every 10 s; answered by Ok.

    A large report is split: part 0 begins a new one, and the last of `parts` ends it. What a whole
    report does not name, the broker does not hold.
    """

    broker: Name
    instance_epoch: int
    part: int
    parts: int
    disk_bytes: int
    """Size of the file system."""
    free_bytes: int
    moved_in_bytes_per_s: int
    """Bytes that arrive for replicas that are being added."""
    moved_out_bytes_per_s: int
    """Bytes sent to such replicas of other brokers."""
    replicas: Annotated[list[ReplicaLoad], Meta(max_length=MAX_REPORTED)]


class DescribeCluster(Request, array_like=True):
    """Describe brokers, moves and the planner; served by the Raft leader, linearizable."""

    sizes_of: Name = ""
    """A topic whose queues' sizes are told too; "": none."""


class BrokerShare(Struct, frozen=True, array_like=True, gc=False):
    """What one broker holds."""

    broker: str
    replicas: int
    """Replicas that it has, or gets by a move under way."""
    preferred: int
    """Queues that it is to lead, being the first of their replicas."""
    size_bytes: int


class BrokerLoad(Struct, frozen=True, array_like=True):
    """A broker with its load, as last reported; -1 stands for what is not known yet."""

    broker: str
    mode: str
    alive: bool
    full: bool
    """True if its disk accepts no writes."""
    filling: bool
    """True if it came new into a cluster with replicas and does not hold its share yet."""
    zone: str
    host: str
    replicas: int
    leading: int
    """Queues that it leads."""
    preferred: int
    """Queues that it is to lead, being the first of their replicas."""
    size_bytes: int
    """Bytes of the logs of its replicas."""
    disk_bytes: int
    free_bytes: int
    in_bytes_per_s: int
    """Bytes appended to what it leads; a 5 min mean, like the next one."""
    out_bytes_per_s: int
    moves_in: int
    """Moves that bring it a replica."""
    moves_out: int
    """Moves that take a replica from it."""
    moved_in_bytes_per_s: int
    moved_out_bytes_per_s: int


class QueueMoveState(Struct, frozen=True, array_like=True):
    """A move under way; -1 stands for what is not known yet."""

    topic: str
    queue: int
    replicas: list[str]
    """The target, then those that are removed at the end."""
    adding: list[str]
    removing: list[str]
    reason: MoveReason
    done_bytes: int
    """Bytes that the added replicas have of `total_bytes`."""
    total_bytes: int
    bytes_per_s: int
    """Bytes per second by which `done_bytes` grew lately."""
    produced_bytes_per_s: int
    """Bytes per second that the queue grows by: a slower move never ends."""
    left_s: int
    """Seconds to the end at this rate."""
    stuck: str
    """Why it makes no progress, in words; "" if it does."""


class PlannerStatus(Struct, frozen=True, array_like=True):
    """What the planner of moves does, and why not more."""

    state: PlannerState
    reasons: list[str]
    """In words, the most important first."""
    waiting: int
    """Moves that are needed and have not begun."""
    balance_mode: str
    replace_after_s: float
    move_bytes_per_s: int


class ClusterDescribed(WireMessage, array_like=True):
    """Answer to DescribeCluster, as of metadata version `version`."""

    brokers: list[BrokerLoad]
    moves: list[QueueMoveState]
    planner: PlannerStatus
    version: int
    sizes: list[int] = field(default_factory=list)
    """Bytes of one replica of each queue of the topic that was asked for; 0: not known."""
    log_time_ms: int = -1
    """Time of the Raft log, by which losses have theirs; -1: the name server is older."""


MOVES_IN_ALL: Final = 20
"""Moves of a cluster that are under way at once, as far as they are planned."""


class PlanBalance(Request, array_like=True):
    """Plan what would even out the brokers now, without doing it; served by the Raft leader.

    The rules are those of the mode "continuous", whatever the mode is.
    """

    most: int = 1_000
    """Maximum number of moves."""


class PlannedMove(Struct, frozen=True, array_like=True):
    """A move that a plan proposes; `topic_id`, `queue`, `version` and `target` make a QueueMove."""

    topic: str
    topic_id: int
    queue: int
    version: int
    replicas: list[str]
    """As they are now."""
    target: list[str]
    copied_bytes: int
    """Bytes that the added replicas have to copy."""
    zones_before: int
    zones_after: int


class BalancePlanned(WireMessage, array_like=True):
    """Answer to PlanBalance: the moves, and what each broker holds before and after them."""

    moves: list[PlannedMove]
    before: list[BrokerShare]
    after: list[BrokerShare]
    reasons: list[str]
    """Why there are no moves, or not more, in words."""


OperationMessage = ReportLoad | DescribeCluster | ClusterDescribed | PlanBalance | BalancePlanned
