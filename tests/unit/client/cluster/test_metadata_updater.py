"""The metadata is followed, from any node that lives; an unknown topic is known to be unknown."""

from __future__ import annotations

import random

import msgspec
import pytest

from logboom.client.calls import Connect, FindTopic, LoadMetadata, ProposeCommand
from logboom.client.core import ClientConfig, ClientCore
from logboom.wire.actor import Call, Event, HandshakeFailed, Instant
from logboom.wire.commands import CreateTopic
from logboom.wire.errors import (
    LogboomError,
    Refused,
    TimedOut,
    Unauthenticated,
    UnknownResource,
)
from logboom.wire.messages import Failure, Hello, Propose, Watch
from logboom.wire.session import HANDSHAKES_S, REDIAL_LAST_S
from logboom.wire.view import TopicConfig
from tests.unit.client.scripted import BROKERS, NAME_SERVER, Cluster


def find(cluster: Cluster, topic: str, *, create: bool = False) -> FindTopic:
    call = FindTopic(topic, 8.0, create)
    cluster.call(call)
    assert cluster.run(10, lambda: call.outcome.done)
    return call


def test_connect_waits_for_the_first_view() -> None:
    cluster = Cluster()
    call = Connect(10.0)
    cluster.call(call)
    assert cluster.run(1, lambda: call.outcome.done)
    assert cluster.core.watching.routes.version == cluster.version


def test_no_node_is_an_error_that_says_how_to_mend_it() -> None:
    cluster = Cluster()
    cluster.dead.update(BROKERS)
    call = Connect(3.0)
    cluster.call(call)
    assert cluster.run(4, lambda: call.outcome.done)
    assert isinstance(call.outcome.error, TimedOut)
    assert BROKERS[0] in str(call.outcome.error)
    assert "is the cluster up" in str(call.outcome.error)


def test_a_refusal_by_every_node_is_told_without_waiting() -> None:
    cluster = Cluster()
    refusal = Failure(0, "UNSUPPORTED_VERSION", "upgrade", retryable=False)

    def refuse(endpoint: str, message: object) -> Failure | None:
        return refusal if isinstance(message, Hello) else None

    cluster.intercept = refuse
    call = Connect(60.0)
    cluster.call(call)
    assert cluster.run(5, lambda: call.outcome.done)
    assert isinstance(call.outcome.error, Refused)


SHUT_OUT = Failure(0, "UNAUTHENTICATED", "user 'alice' is disabled", retryable=False)


def shut_out(_: str, message: object) -> Failure | None:
    """As a cluster answers a user that it does not know any longer."""
    return None if isinstance(message, Hello) else SHUT_OUT


def test_an_unknown_key_is_told_though_other_nodes_are_silent() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    find(cluster, "t")
    cluster.dead.update(BROKERS[1:])
    cluster.intercept = shut_out
    call = FindTopic("u", 60.0)
    cluster.call(call)
    assert cluster.run(8, lambda: call.outcome.done)
    assert isinstance(call.outcome.error, Unauthenticated)


def test_all_nodes_are_asked_for_their_verdict_without_pauses() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    find(cluster, "t")
    cluster.intercept = shut_out
    call = FindTopic("u", 60.0)
    cluster.call(call)
    assert cluster.run(0.02, lambda: call.outcome.done)
    assert isinstance(call.outcome.error, Unauthenticated)
    cluster.run(10)
    asked = [message for message in cluster.seen if isinstance(message, Watch)]
    assert len(asked) < 50, "and later with pauses"


def test_a_key_that_no_node_accepts_is_told_as_soon_as_by_one_node() -> None:
    """A key of a moment ago may be on its way: that takes its second once, and not at each node."""
    nodes = tuple(f"node-{number}:1" for number in range(9))
    now = Instant(100.0, 0)
    core = ClientCore(ClientConfig(nodes, "client-1", user="alice"), random.Random(1), now)
    call = Connect(60.0)
    events: list[Event] = [Call(call)]
    refused: set[str] = set()
    while not call.outcome.done:
        effects = core.handle(events, now)
        dialled = {str(send.peer) for send in effects.sends}
        refused |= dialled
        due = core.deadline()
        assert due is not None
        # A handshake fails after a millisecond; without one, nothing happens until it is time.
        now = Instant(now.mono + 0.001 if dialled else max(now.mono, due), 0)
        events = [HandshakeFailed(endpoint, "key") for endpoint in dialled]
    assert isinstance(call.outcome.error, Unauthenticated)
    assert refused == set(nodes)
    assert now.mono - 100.0 < HANDSHAKES_S + 2 * REDIAL_LAST_S


def test_who_is_shut_out_later_is_told_by_every_call() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    find(cluster, "t")
    cluster.intercept = shut_out
    find_other, whole = FindTopic("u", 60.0), LoadMetadata(60.0)
    cluster.call(find_other)
    cluster.call(whole)
    assert cluster.run(8, lambda: find_other.outcome.done and whole.outcome.done)
    assert isinstance(find_other.outcome.error, Unauthenticated)
    assert isinstance(whole.outcome.error, Unauthenticated)
    # Enabled again, it goes on.
    cluster.intercept = lambda *_: None
    cluster.add_topic("v")
    assert find(cluster, "v").outcome.error is None


def test_a_dead_node_is_left_for_another() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    find(cluster, "t")
    cluster.dead.add(BROKERS[0])
    cluster.move("t", 0, BROKERS[1])
    routes = cluster.core.watching.routes
    assert cluster.run(4, lambda: routes.version == cluster.version)


def test_only_topics_of_interest_are_asked_for() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    cluster.add_topic("other")
    find(cluster, "t")
    assert set(cluster.core.watching.routes.topics) == {"t"}
    find(cluster, "other")
    assert set(cluster.core.watching.routes.topics) == {"t", "other"}


def test_held_questions_do_not_spin() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    find(cluster, "t")
    cluster.seen.clear()
    cluster.run(10)
    assert 8 <= sum(isinstance(message, Watch) for message in cluster.seen) <= 12


def test_an_unknown_topic_is_asked_of_the_log_before_it_is_called_so() -> None:
    cluster = Cluster()
    call = find(cluster, "nope")
    assert isinstance(call.outcome.error, UnknownResource)
    assert any(isinstance(message, Propose) for message in cluster.seen)


def test_an_unknown_topic_stays_unknown_until_it_is_made() -> None:
    cluster = Cluster()
    for _ in range(2):
        assert isinstance(find(cluster, "nope").outcome.error, UnknownResource)
    cluster.add_topic("nope")
    assert find(cluster, "nope").outcome.get().name == "nope"


def test_a_topic_that_the_asked_node_does_not_know_yet_is_found() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    view, asked = cluster.view, []

    def lagging(version: int, topics: list[str] | None) -> object:
        asked.append(version)
        found = view(version, topics)
        if len(asked) < 3:
            found = type(found)(
                1, True, "cluster", found.brokers, [], [], [], found.name_servers, "name-1"
            )
        return found

    cluster.view = lagging  # type: ignore[method-assign, assignment]  # a node that lags
    assert find(cluster, "t").outcome.get().name == "t"


def test_create_makes_what_is_unknown() -> None:
    cluster = Cluster()
    topic = find(cluster, "new", create=True).outcome.get()
    assert (topic.name, len(topic.queues)) == ("new", 4)


def test_without_name_servers_an_unknown_topic_times_out() -> None:
    cluster = Cluster()
    cluster.dead.add(NAME_SERVER)
    call = find(cluster, "nope")
    assert isinstance(call.outcome.error, TimedOut)


def test_the_whole_view_has_all_topics() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.add_topic(name)
    call = LoadMetadata(5.0, cluster.version)
    cluster.call(call)
    assert cluster.run(6, lambda: call.outcome.done)
    assert {topic.name for topic in call.outcome.get().topics} == {"a", "b"}


def propose(cluster: Cluster, timeout: float = 10.0) -> ProposeCommand:
    call = ProposeCommand(CreateTopic("t", 1, 0, TopicConfig(), 0), timeout)
    cluster.call(call)
    assert cluster.run(timeout + 1, lambda: call.outcome.done)
    return call


def test_a_command_is_retried_under_its_number_and_gets_the_first_result() -> None:
    cluster = Cluster()
    lost: list[Propose] = []

    def lose(_: str, message: object) -> bool | None:
        if isinstance(message, Propose) and len(lost) < 2:
            lost.append(message)
            return False
        return None

    cluster.intercept = lose
    call = propose(cluster)
    assert call.outcome.error is None
    numbers = {(m.proposer, m.number) for m in cluster.seen if isinstance(m, Propose)}
    assert len(numbers) == 1


def test_a_commands_own_error_is_its_outcome() -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    error = propose(cluster).outcome.error
    assert isinstance(error, LogboomError)
    assert error.code == "TOPIC_EXISTS"


def test_a_hint_is_followed() -> None:
    cluster = Cluster()
    fields = {"leader": "name-2", "endpoint": BROKERS[2]}

    def elsewhere(endpoint: str, message: object) -> Failure | None:
        if isinstance(message, Propose) and endpoint == NAME_SERVER:
            return Failure(0, "NOT_LEADER", "name-2 leads", retryable=True, fields=fields)
        return None

    cluster.intercept = elsewhere
    assert propose(cluster).outcome.error is None


def test_no_raft_leader_times_out_with_the_reason() -> None:
    cluster = Cluster()
    refusal = Failure(0, "NOT_LEADER", "no leader now", retryable=True)
    cluster.intercept = lambda _, m: refusal if isinstance(m, Propose) else None
    error = propose(cluster, 3.0).outcome.error
    assert isinstance(error, TimedOut)
    assert "no leader now" in str(error)


def test_another_cluster_under_the_same_address_is_not_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.add_topic("t")
    find(cluster, "t")
    view = cluster.view
    cluster.version += 10
    cluster.view = lambda *a: msgspec.structs.replace(view(*a), cluster_id="other")  # type: ignore[method-assign]  # another cluster
    cluster.run(5)
    assert cluster.core.watching.routes.cluster_id == "cluster"
    assert "another cluster" in caplog.text


@pytest.mark.parametrize("seconds", [0.5, 5.0])
def test_time_does_not_stand_still(seconds: float) -> None:
    cluster = Cluster()
    began = cluster.now
    cluster.run(seconds)
    assert cluster.now == pytest.approx(began + seconds, abs=0.1)
