"""Commands of the name servers, which are proposed to the Raft log, and their results.

A command is plain data with its time inside; `logboom.metadata.state.state_machine` applies it, the
same on every name server. Brokers and clients send commands in `Propose`; a few are made only by
the Raft leader itself (`NewTerm`, `FenceBroker`, `SetTarget`, `AdmitInitialUsers`, `EndUserKeys`).
Those of consumer groups are in `logboom.wire.group_commands`, those of users and access rules in
`logboom.wire.access.access_commands`, those that move replicas, change modes and settings in
`logboom.wire.operation_commands`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct

from logboom.wire.access.access_commands import AccessCommand
from logboom.wire.base import Command
from logboom.wire.group_commands import GroupCommand
from logboom.wire.group_view import GroupConfig
from logboom.wire.listeners import ListenerView
from logboom.wire.operation_commands import OperationCommand
from logboom.wire.transactions import ParkedBatches, TransactionCommand
from logboom.wire.view import TopicConfig


class NewTerm(Command, frozen=True, array_like=True):
    """The first command of a Raft leader's term: later fences must carry this term.

    The first one of all also founds the cluster: its `cluster_id` is permanent.
    """

    term: int
    leader: str
    cluster_id: str
    time_ms: int
    features: int = 0
    """Features level of the cluster, if this founds it."""


class Barrier(Command, frozen=True, array_like=True):
    """A command without effect, whose commit makes the reads after it linearizable."""


class RegisterBroker(Command, frozen=True, array_like=True):
    """Register the new process of a broker: a new instance epoch, which ends all its leaderships.

    `incarnation` is random per registration, so that a retry is recognised. `suspect` means that
    the store may have lost synced data: the broker leaves every ISR that has another member.
    Brokers that name the same `host` share a machine; without one, a broker has a machine alone.
    `listeners` is empty if the broker has a single open one, at `endpoint`.
    """

    broker: str
    store_id: str
    incarnation: str
    endpoint: str
    zone: str
    suspect: bool
    time_ms: int
    host: str = ""
    listeners: list[ListenerView] = msgspec.field(default_factory=list)
    features: int = 0
    """Features level of the broker's software, which must be that of the cluster at least."""
    topic_id: int = 0
    """The greatest id of a topic of which it holds a replica."""
    version: int = 0
    """The newest metadata version that it knows. Name servers that are behind either have lost what they
    had decided: they were restored from a copy (R15)."""
    former_epoch: int = -1
    """Instance epoch that this process had last; -1 if it has just started. A process that comes back
    does not take the id from one that has registered since."""


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
    """Forget a fenced broker, its replicas and its user.

    It is refused if no other replica of a queue holds everything for certain. With `accept_loss` a
    queue without another replica begins anew, empty, and one whose others are not in sync is led by
    the best of them.
    """

    broker: str
    accept_loss: bool = False


class CreateTopic(Command, frozen=True, array_like=True):
    """Create a topic. `replicas` 0 means min(3, hosts of brokers); `min_in_sync` 0 a majority.

    If some of these brokers are down, 0 gives fewer replicas at first; the others are added later.
    """

    name: str
    queues: int
    replicas: int
    config: TopicConfig
    time_ms: int
    owner: str = ""
    """The user whose limits count the topic. The name server sets it to the user that asks, and
    takes it from nodes alone; "" on a listener without keys."""


class AlterTopic(Command, frozen=True, array_like=True):
    """Change settings, the number of queues upward, and the number of replicas that is wanted.

    None leaves a value as it is. The Raft leader then adds or removes replicas, queue by queue.
    """

    name: str
    queues: int | None
    config: TopicConfig | None
    time_ms: int
    replicas: int | None = None


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


class DiscardLostTopic(Command, frozen=True, array_like=True):
    """Give up a topic that the name servers have lost: brokers delete what they keep of it (R15)."""

    topic_id: int


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
    """Report the content of a suspect broker, or of queues without a leader after a recovery.

    If all eligible replicas are suspect, the one with the greatest end leads.
    """

    broker: str
    instance_epoch: int
    tails: list[QueueTail]
    time_ms: int
    complete: bool = False
    """True if, with the reports before it, it names every queue without a leader that the broker
    holds."""


class LossEnd(Struct, frozen=True, array_like=True):
    """Where the history of a queue begins that an election after a loss has begun."""

    topic_id: int
    queue: int
    epoch: int
    """The epoch of the `QueueLoss`."""
    end: int


class ReportLosses(Command, frozen=True, array_like=True):
    """Report up to where positions from before a loss are valid, as the leader of these queues.

    The commits of all groups are cut to that.
    """

    broker: str
    instance_epoch: int
    ends: list[LossEnd]
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


class RestoreCounters(Command, frozen=True, array_like=True):
    """Let ids, epochs and metadata versions begin above those of a backup, before it is restored.

    What the logs of the backup name is then never given again. Nothing goes back.
    """

    version: int
    next_topic_id: int
    next_producer_id: int
    next_instance_epoch: int
    next_group_id: int


class RestoreTopic(Command, frozen=True, array_like=True):
    """Create a topic into which a backup is restored; the value is its id.

    Until `FinishRestore` it takes and gives no messages. If it is being restored from the same
    backup already, nothing is changed.
    """

    name: str
    topic_id: int
    """Its id, which no topic may have had; 0: the next one."""
    config: TopicConfig
    replicas: int
    created_ms: int
    owner: str
    epochs: list[int]
    """For each queue a leader epoch that is not below any in its log."""
    backup: str
    """What is restored, in the words of whoever restores it; not empty."""


class RestoredOffsets(Struct, frozen=True, array_like=True, gc=False):
    """Offsets of a group in some queues of a topic, as in `GroupOffsets`."""

    topic_id: int
    first_queue: int
    """The lists are of this queue and those after it."""
    committed: list[int]
    seen_ends: list[int]
    ranges: list[tuple[int, bytes]] = []
    """(queue, finished ranges above its committed offset)."""


class RestoreGroup(Command, frozen=True, array_like=True):
    """Set the offsets of a group in topics that are being restored.

    A group that does not exist is created with the settings and the subscription; one that exists
    keeps its own.
    """

    group: str
    config: GroupConfig
    subscription: dict[str, str]
    offsets: list[RestoredOffsets]
    backup: str


class RestoredApplication(Struct, frozen=True, array_like=True, gc=False):
    """What is known of one application id."""

    app_id: str
    epoch: int
    committed: int
    aborted: list[tuple[int, int]]
    """(sequence, attempt)."""
    used_ms: int = 0
    owner: str = ""


class RestoredDecision(Struct, frozen=True, array_like=True, gc=False):
    """A decision that queues which are being restored carry out, once they are."""

    app_id: str
    sequence: int
    attempt: int
    commit: bool
    queues: list[ParkedBatches]


class RestoreDecisions(Command, frozen=True, array_like=True):
    """Add decisions on queues that are being restored, in their order, and what is known of
    applications.

    Sequences and epochs of applications only grow.
    """

    applications: list[RestoredApplication]
    decisions: list[RestoredDecision]
    backup: str


class FinishRestore(Command, frozen=True, array_like=True):
    """End the restore of a topic: normal work begins, in new leader epochs."""

    topic: str
    topic_id: int
    backup: str


RestoreCommand: TypeAlias = (
    RestoreCounters | RestoreTopic | RestoreGroup | RestoreDecisions | FinishRestore
)


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
    | DiscardLostTopic
    | AlterIsr
    | ReportTails
    | ReportLosses
    | ReportDamage
    | ReportRoom
    | AllocateProducerIds
    | ElectLeader
    | GroupCommand
    | TransactionCommand
    | AccessCommand
    | OperationCommand
    | RestoreCommand
)


class CommandResult(Struct, frozen=True, array_like=True, omit_defaults=True):
    """The result of a command: an error code ("" if done), its text and fields, and a value.

    `version` is the metadata version after the command. `value` is the instance epoch
    (RegisterBroker), the first producer id (AllocateProducerIds), a code per change, "" = done
    (AlterIsr, Reassign, CancelReassign; commits, releases, starts, resets and expiries of groups),
    the topic id (CreateTopic, RestoreTopic), the member epoch (JoinGroup), the group id (AlterGroup), the answers of
    `OpenApplication` and `Decide`, else None.
    """

    version: int
    code: str = ""
    text: str = ""
    fields: dict[str, str | int | None] = msgspec.field(default_factory=dict)
    value: int | list[str] | None = None
