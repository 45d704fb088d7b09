"""Many groups that consume one topic: what happens to it costs each of them little."""

from __future__ import annotations

from typing import Final

from logboom.wire.commands import DeleteTopic
from logboom.wire.group_commands import AlterGroup
from logboom.wire.names import MAX_QUEUES
from tests.unit.metadata.groups.tables import GroupTables
from tests.unit.wire.work import cost_ms, without_garbage_of_others

TURN_MS: Final = 10.0
"""Processor time that one request may take of a node's turn."""
GROUPS: Final = 100


def test_a_topic_that_many_groups_wait_for_is_created_in_one_turn() -> None:
    tables, names = GroupTables(), [f"new-{number}" for number in range(8)]
    for number in range(GROUPS):
        tables.done(AlterGroup(f"g{number}", None, dict.fromkeys(names, ""), True, 0))
    new = iter(names)
    with without_garbage_of_others():

        def create() -> None:
            tables.create(next(new), queues=MAX_QUEUES, replicas=1)

        assert cost_ms(create, TURN_MS) <= TURN_MS
    group = tables.state.cluster.groups.by_name["g0"]
    for known in group.topics.values():
        assert list(known.committed) == list(known.seen_ends) == [0] * MAX_QUEUES
    assert not group.unstarted
    for topic in [*tables.state.cluster.topics]:
        tables.done(DeleteTopic(topic, 0))
    assert not group.topics
