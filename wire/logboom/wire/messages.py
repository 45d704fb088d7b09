"""Every message on the wire: one msgpack array, `[type, id, …]`, in the frame after the identity.

The type is the class name in lower case; fields are positional and only ever appended, with a
default. `id` pairs an answer with its request (0 where no answer exists). `timeout_ms` is how long
the asker will wait, from receipt: clocks of two machines are never compared. Frames after the
message are batches, untouched.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from logboom.wire import base
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.group_messages import GroupMessage
from logboom.wire.group_view import GroupOffsets, GroupSummary, GroupView
from logboom.wire.parking import AT_ONCE, ParkingMessage
from logboom.wire.subscription_messages import SubscriptionMessage
from logboom.wire.transactions import TransactionId, TransactionMessage
from logboom.wire.view import View

WireMessage = base.WireMessage
Request = base.Request
Name = base.Name

PROTOCOL_VERSION: Final = 1
"""The version this build speaks; HELLO carries the range it accepts."""
OLDEST_VERSION: Final = 1
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Largest batch, stored or plain."""
MAX_MESSAGE_FRAME: Final = 16 * 1024 * 1024
"""Largest message frame (frame 1)."""

Acks: TypeAlias = Literal["none", "leader", "all"]
PullStatus: TypeAlias = Literal["FOUND", "NO_NEW_MESSAGE", "NO_MATCHED_MESSAGE", "OFFSET_ILLEGAL"]


# ── connection ──────────────────────────────────────────────────────────────────────────────────


class Hello(WireMessage, array_like=True):
    """First message of every connection (W1)."""

    version_min: int
    version_max: int
    client_id: str
    kind: Literal["client", "broker", "name-server"]
    instance_epoch: int
    """Of the process behind the connection; 0 for clients."""
    credentials: bytes = b""
    """Opaque; later issues fill it for users."""
    nonce: bytes = b""
    """Of who holds the cluster key: 16 random bytes that the listener's proof must cover."""


class Challenge(WireMessage, array_like=True):
    """The listener proves that it holds the cluster key, and asks a node for the same."""

    nonce: bytes
    proof: bytes


class Prove(WireMessage, array_like=True):
    """A node's HMAC-SHA256 over both nonces; answered by Welcome."""

    proof: bytes


class Welcome(WireMessage, array_like=True):
    """The session is open."""

    version: int
    node: str
    """Id of the node that answers."""
    cluster_id: str = ""


class NeedHello(WireMessage, array_like=True):
    """The listener has no session for this connection: say HELLO, then send again (W1)."""


class Ping(WireMessage, array_like=True):
    """Proof of life wanted; answered by Pong."""


class Pong(WireMessage, array_like=True):
    """Proof of life of the node's loop, not only of its I/O thread."""


class Failure(WireMessage, array_like=True):
    """The answer to a request that failed: a code of `wire.errors`, and one line of text."""

    code: str
    text: str
    retryable: bool
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


# ── data ────────────────────────────────────────────────────────────────────────────────────────


class Produce(Request, array_like=True):
    """Append one batch (the frame behind) to a queue. acks none: id 0 and no answer."""

    topic: Name
    queue: int
    acks: Acks
    topic_id: int = 0
    """Of the topic that is meant (0: whichever has this name): a broker that has not heard yet that
    it was deleted and made anew must not take the batch, which would go with the old one."""
    due_ms: int = AT_ONCE
    """When the batch is to be released, ms since 1970 by the leader's clock: until then it is
    parked, and takes no offset. -1: at once."""
    transaction: TransactionId | None = None
    """The batch is parked until this transaction is decided; acks must be all."""


class Produced(WireMessage, array_like=True):
    """The batch is stored as asked."""

    base_offset: int
    append_time_ms: int
    side: int = -1
    """Of a parked batch: with `base_offset`, the position that recalls it. -1: it is not parked."""


LONGEST_HOLD_MS: Final = 60_000
"""Longest wait of a Pull."""


class Pull(Request, array_like=True):
    """Read whole batches from the one that holds `offset`; wait up to `wait_ms` for the first (no
    longer than `LONGEST_HOLD_MS`)."""

    topic: Name
    queue: int
    offset: int
    max_bytes: int
    wait_ms: int
    max_messages: int = 0
    """A hint to stop early (0: none); whole batches move, the client cuts."""
    tags: list[str] | None = None
    """Batches that cannot hold any of these tags are left out."""
    topic_id: int = 0
    """Of the topic that is meant, as in Produce: offsets of the old one say nothing of the new."""
    group: Name = ""
    """The consumer group that reads, if one does."""
    owner_epoch: int = 0
    """Of the reading member for this queue; STALE_EPOCH if the leader saw a greater one of `group`."""
    filter: str = ""
    """Which messages are wanted, as the text of a `wire.filters.Filter`; "": all. Batches without a
    match are passed over; the answer says which messages of the others match."""
    uncommitted: bool = False
    """Read up to the HW, also what belongs to a transaction of which not all is below it."""
    compacted: bool = False
    """Of a compacted topic: below the horizon only the latest message of each key is wanted."""


class Pulled(WireMessage, array_like=True):
    """Answer to Pull; batches follow as frames. `max_offset` is the HW."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested: str | None = None
    """A broker to read from instead, when this reader is far behind."""
    matches: list[bytes] | None = None
    """With a `filter`: per batch which messages match, as bits (the lowest of the first byte is the
    first message); empty: all of them. Batches beyond this list were not looked at (a filter costs
    too much, or only its tags were): the reader filters these itself. None: none was."""
    survivors: list[bytes] | None = None
    """With `compacted`, below the horizon: per batch which messages are the latest of their key, as
    bits like `matches`; the others must not be read, and may be empty. A filter is the reader's to
    apply. None: all of all batches."""


class Offsets(Request, array_like=True):
    """Ask for the first offset and the HW of queues; only a leader with its lease answers."""

    topic: Name
    queues: list[int]
    topic_id: int = 0
    """As in Produce."""


class OffsetsResult(WireMessage, array_like=True):
    """(min_offset, max_offset) per asked queue, in order."""

    offsets: list[tuple[int, int]]
    horizons: list[int] = msgspec.field(default_factory=list)
    """Up to where each queue is compacted; -1: its topic is not."""


class OffsetForTime(Request, array_like=True):
    """First message at or after `timestamp_ms` (message time) in the first batch whose greatest
    timestamp is ≥ it; the HW if none."""

    topic: Name
    queue: int
    timestamp_ms: int
    topic_id: int = 0
    """As in Produce."""


class OffsetForTimeResult(WireMessage, array_like=True):
    """The offset found, and the timestamp at it (-1 at the HW)."""

    offset: int
    timestamp_ms: int


class FindKey(Request, array_like=True):
    """Base offsets of batches that may hold a key with this hash, newest first."""

    topic: Name
    queue: int
    key_hash: int
    before: int
    """Only batches that begin below this offset (the HW or more: all)."""
    limit: int


class FindKeyResult(WireMessage, array_like=True):
    """Candidates; the asker pulls them and compares the keys. `indexed_to`: from here on the
    index has not caught up, and the asker scans."""

    base_offsets: list[int]
    indexed_to: int


# ── replication ─────────────────────────────────────────────────────────────────────────────────


class FollowerPosition(Struct, frozen=True, array_like=True):
    """A follower's position in one queue: all before it is on its disk (Q4)."""

    topic_id: int
    queue: int
    leader_epoch: int
    offset: int
    side: int
    last_epoch: int
    """Epoch of the last entry before the position; -1 if the log is empty."""
    lacks: tuple[int, int] | None = None
    """Of a compacted topic: offsets (from, to before) of which the follower lacks the copies."""


class Replicate(Request, array_like=True):
    """One long poll per leader broker; names only queues whose position changed.

    `session` and `number` make it incremental: number 0 opens a session and names all queues;
    the leader answers Failure CONFLICT if it does not know the session at this number.
    """

    broker: Name
    instance_epoch: int
    session: int
    number: int
    wait_ms: int
    max_bytes: int
    queues: list[FollowerPosition]
    gone: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(topic id, queue) that the follower no longer fetches from this leader."""
    heard: int = -1
    """Number of the last request of this session whose answer the follower took; -1: of none. A
    request that was replaced may have been answered meanwhile: all that was said is said again."""


FetchStatus: TypeAlias = Literal["OK", "CUT", "RESET", "STALE", "UNKNOWN", "DAMAGED"]


class QueueAnswer(Struct, frozen=True, array_like=True):
    """What the leader says of one queue; `frames` entries of it follow, in order of answers.

    OK: append the entries at exactly the asked position. CUT: the histories differ; cut to the
    smaller of (cut_offset, cut_side) and the own end of epochs ≤ `cut_epoch`, then ask again.
    RESET: the position is below the leader's log start; begin anew at (cut_offset, cut_side) with
    `state`. STALE: the epochs differ; wait for WATCH. UNKNOWN: not led here. DAMAGED: the leader
    cannot serve this position.
    """

    topic_id: int
    queue: int
    leader_epoch: int
    status: FetchStatus
    hw_offset: int
    hw_side: int
    log_start: int
    frames: int = 0
    cut_epoch: int = -1
    cut_offset: int = 0
    cut_side: int = 0
    state: bytes = b""
    """RESET: msgpack of epoch table and producer windows as of (cut_offset, cut_side)."""
    compacts: bool = False
    """Whether the leader compacts the queue."""
    survivors: list[bytes] = msgspec.field(default_factory=list)
    """OK: as many copies follow behind the entries of this queue, in answer to `lacks`; of each,
    which messages survive, as in Pulled."""
    copied: int = -1
    """OK: the copies go up to here; -1: there is no answer to `lacks`."""


class Replicated(WireMessage, array_like=True):
    """Answer to Replicate: queues with news only."""

    answers: list[QueueAnswer]


# ── metadata ────────────────────────────────────────────────────────────────────────────────────


class Watch(Request, array_like=True):
    """Metadata newer than `version`, held up to `wait_ms`; version -1 asks for the whole.

    `topics` None: all. A node behind `version` waits; it never answers older (R14).
    """

    version: int
    topics: list[str] | None
    wait_ms: int
    groups: list[str] | None = msgspec.field(default_factory=list)
    """Consumer groups wanted; None: all."""
    members_at: Name = ""
    """Members are told only of groups that this broker coordinates, of others the head; "": of
    all groups wanted."""
    decisions: bool = False
    """Whether decisions on transactions are wanted: brokers carry them out."""


class WatchResult(WireMessage, array_like=True):
    """The delta, the whole (view.full), or an empty delta when nothing changed in time."""

    view: View


class ListGroups(Request, array_like=True):
    """All consumer groups; to the raft leader, linearizable."""


class GroupsListed(WireMessage, array_like=True):
    """Answer to ListGroups, by name."""

    groups: list[GroupSummary]


class DescribeGroup(Request, array_like=True):
    """One consumer group with its members and offsets; to the raft leader, linearizable."""

    group: Name


class GroupDescribed(WireMessage, array_like=True):
    """Answer to DescribeGroup, as of the metadata version `version`."""

    group: GroupView
    offsets: list[GroupOffsets]
    version: int


class Propose(Request, array_like=True):
    """Put a command into the Raft log; only the raft leader takes it (R13).

    `(client_id of the session, number)` is deduplicated: a retry gets the first result. Numbers
    grow per `proposer`.
    """

    proposer: Name
    number: int
    command: AnyCommand


class Proposed(WireMessage, array_like=True):
    """The command was committed and applied; its own result may still be an error code."""

    result: CommandResult


class Heartbeat(Request, array_like=True):
    """A broker is alive; to the raft leader, every second, never through the log."""

    broker: Name
    instance_epoch: int
    unheard: list[str] = msgspec.field(default_factory=list)
    """Brokers that should replicate from this one and have not asked for a while."""


class HeartbeatGranted(WireMessage, array_like=True):
    """The lease, counted by the broker from the moment it sent the heartbeat (Q11)."""

    lease_ms: int
    version: int


class RaftFrame(WireMessage, array_like=True):
    """One way between name servers (id 0); the raft payload is the frame behind.

    `session` is new for each connection, `number` counts from 0 within it: any gap ends it (R10).
    A link is up where a frame comes back with the own session in `echo`; frame 0 and frames that
    only keep the link alive carry no payload.
    """

    sender: str
    session: int
    number: int
    echo: int = 0
    """The newest session heard from the other side; 0: none yet."""
    endpoint: str = ""
    """host:port of the sender's raft listener, as long as the link is not up: a member that has not
    heard yet that the sender was added can answer."""


class AddNameServer(Request, array_like=True):
    """Add an empty name server under a raft id never used before (R9, R12)."""

    name_server: Name
    endpoint: Name
    raft_endpoint: Name


class RemoveNameServer(Request, array_like=True):
    """Remove a name server from the group (R12)."""

    name_server: Name


class Ok(WireMessage, array_like=True, tag="done"):
    """The request is done; nothing else to say."""


class Stats(Request, array_like=True):
    """Ask any node for its counters."""


class StatsResult(WireMessage, array_like=True):
    """Flat counters and gauges of a node; histograms as `<name>.p50` and so on."""

    node: str
    role: str
    counters: dict[str, int | float | str]


AnyMessage = (
    Hello
    | Challenge
    | Prove
    | Welcome
    | NeedHello
    | Ping
    | Pong
    | Failure
    | Produce
    | Produced
    | Pull
    | Pulled
    | Offsets
    | OffsetsResult
    | OffsetForTime
    | OffsetForTimeResult
    | FindKey
    | FindKeyResult
    | Replicate
    | Replicated
    | Watch
    | WatchResult
    | Propose
    | Proposed
    | Heartbeat
    | HeartbeatGranted
    | RaftFrame
    | AddNameServer
    | RemoveNameServer
    | Ok
    | Stats
    | StatsResult
    | ListGroups
    | GroupsListed
    | DescribeGroup
    | GroupDescribed
    | GroupMessage
    | ParkingMessage
    | TransactionMessage
    | SubscriptionMessage
)

NODES_ONLY: Final = (Replicate, Heartbeat, RaftFrame)
"""Taken only from a session that proved the cluster key. (Of Propose: all but topic commands,
AllocateProducerIds, ElectLeader and Barrier; see `CLIENT_COMMANDS` in `wire.gate`.)"""
OPERATORS_ONLY: Final = (AddNameServer, RemoveNameServer)
"""Taken only from a session that proved the cluster key, a client's included."""
