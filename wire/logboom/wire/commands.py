"""Commands of the name server: what is proposed to the Raft log, and their results.

A command is plain data with its time inside; `logboom.metadata.state.state_machine` applies it, the same on
every name server. Brokers and clients send commands in `Propose`; a few are made only by the raft
leader itself (`NewTerm`, `FenceBroker`, `SetTarget`). Those of consumer groups are in
`logboom.wire.group_commands`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from logboom.wire.base import Command
from logboom.wire.group_commands import GroupCommand
from logboom.wire.transactions import TransactionCommand
from logboom.wire.view import TopicConfig


class NewTerm(Command, frozen=True, array_like=True):
    """First command of a raft leader's term: later fences must carry this term (SAFETY R13).

    The first ever also founds the cluster: `cluster_id` is kept once and for all.
    """

    term: int
    leader: str
    cluster_id: str
    time_ms: int


class Barrier(Command, frozen=True, array_like=True):
    """Does nothing: its commit makes the reads after it linearizable."""


class RegisterBroker(Command, frozen=True, array_like=True):
    """A broker's process begins: a new instance epoch, all its leaderships end (Q2, Q3, Q13).

    `incarnation` is random per registration, so that a retry is recognised. `suspect` says that
    the store may have lost synced data: the broker leaves every ISR that has another member.
    """

    broker: str
    store_id: str
    incarnation: str
    endpoint: str
    zone: str
    suspect: bool
    time_ms: int


class FenceBroker(Command, frozen=True, array_like=True):
    """The raft leader of `term` saw no heartbeat for a session: fence, ISR and election at once."""

    broker: str
    instance_epoch: int
    term: int
    time_ms: int


class StepDown(Command, frozen=True, array_like=True):
    """A broker stops in good order: other ISR members take over all that it leads."""

    broker: str
    instance_epoch: int
    time_ms: int


class RemoveBroker(Command, frozen=True, array_like=True):
    """Forget a fenced broker that holds no replica."""

    broker: str


class CreateTopic(Command, frozen=True, array_like=True):
    """Create a topic. `replicas` 0 means min(3, live brokers); `min_in_sync` 0 a majority."""

    name: str
    queues: int
    replicas: int
    config: TopicConfig
    time_ms: int


class AlterTopic(Command, frozen=True, array_like=True):
    """Change settings, and the number of queues upward. None leaves a value as it is."""

    name: str
    queues: int | None
    config: TopicConfig | None
    time_ms: int


class DeleteTopic(Command, frozen=True, array_like=True):
    """Delete a topic with all its messages; its id is never used again."""

    name: str
    time_ms: int


class IsrChange(Struct, frozen=True, array_like=True):
    """A leader's wish for one queue: compare `version` and set the ISR."""

    topic_id: int
    queue: int
    leader_epoch: int
    version: int
    isr: list[tuple[str, int]]
    """(broker, instance epoch); the epoch of the asking leader counts too. A stale one is
    refused (Q6)."""


class AlterIsr(Command, frozen=True, array_like=True):
    """ISR changes by the leader of these queues; each is answered on its own."""

    broker: str
    instance_epoch: int
    changes: list[IsrChange]
    time_ms: int


class QueueTail(Struct, frozen=True, array_like=True):
    """What a replica holds: the epoch of its last entry and its end position."""

    topic_id: int
    queue: int
    last_epoch: int
    end_offset: int
    end_side: int


class ReportTails(Command, frozen=True, array_like=True):
    """A suspect broker says what it holds; if all eligible are suspect the greatest leads (Q13)."""

    broker: str
    instance_epoch: int
    tails: list[QueueTail]
    time_ms: int


class ReportDamage(Command, frozen=True, array_like=True):
    """Queues whose replica at this broker is damaged: it leaves their ISR first (Q14).

    With `mended` True the replica is whole again and may be led and grown as any other.
    """

    broker: str
    instance_epoch: int
    queues: list[tuple[int, int]]
    mended: bool
    time_ms: int


class ReportRoom(Command, frozen=True, array_like=True):
    """Whether a broker's disk takes writes.

    One that is `full` leaves each ISR that has the copies it needs without it, and leads such a
    queue no more; it joins none before it has said that it has room again.
    """

    broker: str
    instance_epoch: int
    full: bool
    time_ms: int


class AllocateProducerIds(Command, frozen=True, array_like=True):
    """Reserve `count` producer ids, never given before."""

    count: int


class ElectLeader(Command, frozen=True, array_like=True):
    """Move a queue's leadership to an ISR member (an operator's wish; `prefer` None = the first
    live replica in placement order)."""

    topic: str
    queue: int
    prefer: str | None
    time_ms: int


AnyCommand = (
    NewTerm
    | Barrier
    | RegisterBroker
    | FenceBroker
    | StepDown
    | RemoveBroker
    | CreateTopic
    | AlterTopic
    | DeleteTopic
    | AlterIsr
    | ReportTails
    | ReportDamage
    | ReportRoom
    | AllocateProducerIds
    | ElectLeader
    | GroupCommand
    | TransactionCommand
)


class CommandResult(Struct, frozen=True, array_like=True, omit_defaults=True):
    """Result of one command: an error code (empty = done), its text and fields, and a value.

    `version` is the metadata version after the command. `value`: the instance epoch
    (RegisterBroker), first producer id (AllocateProducerIds), a code per change, "" = done
    (AlterIsr; commits, releases, starts, resets and expiries of groups), the topic id
    (CreateTopic), the member epoch (JoinGroup), the group id (AlterGroup), what
    `OpenTransaction` and `Decide` say, else None.
    """

    version: int
    code: str = ""
    text: str = ""
    fields: dict[str, str | int | None] = msgspec.field(default_factory=dict)
    value: int | list[str] | None = None
