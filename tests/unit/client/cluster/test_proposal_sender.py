"""Commands under way at once: never more than the name servers keep results for."""

from __future__ import annotations

from typing import Literal

from logboom.client.calls import ProposeCommand
from logboom.wire.commands import Barrier
from logboom.wire.messages import AnyMessage, Failure, Propose
from tests.unit.client.scripted import Cluster

KEPT = 64
"""Results that the name servers keep for one proposer."""


def test_a_lost_command_is_not_left_behind_by_more_than_the_results_kept() -> None:
    cluster = Cluster()
    numbers: list[int] = []
    lost: list[int] = []

    def lose_the_first(_endpoint: str, message: AnyMessage) -> Failure | Literal[True] | None:
        if not isinstance(message, Propose):
            return None
        if not lost:
            lost.append(message.number)
            return True
        numbers.append(message.number)
        return None

    cluster.intercept = lose_the_first
    calls = [ProposeCommand(Barrier(), 10.0) for _ in range(200)]
    for call in calls:
        cluster.call(call)
    assert cluster.run(9.0, lambda: all(call.outcome.done for call in calls))
    assert [call.outcome.error for call in calls] == [None] * 200
    again = numbers.index(lost[0])
    assert max(numbers[:again]) < lost[0] + KEPT
    assert sorted(numbers) == sorted({*numbers})
