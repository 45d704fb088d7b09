"""Commands that operate a cluster, part of `logboom.wire.commands.AnyCommand`.

They move replicas, change modes of brokers and settings, and raise the features level. All need
features level 1. `EndFilling` and `RaiseFeatures` are made by the Raft leader alone, which also
plans most of the moves; the others come from operators, too.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from logboom.wire.base import Command

BrokerMode: TypeAlias = Literal["active", "maintenance", "draining", "drained"]
"""active: it serves. maintenance: it leads nothing where another can, coordinates no group and gets
no new replica. draining: the same, and its replicas are moved away. drained: it holds none."""
MODES: Final[tuple[BrokerMode, ...]] = get_args(BrokerMode)


class QueueMove(Struct, frozen=True, array_like=True, gc=False):
    """The replicas that a queue shall have, the preferred leader first."""

    topic_id: int
    queue: int
    version: int
    """Version of the queue that the move was planned for; -1: whatever it is."""
    target: list[str]


class Reassign(Command, frozen=True, array_like=True):
    """Move queues to other replicas; the value is a code per move, the text that of the first refusal.

    A target replaces that of a move under way. Replicas are added first and removed once all of the
    target are in sync. `force` allows fewer zones than before.
    """

    moves: list[QueueMove]
    time_ms: int
    force: bool = False


class CancelReassign(Command, frozen=True, array_like=True):
    """Give queues the replicas back that they had before their moves; the value is a code per queue.

    The text is that of the first refusal. A queue without a move is done.
    """

    queues: list[tuple[int, int]]
    """(topic id, queue)."""
    time_ms: int


class SetBrokerMode(Command, frozen=True, array_like=True):
    """Set the mode of a broker; one that is not active gives its leaderships away."""

    broker: str
    mode: str
    """A `BrokerMode`."""
    time_ms: int


class EndFilling(Command, frozen=True, array_like=True):
    """Note that a new broker holds its share, so that no more is moved onto it as onto a new one."""

    broker: str


class AlterSettings(Command, frozen=True, array_like=True):
    """Set replicated settings of the cluster (scope ""), or of one node; None unsets one."""

    scope: str
    values: dict[str, str | None]
    time_ms: int


class RaiseFeatures(Command, frozen=True, array_like=True):
    """Raise the features level, once all nodes were heard with at least this level."""

    level: int
    time_ms: int


OperationCommand = (
    Reassign | CancelReassign | SetBrokerMode | EndFilling | AlterSettings | RaiseFeatures
)
