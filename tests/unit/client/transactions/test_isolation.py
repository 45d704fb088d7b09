"""What readers see of a transaction while its queue releases it: pulls say what they want."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.client.calls import FindTopic
from logboom.client.fetch.fetch_buffer import FetchBuffer, OpenFetch
from logboom.client.fetch.message_flows import EVERYTHING, pull
from logboom.client.fetch.topic_selection import TopicSelection
from logboom.client.group_options import member_options
from logboom.client.producer_options import reads_uncommitted
from logboom.wire.errors import InvalidRequest
from logboom.wire.messages import Pull
from tests.unit.client.groups.scripted_group import GroupCluster, Reader, fill, numbers
from tests.unit.client.scripted import Cluster
from tests.unit.client.transactions.test_transactions import drive


def pulls(cluster: Cluster) -> set[bool]:
    """What all pulls wanted."""
    return {message.uncommitted for message in cluster.seen if isinstance(message, Pull)}


@pytest.mark.parametrize("uncommitted", [False, True])
def test_consumers_and_pulls_pass_it_on(uncommitted: bool) -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    find = FindTopic("t", 5.0)
    cluster.call(find)
    assert cluster.run(5, lambda: find.outcome.done)
    subscription = TopicSelection(["t"], None, "first", EVERYTHING, uncommitted=uncommitted)
    inbox = FetchBuffer(1 << 20, lambda: None)
    for _, call in subscription.new_fetches(cluster.core.watching.routes, inbox):
        assert isinstance(call, OpenFetch)
        cluster.call(call)
    cluster.run(1)
    assert pulls(cluster) == {uncommitted}
    cluster.seen.clear()
    drive(cluster, pull("t", 0, 0, 1, 0, EVERYTHING, 5, uncommitted=uncommitted))
    assert pulls(cluster) == {uncommitted}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_members_of_groups_too(isolation: str) -> None:
    cluster = GroupCluster()
    fill(cluster, 0, 0, 3)
    cluster.give(0)
    options = member_options("t", "g", "m-1", isolation=isolation)
    reader = Reader(cluster, uncommitted=options.uncommitted)
    assert numbers(reader.read(3)) == [0, 1, 2]
    assert pulls(cluster) == {isolation == "read_uncommitted"}


@pytest.mark.parametrize("wrong", ["committed", "", None, True, 1])
def test_other_words_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="read_committed"):
        reads_uncommitted(wrong)
