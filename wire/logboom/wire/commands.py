"""Commands of the name servers, which are proposed to the Raft log, and their results.

A command is plain data with its time inside; `logboom.metadata.state.state_machine` applies it, the
same on every name server. Brokers and clients send commands in `Propose`; a few are made only by
the Raft leader itself (`NewTerm`, `FenceBroker`, `SetTarget`). Those of consumer groups are in
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
    """The first command of a Raft leader's term: later fences must carry this term.

    The first one of all also founds the cluster: its `cluster_id` is permanent.
    """

    term: int
    leader: str
    cluster_id: str
    time_ms: int


class Barrier(Command, frozen=True, array_like=True):
    """A command without effect, whose commit makes the reads after it linearizable."""


class RegisterBroker(Command, frozen=True, array_like=True):
    """Register the new process of a broker: a new instance epoch, which ends all its leaderships.

    `incarnation` is random per registration, so that a retry is recognised. `suspect` means that
    the store may have lost synced data: the broker leaves every ISR that has another member.
    Brokers that name the same `host` share a machine; without one, a broker has a machine alone.
    """

    broker: str
    store_id: str
    incarnation: str
    endpoint: str
    zone: str
    suspect: bool
    time_ms: int
    host: str = ""


class FenceBroker(Command, frozen=True, array_like=True):
    """Fence a broker whose heartbeats the Raft leader of `term` missed for a session.

    The broker leaves the ISRs, and its queues elect leaders, in the same command.
    """

    broker: str
    instance_epoch: int
    term: int
    time_ms: int


class StepDown(Command, frozen=True, array_like=True):
    """Hand over all leaderships of a broker that stops to other ISR members."""

    broker: str
    instance_epoch: int
    time_ms: int


class RemoveBroker(Command, frozen=True, array_like=True):
    """Forget a fenced broker that holds no replica."""

    broker: str


class CreateTopic(Command, frozen=True, array_like=True):
    """Create a topic. `replicas` 0 means min(3, hosts of live brokers); `min_in_sync` 0 a majority."""

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
    """A leader's request for one queue: compare `version` and set the ISR."""

    topic_id: int
    queue: int
    leader_epoch: int
    version: int
    isr: list[tuple[str, int]]
    """(broker, instance epoch) of each member, including the requesting leader. A stale epoch is
    refused, because that broker may have lost data since."""


class AlterIsr(Command, frozen=True, array_like=True):
    """ISR changes by the leader of these queues; each has its own result."""

    broker: str
    instance_epoch: int
    changes: list[IsrChange]
    time_ms: int


class QueueTail(Struct, frozen=True, array_like=True):
    """The content of a replica: the epoch of its last entry and its end position."""

    topic_id: int
    queue: int
    last_epoch: int
    end_offset: int
    end_side: int


class ReportTails(Command, frozen=True, array_like=True):
    """Report the content of a suspect broker.

    If all eligible replicas are suspect, the one with the greatest end leads.
    """

    broker: str
    instance_epoch: int
    tails: list[QueueTail]
    time_ms: int


class ReportDamage(Command, frozen=True, array_like=True):
    """Report queues whose replica at this broker is damaged, so that it leaves their ISR first.

    With `mended` True the replica is whole again and may lead and join the ISR like any other.
    """

    broker: str
    instance_epoch: int
    queues: list[tuple[int, int]]
    mended: bool
    time_ms: int


class ReportRoom(Command, frozen=True, array_like=True):
    """Report whether a broker's disk accepts writes.

    A `full` broker leaves each ISR that has enough copies without it, and no longer leads these
    queues. It joins no ISR before it has reported free space.
    """

    broker: str
    instance_epoch: int
    full: bool
    time_ms: int


class AllocateProducerIds(Command, frozen=True, array_like=True):
    """Reserve `count` producer ids that were never used before."""

    count: int


class ElectLeader(Command, frozen=True, array_like=True):
    """Move a queue's leadership to an ISR member at an operator's request.

    `prefer` None: the first live replica in placement order.
    """

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
    """The result of a command: an error code ("" if done), its text and fields, and a value.

    `version` is the metadata version after the command. `value` is the instance epoch
    (RegisterBroker), the first producer id (AllocateProducerIds), a code per change, "" = done
    (AlterIsr; commits, releases, starts, resets and expiries of groups), the topic id
    (CreateTopic), the member epoch (JoinGroup), the group id (AlterGroup), the answers of
    `OpenApplication` and `Decide`, else None.
    """

    version: int
    code: str = ""
    text: str = ""
    fields: dict[str, str | int | None] = msgspec.field(default_factory=dict)
    value: int | list[str] | None = None
