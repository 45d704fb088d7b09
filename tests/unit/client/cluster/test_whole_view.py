"""All metadata, kept by a client, is what a node would tell anew."""

from __future__ import annotations

import msgspec

from logboom.client.calls import LoadMetadata
from logboom.client.cluster.whole_view import WholeView
from logboom.wire.errors import Unavailable
from logboom.wire.messages import Failure, Watch
from logboom.wire.view import BrokerView, SettingView, TopicConfig, TopicView, View
from tests.unit.client.scripted import Cluster


def topic(name: str, number: int, version: int) -> TopicView:
    return TopicView(name, number, TopicConfig(), [], version)


def broker(name: str, version: int = 1) -> BrokerView:
    return BrokerView(name, f"{name}:1", "", 1, True, version)


WHOLE = View(
    7,
    True,
    "cluster",
    [broker("a"), broker("b")],
    [topic("t", 1, 3), topic("u", 2, 7)],
    [],
    [],
    [],
    "name-1",
    settings=[],
)


def delta(version: int, **changed: object) -> View:
    empty = View(version, False, "cluster", [], [], [], [], [], None)
    return msgspec.structs.replace(empty, **changed)


def held() -> WholeView:
    view = WholeView()
    assert view.update(WHOLE, 0) == WHOLE
    return view


def test_nothing_is_known_before_the_first_answer() -> None:
    view = WholeView()
    assert view.version == -1
    assert view.update(delta(5), 0) is None, "a change of what is not known"
    assert view.update(msgspec.structs.replace(WHOLE, version=-1), -1) is None, "a node without any"


def test_changes_are_added_to_what_is_known() -> None:
    view = held()
    news = delta(
        9,
        topics=[topic("v", 3, 9), topic("t", 4, 8)],
        deleted=["u"],
        deleted_brokers=["a"],
        brokers=[broker("b", 9)],
    )
    found = view.update(news, 9)
    assert found is not None
    assert found.full
    assert (found.version, view.version) == (9, 9)
    assert {each.name: each.id for each in found.topics} == {"t": 4, "v": 3}
    assert found.brokers == [broker("b", 9)]
    assert (found.deleted, found.deleted_brokers) == ([], [])


def test_an_answer_that_is_older_than_asked_for_is_not_enough() -> None:
    view = held()
    assert view.update(delta(8), 9) is None
    assert view.version == 8
    found = view.update(delta(7, topics=[topic("t", 9, 9)]), 8)
    assert found is not None
    assert {each.id for each in found.topics} == {1, 2}, "a delta that comes late changes nothing"


def test_settings_stay_until_one_changes_or_the_user_may_not_see_them_any_more() -> None:
    view = held()
    found = view.update(delta(8), 0)
    assert found is not None
    assert found.settings == []
    setting = SettingView("", "move_bytes_per_s", "5")
    found = view.update(delta(9, settings=[setting]), 0)
    assert found is not None
    assert found.settings == [setting]
    found = view.update(msgspec.structs.replace(WHOLE, version=10, settings=None), 0)
    assert found is not None
    assert found.settings is None


def test_an_older_answer_that_comes_late_takes_nothing_back() -> None:
    view = held()
    setting = SettingView("", "move_bytes_per_s", "5")
    assert view.update(delta(9, settings=[setting], features=1), 0) is not None
    for late in (WHOLE, msgspec.structs.replace(WHOLE, settings=None), delta(8, settings=[])):
        found = view.update(late, 0)
        assert found is not None
        assert (found.version, found.settings, found.features) == (9, [setting], 1)


def test_another_cluster_takes_the_place_of_the_first() -> None:
    view = held()
    other = msgspec.structs.replace(WHOLE, version=2, cluster_id="new", topics=[])
    assert view.update(msgspec.structs.replace(other, full=False), 0) is None
    assert view.update(other, 0) == other
    assert view.version == 2


def load(cluster: Cluster) -> set[str]:
    call = LoadMetadata(5.0, cluster.version)
    cluster.call(call)
    assert cluster.run(6, lambda: call.outcome.done)
    return {each.name for each in call.outcome.get().topics}


def test_the_second_time_only_news_is_asked_for_and_all_of_it_if_a_node_has_none() -> None:
    cluster = Cluster()
    cluster.add_topic("a")
    assert load(cluster) == {"a"}
    first = cluster.version
    cluster.add_topic("b")
    assert load(cluster) == {"a", "b"}
    asked = [each for each in cluster.seen if isinstance(each, Watch) and each.topics is None]
    assert [each.version for each in asked] == [-1, first]

    refused = Failure(0, Unavailable.default_code, "behind", retryable=True)

    def behind(_: str, message: object) -> Failure | None:
        news = isinstance(message, Watch) and message.topics is None and message.version >= 0
        return refused if news else None

    cluster.intercept = behind
    cluster.add_topic("c")
    assert load(cluster) == {"a", "b", "c"}


def test_topics_that_nobody_asks_for_are_not_loaded() -> None:
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.add_topic(name)
    call = LoadMetadata(5.0, cluster.version, ["b", "gone"])
    cluster.call(call)
    assert cluster.run(6, lambda: call.outcome.done)
    assert [each.name for each in call.outcome.get().topics] == ["b"]
