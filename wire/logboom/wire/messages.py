"""Every message on the wire: one msgpack array, `[type, id, …]`, in the frame after the identity.

The type is the class name in lower case, unless the class sets another. Fields are positional; new
ones are appended with a default. `id` pairs an answer with its request (0 if there is no answer).
`timeout_ms` is how long the caller waits, counted from receipt: clocks of two machines are never
compared. The frames after the message are batches.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from logboom.wire.access.access_rules import Quota, RoleView, UserView
from logboom.wire.backup_messages import (
    BackupMessage,
    FetchEntries,
    ReadState,
    RestoreEntries,
)
from logboom.wire.base import LARGE_FRAME, MAX_NODES_LIST, Name, Request, WireMessage
from logboom.wire.commands import AnyCommand, CommandResult
from logboom.wire.copy_receipts import CopiesSigned, SignCopies
from logboom.wire.group_messages import GroupMessage
from logboom.wire.group_view import GroupOffsets, GroupSummary, GroupView
from logboom.wire.listeners import ListenerView
from logboom.wire.names import MAX_QUEUES
from logboom.wire.operation_messages import OperationMessage, ReportLoad
from logboom.wire.owner_proofs import PROOF_BYTES
from logboom.wire.parking import AT_ONCE, ParkingMessage
from logboom.wire.subscription_messages import SubscriptionMessage
from logboom.wire.survey_messages import SurveyMessage
from logboom.wire.transactions import TransactionId, TransactionMessage
from logboom.wire.view import View

PROTOCOL_VERSION: Final = 1
"""The version of this build; HELLO carries the range that it accepts."""
OLDEST_VERSION: Final = 1
MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Maximum length of a batch, stored or plain."""
MAX_MESSAGE_FRAME: Final = 16 * 1024 * 1024
"""Maximum length of a message frame (frame 1)."""
FRAME_ROOM_BYTES: Final = 32 * 1024
"""Bytes that a frame of a request may have beyond the receiver's `max_request_bytes`, since a batch
of one message is larger than the message. Listeners accept twice as much: encryption adds some."""

Acks: TypeAlias = Literal["none", "leader", "all"]
PullStatus: TypeAlias = Literal["FOUND", "NO_NEW_MESSAGE", "NO_MATCHED_MESSAGE", "OFFSET_ILLEGAL"]


# ── connection ──────────────────────────────────────────────────────────────────────────────────


class Hello(WireMessage, array_like=True):
    """The first message of every connection."""

    version_min: int
    version_max: int
    client_id: str
    kind: Literal["client", "broker", "name-server"]
    instance_epoch: int
    """Instance epoch of the process behind the connection; 0 for clients."""
    credentials: bytes = b""
    """Opaque, for later use by users' credentials."""
    nonce: bytes = b""
    """From holders of the cluster key: 16 random bytes that the listener's proof must cover."""


class Challenge(WireMessage, array_like=True):
    """The listener's proof that it holds the cluster key, and its demand for the same."""

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
    max_request_bytes: int = 0
    """Largest frame of a request that the node accepts; 0: it does not say."""


class NeedHello(WireMessage, array_like=True):
    """The listener has no session for this connection: send HELLO, then the request again."""


class Ping(WireMessage, array_like=True):
    """A request for proof of life; answered by Pong."""


class Pong(WireMessage, array_like=True):
    """Proof of life of the node's loop, not only of its I/O thread."""


class Throttled(WireMessage, array_like=True):
    """The user's quota delays requests of this connection. Repeated while it does; the id is 0.

    The requests are neither lost nor refused, so their deadlines begin anew.
    """

    wait_ms: int
    """Time after which further requests will be served, as far as is known."""
    requests: list[int]
    """Ids of the requests that wait."""


class Failure(WireMessage, array_like=True):
    """The answer to a failed request: a code of `wire.errors`, and one line of text."""

    code: str
    text: str
    retryable: bool
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


# ── data ────────────────────────────────────────────────────────────────────────────────────────


class Produce(Request, array_like=True):
    """Append one batch, the frame that follows, to a queue.

    With acks=none, the id is 0 and there is no answer.
    """

    topic: Name
    queue: int
    acks: Acks
    topic_id: int = 0
    """Id of the topic, or 0 for the current topic of this name. A broker that has not heard that
    the topic was deleted and created again must not take the batch, which would be lost with the
    old one."""
    due_ms: int = AT_ONCE
    """Time at which the batch is released, in ms since 1970 by the leader's clock. Until then it is
    parked and has no offset. -1: immediately."""
    transaction: TransactionId | None = None
    """The batch is parked until this transaction is decided; acks must be all."""


class Produced(WireMessage, array_like=True):
    """The batch is stored as requested."""

    base_offset: int
    append_time_ms: int
    side: int = -1
    """For a parked batch: with `base_offset`, the position that recalls it. -1 if it is not
    parked."""
    throttled_ms: int = 0
    """Time for which the request waited because of the user's quota, as in Pulled and Delivered."""


LONGEST_HOLD_MS: Final = 60_000
"""Maximum wait of a Pull."""
MAX_PULL_TAGS: Final = 256
"""Maximum tags in a Pull, as in a filter."""


class Pull(Request, array_like=True):
    """Read whole batches from the one that contains `offset`.

    The leader waits up to `wait_ms` for the first, but no longer than `LONGEST_HOLD_MS`.
    """

    topic: Name
    queue: int
    offset: int
    max_bytes: int
    wait_ms: int
    max_messages: int = 0
    """A hint to stop early (0: none); whole batches are sent, and the client cuts."""
    tags: Annotated[list[str], Meta(max_length=MAX_PULL_TAGS)] | None = None
    """Leave out batches that cannot contain any of these tags."""
    topic_id: int = 0
    """Id of the topic, as in Produce: offsets of a former topic mean nothing in the current one."""
    group: Name = ""
    """The consumer group of the reader, or ""."""
    owner_epoch: int = 0
    """Owner epoch of the reading member for this queue; STALE_EPOCH if the leader saw a greater one
    of `group`."""
    filter: str = ""
    """The messages to read, as the text of a `wire.filters.Filter`; "" for all. Batches without a
    match are skipped; the answer tells which messages of the others match."""
    uncommitted: bool = False
    """Read up to the high watermark, including transactions that reach beyond it."""
    compacted: bool = False
    """Of a compacted topic, read only the latest message of each key below the horizon."""
    owner_proof: Annotated[bytes, Meta(max_length=PROOF_BYTES)] = b""
    """The proof of `owner_epoch`, from GroupAssigned; without one the leader does not keep the epoch."""


class Pulled(WireMessage, array_like=True):
    """Answer to Pull; batches follow as frames. `max_offset` is the high watermark."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested: str | None = None
    """A broker to read from instead, if this reader is far behind."""
    matches: list[bytes] | None = None
    """With a `filter`: the matching messages of each batch, as bits (the lowest of the first byte
    is the first message); empty if all match. Batches beyond this list were not examined, because a
    filter costs too much or only its tags were applied: the reader filters these itself. None: no
    batch was examined."""
    survivors: list[bytes] | None = None
    """With `compacted`, below the horizon: the messages of each batch that are the latest of their
    key, as bits like `matches`. The others must not be read, and may be empty. The reader applies
    its filter itself. None: all messages of all batches."""
    throttled_ms: int = 0
    """As in Produced."""


class Offsets(Request, array_like=True):
    """Request the first offset and the high watermark of queues; only a leaseholder answers."""

    topic: Name
    queues: Annotated[list[int], Meta(max_length=MAX_QUEUES)]
    topic_id: int = 0
    """As in Produce."""
    begin: int = -1
    """With one queue: an offset in it, of which the answer tells how far `max_bytes` go; -1: none."""
    max_bytes: int = 0


class OffsetsResult(WireMessage, array_like=True):
    """(min_offset, max_offset) for each requested queue, in order."""

    offsets: list[tuple[int, int]]
    horizons: list[int] = msgspec.field(default_factory=list)
    """The offset up to which each queue is compacted; -1 if its topic is not."""
    ahead: tuple[int, int] = (-1, 0)
    """The offset that about `max_bytes` bytes lead to from `begin`, and how many they are; (-1, 0) if
    it is not known."""


class OffsetForTime(Request, array_like=True):
    """Find the first message at or after a message time.

    It is searched in the first batch whose greatest timestamp is at least `timestamp_ms`; if there
    is none, the result is the high watermark.
    """

    topic: Name
    queue: int
    timestamp_ms: int
    topic_id: int = 0
    """As in Produce."""


class OffsetForTimeResult(WireMessage, array_like=True):
    """The offset found, and the timestamp at it (-1 at the high watermark)."""

    offset: int
    timestamp_ms: int


class FindKey(Request, array_like=True):
    """Find the batches that may contain a key with this hash, newest first."""

    topic: Name
    queue: int
    key_hash: int
    before: int
    """Only batches that begin below this offset; all if it is the high watermark or more."""
    limit: int


class FindKeyResult(WireMessage, array_like=True):
    """Candidates, by base offset; the reader pulls them and compares the keys.

    From `indexed_to` on the index has not caught up, so the reader scans.
    """

    base_offsets: list[int]
    indexed_to: int


# ── replication ─────────────────────────────────────────────────────────────────────────────────


class FollowerPosition(Struct, frozen=True, array_like=True):
    """A follower's position in one queue: everything before it is on the follower's disk."""

    topic_id: int
    queue: int
    leader_epoch: int
    offset: int
    side: int
    last_epoch: int
    """Epoch of the last entry before the position; -1 if the log is empty."""
    lacks: tuple[int, int] | None = None
    """Of a compacted topic: offsets (from, to before) whose copies the follower lacks."""
    rebuilds: bool = False
    """True if the leader may leave out the body of a released batch: the follower takes it from its
    own parked entry."""


class Replicate(Request, array_like=True):
    """One long poll per leader broker, which names only queues whose position changed.

    `session` and `number` make it incremental: number 0 opens a session, whose first
    requests name all queues; the leader answers Failure CONFLICT if it does not know the session
    at this number.
    """

    broker: Name
    instance_epoch: int
    session: int
    number: int
    wait_ms: int
    max_bytes: int
    queues: Annotated[list[FollowerPosition], Meta(max_length=MAX_NODES_LIST)]
    gone: Annotated[list[tuple[int, int]], Meta(max_length=MAX_NODES_LIST)] = msgspec.field(
        default_factory=list
    )
    """(topic id, queue) that the follower no longer fetches from this leader."""
    heard: int = -1
    """Number of the last request of this session whose answer the follower took; -1 if none. A
    request that was replaced may have been answered meanwhile, so the leader repeats everything
    that it has sent since."""
    moving_bytes: int = -1
    """Bytes that the follower takes at most for replicas that it is getting; -1: no limit."""


FetchStatus: TypeAlias = Literal["OK", "CUT", "RESET", "STALE", "UNKNOWN", "DAMAGED"]


class QueueAnswer(Struct, frozen=True, array_like=True):
    """The leader's answer for one queue; `frames` entries of it follow, in the order of answers.

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
    """True if the leader compacts the queue."""
    survivors: list[bytes] = msgspec.field(default_factory=list)
    """OK: one element per copy that follows the entries of this queue, in answer to `lacks`: the
    surviving messages of the copy, as in Pulled."""
    copied: int = -1
    """OK: the copies reach up to here; -1 if there is no answer to `lacks`."""


class Replicated(WireMessage, array_like=True):
    """Answer to Replicate, with those queues only for which there is news."""

    answers: list[QueueAnswer]


# ── metadata ────────────────────────────────────────────────────────────────────────────────────


MAX_WATCHED: Final = 65_536
"""Maximum topics, and groups, that a Watch names; who wants more asks for all."""


class Watch(Request, array_like=True):
    """Request metadata newer than `version`, held up to `wait_ms`; -1 asks for the full view.

    `topics` None: all. A node behind `version` waits and never answers with an older view.
    """

    FRAME_BYTES: ClassVar[int] = LARGE_FRAME

    version: int
    topics: Annotated[list[str], Meta(max_length=MAX_WATCHED)] | None
    wait_ms: int
    groups: Annotated[list[str], Meta(max_length=MAX_WATCHED)] | None = msgspec.field(
        default_factory=list
    )
    """Consumer groups to follow; None: all."""
    members_at: Name = ""
    """Include members only of groups that this broker coordinates, and the heads of others; "":
    members of all groups."""
    decisions: bool = False
    """True to include decisions on transactions, which brokers carry out."""
    access: bool = False
    """True to include users and access rules, which only nodes may ask for."""


class WatchResult(WireMessage, array_like=True):
    """A delta, the full view (view.full), or an empty delta if nothing changed in time."""

    view: View


class EncodedWatchResult(WireMessage, tag="watchresult", array_like=True):
    """A WatchResult whose view is encoded already, since many peers get the same."""

    view: Raw


class ListGroups(Request, array_like=True):
    """List all consumer groups; served by the Raft leader, linearizable."""


class GroupsListed(WireMessage, array_like=True):
    """Answer to ListGroups, by name."""

    groups: list[GroupSummary]


class DescribeGroup(Request, array_like=True):
    """Describe a consumer group with its members and offsets.

    Served by the Raft leader, linearizable.
    """

    group: Name


class GroupDescribed(WireMessage, array_like=True):
    """Answer to DescribeGroup, as of metadata version `version`."""

    group: GroupView
    offsets: list[GroupOffsets]
    version: int


class DescribeAccess(Request, array_like=True):
    """Describe users, roles and access rules; served by the Raft leader, linearizable."""

    user: Name = ""
    """A user, who is told with its roles; "": all, for administrators."""


class AccessDescribed(WireMessage, array_like=True):
    """Answer to DescribeAccess, as of metadata version `version`, sorted by name."""

    users: list[UserView]
    roles: list[RoleView]
    default_quota: Quota
    version: int
    features: int = 0
    """The features level, by which rights on subscriptions are decided."""


class Propose(Request, array_like=True):
    """Put a command into the Raft log; only the Raft leader accepts it.

    `(proposer, number)` is deduplicated: a retry gets the first result. Numbers grow per
    `proposer`.
    """

    proposer: Name
    number: int
    command: AnyCommand


class Proposed(WireMessage, array_like=True):
    """The command was committed and applied; its own result may still be an error code."""

    result: CommandResult


class Heartbeat(Request, array_like=True):
    """A broker's sign of life, to the Raft leader every second; it never goes through the log."""

    broker: Name
    instance_epoch: int
    unheard: Annotated[list[str], Meta(max_length=MAX_NODES_LIST)] = msgspec.field(
        default_factory=list
    )
    """Brokers that should replicate from this one and have been silent for a while."""
    max_request_bytes: int = 0
    """Largest batch that this broker accepts; 0: it does not say."""
    software: str = ""
    """Version of its software; empty: a release that does not say."""
    features: int = 0
    """Features level of its software."""
    replicas: int = -1
    """Replicas of the metadata that this broker has opened; -1: a release that does not say."""


class HeartbeatGranted(WireMessage, array_like=True):
    """The lease, which the broker counts from the moment at which it sent the heartbeat."""

    lease_ms: int
    version: int
    rival: str = ""
    """Address of another process that would be this broker, or has this one's address, and is refused;
    "" if there was none lately."""


MAX_LISTENERS: Final = 1_000
"""Maximum listeners that a name server tells in a RaftFrame."""


class RaftFrame(WireMessage, array_like=True):
    """One direction of a link between name servers (id 0); the next frame is the Raft payload.

    `session` is new for each connection, and `number` counts from 0 within it: any gap ends it (see
    docs/SAFETY.md, R10). A link is up once a frame returns with our session in `echo`. Frame 0 and
    frames that only keep the link alive carry no payload.
    """

    sender: str
    session: int
    number: int
    echo: int = 0
    """The newest session heard from the other side; 0 if none yet."""
    endpoint: str = ""
    """host:port of the sender's Raft listener, while the link is not up. It lets a member answer
    that has not heard yet that the sender was added."""
    listeners: Annotated[list[ListenerView], Meta(max_length=MAX_LISTENERS)] = msgspec.field(
        default_factory=list
    )
    """The sender's listeners for clients and brokers, told like `endpoint`; empty if it has a single
    open one."""
    raft_listeners: Annotated[list[ListenerView], Meta(max_length=MAX_LISTENERS)] = msgspec.field(
        default_factory=list
    )
    """The same of its listeners for other name servers."""
    software: str = ""
    """Version of its software, told like `endpoint`; empty: a release that does not say."""
    features: int = 0
    """Features level of its software."""
    journal: str = ""
    """Id of the sender's journal, told like `endpoint`."""
    noted: str = ""
    """Id of the journal that counts under the receiver's Raft id as far as the sender knows, told like
    `endpoint`; "" if it knows none. A receiver with another one ends (R9)."""


class AddNameServer(Request, array_like=True):
    """Add an empty name server under a Raft id that was never used before."""

    name_server: Name
    endpoint: Name
    raft_endpoint: Name


class RemoveNameServer(Request, array_like=True):
    """Remove a name server from the group."""

    name_server: Name


class DescribeVersions(Request, array_like=True):
    """Request the software of all nodes and the features level, of the Raft leader."""


class NodeVersion(Struct, frozen=True, array_like=True):
    """The software of a node, as the Raft leader has heard of it."""

    id: str
    role: str
    """name-server or broker."""
    software: str
    """Version; empty: a release that does not say, or it was not heard yet."""
    features: int
    """The features level that it can read; -1: this leader has not heard it yet."""
    hinders: str
    """Why the level cannot be raised because of it, in words; empty: it can."""


class VersionsDescribed(WireMessage, array_like=True):
    """Answer to DescribeVersions."""

    features: int
    """The features level of the cluster."""
    offered: int
    """The level that FinalizeUpgrade can raise it to: that of the Raft leader's software."""
    nodes: list[NodeVersion]
    """Name servers first."""


class FinalizeUpgrade(Request, array_like=True):
    """Raise the features level, for good; answered by Ok. Refused while a node hinders it."""

    level: int
    """The level to raise to; one that is reached already is done."""


class Ok(WireMessage, array_like=True, tag="done"):
    """The request is done, without further results."""


class Stats(Request, array_like=True):
    """Request the counters of any node."""


class ListConnections(Request, array_like=True):
    """Request the sessions of a node with its peers, the longest throttled first."""

    user: Name = ""
    """Only those of this user; "": all."""
    limit: int = 1_000


class ConnectionState(Struct, frozen=True, array_like=True):
    """One session of a node, and the connection under it."""

    endpoint: str
    """host:port of the peer, as the node sees it; "" if it is not known."""
    listener: str
    client_id: str
    kind: str
    user: str
    """"" on a listener without keys, like `key`."""
    key: str
    """Label of the key."""
    since_ms: int
    """Milliseconds since the peer has greeted."""
    idle_ms: int
    """Milliseconds since it was last heard."""
    received_bytes: int
    """Bytes on the wire of this connection; -1 if not known, like `sent_bytes`."""
    sent_bytes: int
    throttled_ms: int
    """Total wait of its requests because of the user's quota."""


class ConnectionsListed(WireMessage, array_like=True):
    """Answer to ListConnections."""

    connections: list[ConnectionState]
    total: int
    """Number of all that were meant, also beyond the limit."""


class DescribeConfig(Request, array_like=True):
    """Request the settings that a node goes by, those of its config file included."""


class ConfigEntry(Struct, frozen=True, array_like=True):
    """One setting of a node. Secrets, and what files hold, are never told."""

    name: str
    value: str
    default: str
    source: str
    """Where the value comes from: default, file, cluster or node."""
    restart: bool
    """True if only the config file can change it, and the node reads that when it starts."""
    unit: str = ""
    help: str = ""


class ConfigDescribed(WireMessage, array_like=True):
    """Answer to DescribeConfig, by name."""

    node: str
    role: str
    entries: list[ConfigEntry]


class KickConnection(Request, array_like=True):
    """End a session and reset its connection; answered by Ok.

    The peer may dial again: to shut out a user, disable it or remove its key.
    """

    endpoint: Name
    """host:port of the peer, as ListConnections gives it."""


class StatsResult(WireMessage, array_like=True):
    """Counters and gauges of a node, flat; histograms as `<name>.p50` and so on."""

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
    | Throttled
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
    | SignCopies
    | CopiesSigned
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
    | DescribeVersions
    | VersionsDescribed
    | FinalizeUpgrade
    | Ok
    | Stats
    | StatsResult
    | ListConnections
    | ConnectionsListed
    | KickConnection
    | DescribeConfig
    | ConfigDescribed
    | ListGroups
    | GroupsListed
    | DescribeGroup
    | GroupDescribed
    | DescribeAccess
    | AccessDescribed
    | GroupMessage
    | ParkingMessage
    | TransactionMessage
    | SubscriptionMessage
    | BackupMessage
    | OperationMessage
    | SurveyMessage
)

NODES_ONLY: Final = (Replicate, Heartbeat, RaftFrame, ReportLoad)
"""Accepted only from a session that proved the cluster key. (Of Propose: all but topic commands,
AllocateProducerIds, ElectLeader and Barrier; see `CLIENT_COMMANDS` in `wire.acceptor`.)"""
OPERATORS_ONLY: Final = (
    AddNameServer,
    RemoveNameServer,
    FinalizeUpgrade,
    KickConnection,
    ReadState,
    FetchEntries,
    RestoreEntries,
)
"""Accepted only from a session that proved the cluster key, including those of clients."""
