"""The route view goes forward only."""

from collections.abc import Iterable

import pytest
from msgspec import structs

from logboom.wire.errors import UnknownResource
from logboom.wire.routes import Routes
from logboom.wire.transactions import DecisionView, ParkedBatches
from logboom.wire.view import BrokerView, NameServerView, QueueView, TopicConfig, TopicView, View


def topic(name: str, number: int, leader: str | None = "broker-1", epoch: int = 1) -> TopicView:
    queue = QueueView(["broker-1", "broker-2"], leader, epoch, epoch, ["broker-1"], [])
    return TopicView(name, number, TopicConfig(), [queue], epoch)


def view(
    version: int, topics: list[TopicView], *, full: bool = False, deleted: list[str] | None = None
) -> View:
    brokers = [BrokerView("broker-1", "127.0.0.1:7711", "", 1, True, 1)]
    servers = [NameServerView("name-1", "127.0.0.1:7701")]
    return View(version, full, "c", brokers, topics, deleted or [], [], servers, "name-1")


def test_a_delta_changes_only_what_it_names() -> None:
    routes = Routes()
    routes.update(view(1, [topic("a", 1), topic("b", 2)], full=True))
    assert routes.update(view(2, [topic("a", 1, "broker-1", 2)])) == ["a"]
    assert routes.leader("a", 0) == ("broker-1", "127.0.0.1:7711", 2)
    assert routes.leader("b", 0) == ("broker-1", "127.0.0.1:7711", 1)


def test_r14_an_older_view_changes_nothing() -> None:
    routes = Routes()
    routes.update(view(5, [topic("a", 1, "broker-1", 4)], full=True))
    assert routes.update(view(4, [topic("a", 1, "broker-2", 3)], full=True)) == []
    assert routes.update(view(5, [topic("a", 1, None, 3)])) == []
    assert routes.leader("a", 0) == ("broker-1", "127.0.0.1:7711", 4)


def test_a_whole_drops_what_it_does_not_hold() -> None:
    routes = Routes()
    routes.update(view(1, [topic("a", 1), topic("b", 2)], full=True))
    assert sorted(routes.update(view(3, [topic("b", 2)], full=True))) == ["a", "b"]
    assert list(routes.topics) == ["b"]
    assert routes.names == {2: "b"}


def test_a_topic_made_again_has_its_new_id_only() -> None:
    routes = Routes()
    routes.update(view(1, [topic("a", 1)], full=True))
    routes.update(view(2, [topic("a", 9)]))
    assert routes.names == {9: "a"}


def test_deleted_topics_go() -> None:
    routes = Routes()
    routes.update(view(1, [topic("a", 1)], full=True))
    routes.update(view(2, [], deleted=["a"]))
    with pytest.raises(UnknownResource, match="create it with"):
        routes.topic("a")


def test_a_queue_that_is_not_there_says_which_are() -> None:
    routes = Routes()
    routes.update(view(1, [topic("a", 1)], full=True))
    with pytest.raises(UnknownResource, match="queues 0 to 0, not 3") as caught:
        routes.queue("a", 3)
    assert caught.value.code == "UNKNOWN_QUEUE"


def test_no_leader_and_unknown_leader_are_no_route() -> None:
    routes = Routes()
    routes.update(view(1, [topic("a", 1, None), topic("b", 2, "broker-9")], full=True))
    assert routes.leader("a", 0) is None
    assert routes.leader("b", 0) is None


def decisive(version: int, *numbers: int, full: bool = False, ended: Iterable[int] = ()) -> View:
    decided = [DecisionView(n, "app", 1, 1, True, [ParkedBatches(1, version, [])]) for n in numbers]
    shown = view(version, [], full=full)
    return structs.replace(shown, decisions=decided, ended_decisions=list(ended))


def test_decisions_come_and_end_and_a_whole_replaces_them() -> None:
    routes = Routes()
    routes.update(decisive(3, 2, 3, full=True))
    routes.update(decisive(5, 5, ended=[2, 4]))
    assert list(routes.decisions) == [3, 5]
    routes.update(decisive(4, 2, full=True))
    assert list(routes.decisions) == [3, 5], "an older view changes nothing"
    routes.update(decisive(7, 6, full=True))
    assert list(routes.decisions) == [6]
