"""Limits on the topics and queues that a user has created."""

from __future__ import annotations

import pytest

from logboom.wire.access.access_commands import AlterUser, DeleteUser, SetDefaultQuota
from logboom.wire.access.access_rules import Quota
from logboom.wire.commands import AlterTopic, CommandResult, CreateTopic, DeleteTopic
from logboom.wire.view import TopicConfig
from tests.unit.metadata.access.access_states import AccessTables


def tables_with(**limits: int) -> AccessTables:
    """A cluster with one broker, in which alice has these limits."""
    tables = AccessTables()
    tables.register("a")
    tables.done(AlterUser("alice", None, None, Quota(**limits), 0))
    return tables


def create(tables: AccessTables, name: str, queues: int = 1, owner: str = "alice") -> CommandResult:
    """Create a topic of a user."""
    return tables.apply(CreateTopic(name, queues, 1, TopicConfig(), 0, owner))


def test_topics_beyond_the_quota_are_refused_until_one_is_deleted() -> None:
    tables = tables_with(topics=2)
    assert [create(tables, name).code for name in "abc"] == ["", "", "QUOTA_EXCEEDED"]
    refused = create(tables, "c")
    assert "logboom quota set alice --topics 3" in refused.text
    assert "c" not in tables.state.cluster.topics
    assert create(tables, "r", owner="root").code == ""
    assert create(tables, "n", owner="").code == ""
    assert create(tables, "m", owner="node:a").code == ""
    tables.done(DeleteTopic("a", 0))
    assert create(tables, "c").code == ""
    tables.done(AlterUser("alice", None, None, Quota(), 0))
    assert create(tables, "d").code == ""


def test_queues_of_all_topics_of_the_owner_count() -> None:
    tables = tables_with(queues=5)
    assert create(tables, "a", 3).code == ""
    assert create(tables, "b", 3).code == "QUOTA_EXCEEDED"
    assert create(tables, "b", 1).code == ""

    def grow(queues: int | None) -> CommandResult:
        return tables.apply(AlterTopic("b", queues, TopicConfig(retention_ms=60_000), 0))

    assert grow(2).code == ""
    refused = grow(3)
    assert refused.code == "QUOTA_EXCEEDED"
    assert "logboom quota set alice --queues 6" in refused.text
    assert len(tables.state.cluster.topics["b"].queues) == 2
    # Settings, and topics that are beyond a new limit, stay as they are.
    tables.done(AlterUser("alice", None, None, Quota(queues=1), 0))
    assert grow(None).code == ""
    assert grow(2).code == ""


@pytest.mark.parametrize("own", [0, 2])
def test_the_default_counts_for_whom_has_no_limit_of_its_own(own: int) -> None:
    tables = tables_with(topics=own)
    tables.done(SetDefaultQuota(Quota(topics=1)))
    made = [create(tables, name).code for name in "abc"]
    assert made.count("") == (own or 1)
    tables.done(DeleteUser("alice"))
    assert create(tables, "z").code == "QUOTA_EXCEEDED"
