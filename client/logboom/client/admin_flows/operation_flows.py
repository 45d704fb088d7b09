"""The admin's flows for brokers, moves of replicas and balance (see `logboom.client.flows`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logboom.client.calls import AskRaftLeader, ProposeCommand
from logboom.client.fetch.message_flows import unexpected
from logboom.client.flows import Flow, check_queues, describe_topic
from logboom.wire.commands import CommandResult
from logboom.wire.errors import error_for
from logboom.wire.operation_commands import CancelReassign, QueueMove, Reassign, SetBrokerMode
from logboom.wire.operation_messages import (
    BalancePlanned,
    ClusterDescribed,
    DescribeCluster,
    PlanBalance,
    PlannedMove,
)

MOVES_AT_ONCE = 500
"""Moves in one command."""


def describe_cluster(timeout: float, sizes_of: str = "") -> Flow[ClusterDescribed]:
    """Return brokers, moves under way and what the planner does."""
    answer, _ = yield AskRaftLeader(lambda ms: DescribeCluster(0, ms, sizes_of), timeout)
    if not isinstance(answer, ClusterDescribed):
        raise unexpected(answer)
    return answer


def plan_balance(most: int, timeout: float) -> Flow[BalancePlanned]:
    """Return the moves that would even out the brokers."""
    answer, _ = yield AskRaftLeader(lambda ms: PlanBalance(0, ms, most), timeout)
    if not isinstance(answer, BalancePlanned):
        raise unexpected(answer)
    return answer


def reassign(
    topic: str, queue: int, replicas: Sequence[str], wall_ms: int, timeout: float, *, force: bool
) -> Flow[None]:
    """Begin the move of one queue."""
    view = yield from describe_topic(topic, timeout)
    check_queues(view, [queue])
    move = QueueMove(view.id, queue, -1, list(replicas))
    result = yield ProposeCommand(Reassign([move], wall_ms, force), timeout)
    _raise_refusal(result)


def carry_out(moves: Iterable[PlannedMove], wall_ms: int, timeout: float) -> Flow[list[str]]:
    """Begin planned moves; the result has a code for each, "" if it has begun."""
    left = [QueueMove(each.topic_id, each.queue, each.version, each.target) for each in moves]
    codes: list[str] = []
    while left:
        part, left = left[:MOVES_AT_ONCE], left[MOVES_AT_ONCE:]
        result: CommandResult = yield ProposeCommand(Reassign(part, wall_ms), timeout)
        codes += _codes(result)
    return codes


def cancel_reassign(topic: str, queue: int, wall_ms: int, timeout: float) -> Flow[None]:
    """Cancel the move of one queue."""
    view = yield from describe_topic(topic, timeout)
    check_queues(view, [queue])
    result = yield ProposeCommand(CancelReassign([(view.id, queue)], wall_ms), timeout)
    _raise_refusal(result)


def set_broker_mode(broker: str, mode: str, wall_ms: int, timeout: float) -> Flow[None]:
    """Set the mode of a broker."""
    yield ProposeCommand(SetBrokerMode(broker, mode, wall_ms), timeout)


def _codes(result: CommandResult) -> list[str]:
    return result.value if isinstance(result.value, list) else []


def _raise_refusal(result: CommandResult) -> None:
    """Raise the refusal of the only part of a command, which was done as a whole."""
    for code in _codes(result):
        if code:
            raise error_for(code, result.text, result.fields)
