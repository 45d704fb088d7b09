"""Whom to ask: the raft leader as far as it is known, else one after the other."""

from __future__ import annotations

from logboom.wire.errors import NotLeader, TimedOut, Unavailable
from logboom.wire.name_servers import NameServers
from logboom.wire.routes import Routes
from logboom.wire.view import NameServerView, View


def test_one_after_the_other_until_one_answers() -> None:
    servers = NameServers(["a:1", "b:1", "c:1"])
    asked = []
    for _ in range(4):
        asked.append(servers.leader())
        assert not servers.refused(asked[-1], TimedOut("no answer"))
    assert asked == ["a:1", "b:1", "c:1", "a:1"]
    servers.accepted("c:1")
    assert servers.leader() == "c:1"


def test_a_hint_is_followed_at_once() -> None:
    servers = NameServers(["a:1", "b:1"])
    assert servers.refused("a:1", NotLeader("there", endpoint="b:1"))
    assert servers.leader() == "b:1"
    # Another error may name an endpoint, too, but not that of the leader.
    assert not servers.refused("a:1", NotLeader("there", "NOT_COORDINATOR", endpoint="c:1"))
    assert servers.leader() == "b:1"
    # A hint at itself is none.
    assert not servers.refused("b:1", NotLeader("here?", endpoint="b:1"))


def test_a_late_refusal_by_another_does_not_unseat_the_leader() -> None:
    servers = NameServers(["a:1", "b:1", "c:1"])
    servers.accepted("c:1")
    assert not servers.refused("a:1", TimedOut("no answer"))
    assert servers.leader() == "c:1"


def test_a_leader_that_is_busy_is_asked_again() -> None:
    servers = NameServers(["a:1", "b:1"])
    assert not servers.refused("a:1", Unavailable("later", "BUSY"))
    assert servers.leader() == "a:1"


def test_members_are_learned_from_metadata() -> None:
    servers, routes = NameServers(["a:1"]), Routes()
    members = [NameServerView("name-1", "a:1"), NameServerView("name-2", "b:1")]
    routes.update(View(1, True, "c", [], [], [], [], members, "name-2"))
    servers.learn(routes)
    assert servers.endpoints == ["a:1", "b:1"]
    assert servers.leader() == "b:1"
    assert servers.next_any("b:1") == "a:1"
    # The metadata may be older than an answer, so a leader that is known stays.
    servers.accepted("a:1")
    servers.learn(routes)
    assert servers.leader() == "a:1"
    assert servers.next_any("gone:1") == "a:1"


def test_the_metadata_goes_before_the_endpoint_of_a_hint() -> None:
    """A node has an endpoint for each listener, and the one that refuses may name another."""
    servers, routes = NameServers(["a:1"]), Routes()
    members = [NameServerView("name-1", "a:1"), NameServerView("name-2", "b:1")]
    routes.update(View(1, True, "c", [], [], [], [], members, None))
    servers.learn(routes)
    assert servers.refused("a:1", NotLeader("there", leader="name-2", endpoint="b:9"))
    assert servers.leader() == "b:1"
    assert servers.refused("b:1", NotLeader("there", leader="name-3", endpoint="c:9"))
    assert servers.leader() == "c:9"
    # One that knows of no leader names none.
    assert not servers.refused("c:9", NotLeader("nowhere", leader="name-1", endpoint=None))
