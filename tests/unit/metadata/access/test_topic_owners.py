"""The user who created a topic is kept, so that limits can count it."""

from __future__ import annotations

import msgspec
import pytest

from logboom.metadata.proposal_checks import command_of
from logboom.metadata.raft.log_commands import entry_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.tables.cluster_state import OwnedTopics
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.acceptor import PeerSession
from logboom.wire.access.access_commands import DeleteUser
from logboom.wire.actor import PeerAddress
from logboom.wire.commands import AlterTopic, Barrier, CreateTopic, DeleteTopic
from logboom.wire.hello import PeerKind
from logboom.wire.messages import Propose
from logboom.wire.view import TopicConfig
from tests.unit.metadata.access.access_states import AccessTables
from tests.unit.metadata.state.states import three_brokers


def create(name: str, queues: int = 1, owner: str = "") -> CreateTopic:
    return CreateTopic(name, queues, 1, TopicConfig(), 0, owner)


def test_what_a_user_owns_is_counted_while_it_exists() -> None:
    tables = three_brokers()
    cluster = tables.state.cluster
    tables.done(create("a", 2, "alice"))
    tables.done(create("b", 3, "alice"))
    tables.done(create("c", 1, "bob"))
    assert cluster.owned == {"alice": OwnedTopics(2, 5), "bob": OwnedTopics(1, 1)}
    tables.done(AlterTopic("b", 4, None, 0))
    tables.done(DeleteTopic("c", 0))
    assert cluster.owned == {"alice": OwnedTopics(2, 6)}
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    assert twin.cluster.owned == cluster.owned
    assert twin.snapshot() == tables.state.snapshot()
    view = view_since(twin.cluster, -1, ["a", "t"], [], None)
    assert {topic.name: topic.owner for topic in view.topics} == {"a": "alice", "t": ""}


def test_topics_outlive_their_owner() -> None:
    tables = AccessTables()
    tables.register("a")
    tables.done(create("mine", 1, "alice"))
    tables.done(DeleteUser("alice"))
    assert tables.state.cluster.topics["mine"].owner == "alice"


def test_without_owners_entries_and_snapshots_are_as_before() -> None:
    tables = three_brokers()
    tables.be_older()
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 1
    tables.done(create("a", 1, "alice"))
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 6
    assert entry_of("", 0, 0, create("x")).format == 1
    assert entry_of("", 0, 0, create("x", 1, "alice")).format == 6


@pytest.mark.parametrize(
    ("kind", "principal", "owner"),
    [
        ("client", "alice/first", "alice"),
        ("client", None, ""),
        ("broker", "node:b/first", "mallory"),
    ],
)
def test_an_owner_is_who_asks(kind: PeerKind, principal: str | None, owner: str) -> None:
    peer = PeerSession(PeerAddress("main", b"x"), "c", kind, 0, 1, 0.0, False, principal)
    command = command_of(peer, Propose(1, 1, "", 0, create("t", 1, "mallory")))
    assert isinstance(command, CreateTopic)
    assert command.owner == owner
    assert command_of(peer, Propose(1, 1, "", 0, Barrier())) == Barrier()
