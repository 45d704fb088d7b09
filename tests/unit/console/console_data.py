"""Small clusters as the client tells of them, for tests of page models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from logboom.wire.operation_messages import (
    BrokerLoad,
    ClusterDescribed,
    PlannerStatus,
    QueueMoveState,
)
from logboom.wire.view import BrokerView, QueueView, TopicConfig, TopicView

MIB = 1 << 20
PLANNER = PlannerStatus("idle", ["the brokers are even"], 0, "new-broker", 900.0, 0)
USUAL = BrokerLoad(
    "", "active", True, False, False, "", "", 2, 1, 1, 10 * MIB, 1000 * MIB, 600 * MIB, 2048, 0,
    0, 0, 0, 0,
)  # fmt: skip


def broker_load(name: str, **fields: Any) -> BrokerLoad:
    """A broker that is well, but for some fields."""
    return msgspec.structs.replace(USUAL, broker=name, **fields)


def broker_view(name: str, *, alive: bool = True) -> BrokerView:
    """A broker as metadata has it."""
    return BrokerView(name, f"{name}:7711", "", 1, alive, 1)


def described(
    *brokers: BrokerLoad,
    moves: Sequence[QueueMoveState] = (),
    planner: PlannerStatus = PLANNER,
) -> ClusterDescribed:
    """What the Raft leader tells."""
    return ClusterDescribed(0, list(brokers), list(moves), planner, 7, [])


def queue_view(replicas: str, isr: str | None = None, **fields: Any) -> QueueView:
    """A queue on brokers of one letter each, led by the first."""
    leader = fields.pop("leader", replicas[0])
    in_sync = list(replicas if isr is None else isr)
    return QueueView(list(replicas), leader, 1, 1, in_sync, [], **fields)


def topic_view(name: str, *queues: QueueView) -> TopicView:
    """A topic."""
    return TopicView(name, 1, TopicConfig(), list(queues), 1, replicas=2)


def move_state(topic: str, queue: int, **fields: Any) -> QueueMoveState:
    """A move that is at 40 of 100 MiB."""
    usual = QueueMoveState(
        topic, queue, ["a", "c", "b"], ["c"], ["b"], "drain", 40 * MIB, 100 * MIB, MIB, 0, 60, ""
    )
    return msgspec.structs.replace(usual, **fields)
