"""Messages by which a backup reads a cluster: its replicated state, and entries of queues as stored.

A backup notes the end of each queue, reads the state, and then each queue's log up to its high
watermark, or up to the first entry that carries out a decision made after that state (see
docs/SAFETY.md, K1 to K4). No node remembers anything of it between two answers.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from logboom.wire.access.access_rules import Quota, RoleView, UserView
from logboom.wire.base import LARGE_FRAME, Name, Request, WireMessage
from logboom.wire.group_view import GroupOffsets, GroupView
from logboom.wire.transactions import DecisionView, EntryPosition
from logboom.wire.view import BrokerView, NameServerView, SettingView, TopicView


class ApplicationView(Struct, frozen=True, array_like=True, gc=False):
    """What the name servers remember of one application id."""

    app_id: str
    epoch: int
    """Epoch of the producer that opened it last; 0 if nobody has."""
    committed: int
    """The highest committed sequence; all up to it are closed. -1 if there is none."""
    aborted: list[tuple[int, int]]
    """(sequence, attempt) of aborted attempts above it, sorted."""
    used_ms: int = 0
    """Last use, for ids that a producer made up; 0 for others."""
    owner: str = ""
    """Who numbers its sequences; "": nobody in particular."""


class GroupState(Struct, frozen=True, array_like=True, gc=False):
    """A consumer group and its offsets."""

    group: GroupView
    """Without its members."""
    offsets: list[GroupOffsets]


class ClusterSnapshot(Struct, frozen=True, array_like=True, gc=False):
    """Everything that a backup keeps of the replicated state, as of one metadata version.

    Users have public keys only, so that it holds no secrets.
    """

    version: int
    """Metadata version. Decisions with greater numbers were made later."""
    cluster_id: str
    clock_ms: int
    """The latest time that any command carried."""
    next_topic_id: int
    next_producer_id: int
    next_instance_epoch: int
    topics: list[TopicView]
    groups: list[GroupState]
    next_group_id: int
    applications: list[ApplicationView]
    decisions: list[DecisionView]
    """Decisions that not all queues have reported as carried out."""
    users: list[UserView]
    """Without those of nodes."""
    roles: list[RoleView]
    default_quota: Quota = Quota()
    brokers: list[BrokerView] = []
    """For the reader of a backup: nobody restores them."""
    name_servers: list[NameServerView] = []
    settings: list[SettingView] = []
    """Replicated settings, those of single nodes included."""
    features: int = 0
    """Level of the features that the cluster uses."""


class ReadState(Request, array_like=True):
    """Read the replicated state at one version; served by the Raft leader, linearizable."""


class StateRead(WireMessage, array_like=True):
    """Answer to ReadState.

    The frames that follow, joined, are the msgpack of a `ClusterSnapshot`.
    """

    version: int
    size: int
    """Bytes of all frames together."""


class FetchEntries(Request, array_like=True):
    """Read entries of a queue as stored, from a position up to its HW.

    Served by the queue's leader while it holds its lease, once its HW has reached its end at
    election.
    """

    topic: Name
    queue: int
    topic_id: int
    offset: int
    """Position of the first entry; -1: tell where the log begins."""
    side: int
    last_epoch: int
    """Leader epoch of the entry before the position; -1 if there is none."""
    max_bytes: int
    """Approximate bytes of entries in the answer; at least one entry. 0: none, only compare the
    position."""
    version: int
    """Stop before the first entry that carries out a decision of a greater number; -1: never."""
    until: EntryPosition | None = None
    """End before this position, at which an entry ends; None: at the HW."""
    copies: tuple[int, int] | None = None
    """Of a compacted topic: offsets (from, to before) whose survivors are wanted, in place of
    entries."""


FetchStart: TypeAlias = Literal["here", "trimmed", "diverged"]


class EntriesFetched(WireMessage, array_like=True):
    """Answer to FetchEntries.

    One frame follows that holds the entries one after the other (none if there are none). In answer
    to `copies`, one frame follows for each batch with survivors.

    `start` is "here" if the log goes on from the requested position. "trimmed": retention has
    removed entries there. "diverged": the log has another history. Then there are no entries, and
    (`offset`, `side`) is the log's start.
    """

    start: FetchStart
    offset: int
    """Position after the entries, from which to go on."""
    side: int
    last_epoch: int
    """Leader epoch of the entry before that position."""
    leader_epoch: int
    hw_offset: int
    hw_side: int
    log_start: int
    more: bool
    """True if there may be more entries before `until`, or the HW."""
    decided: bool = False
    """True if it ends before a decision of a greater number than `version`."""
    count: int = 0
    """Number of entries."""
    messages: int = 0
    """Number of messages in them."""
    crc: int = 0
    """crc32c of the frame of entries."""
    state: bytes = b""
    """At the log's start: msgpack of epochs and producer windows, as in RESET."""
    compacts: bool = False
    """True if the leader compacts the queue."""
    survivors: list[bytes] = msgspec.field(default_factory=list)
    """In answer to `copies`: the surviving messages of each frame, as in Pulled."""
    log_bytes: int = 0
    """Bytes of all entries of the log."""
    copied: int = -1
    """In answer to `copies`: they reach up to here; -1 if the leader has not compacted so far
    yet."""


MAX_COPIES: Final = 65_536
"""Maximum copies of batches in one RestoreEntries."""


class RestoreEntries(Request, array_like=True):
    """Append entries of a backup to a queue whose topic is being restored.

    Served by the queue's leader, and answered once all in-sync replicas have them on disk. At most
    one frame follows. With `count` 0 and no frame it only asks where the queue's log ends.
    """

    FRAME_BYTES: ClassVar[int] = LARGE_FRAME

    topic: Name
    queue: int
    topic_id: int
    backup: str
    """As in RestoreTopic."""
    offset: int
    """Position of the first entry, which must be the end of the log; or, with `state`, where an
    empty log is to begin."""
    side: int
    count: int = 0
    """Number of entries in the frame, one after the other."""
    crc: int = 0
    """crc32c of the frame."""
    state: bytes = b""
    """Epochs and producer windows of a log that begins at the position, as in RESET; else empty."""
    survivors: Annotated[list[bytes], Meta(max_length=MAX_COPIES)] | None = None
    """Of a compacted topic: the frame holds copies of batches from before the log, and these are the
    surviving messages of each, as in Pulled."""
    copied: int = -1
    """With `survivors`: the copies reach up to here."""


class EntriesRestored(WireMessage, array_like=True):
    """Answer to RestoreEntries: where the log ends, whether the entries were appended or not."""

    offset: int
    side: int
    last_epoch: int
    """Leader epoch of the last entry; -1 if there is none."""
    log_start: int
    lacks: int
    """Copies from this offset up to the log's start are lacking; -1: none."""
    whole: bool
    """True if all in-sync replicas have everything up to the end on disk, copies included, and the
    leader knows all that is parked in it."""
    undecided: int = -1
    """Batches up to the end that wait for a decision, if `whole`; -1 from older brokers."""


BackupMessage: TypeAlias = (
    ReadState | StateRead | FetchEntries | EntriesFetched | RestoreEntries | EntriesRestored
)
