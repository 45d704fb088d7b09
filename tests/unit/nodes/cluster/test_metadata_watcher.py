"""Following the metadata, and telling it on to clients."""

from __future__ import annotations

import msgspec
import pytest

from logboom.wire.actor import Note
from logboom.wire.errors import Unavailable
from logboom.wire.listeners import ListenerView
from logboom.wire.messages import Watch, WatchResult
from logboom.wire.name_servers import KnownServer
from logboom.wire.view import NameServerView, TopicConfig, TopicView, View
from tests.sim.world.storage import SimulatedStorage
from tests.unit.nodes.rig import NAME_SERVER, Rig, Station


def topic(name: str, number: int, version: int = 1) -> TopicView:
    """A topic without queues."""
    return TopicView(name, number, TopicConfig(), [], version)


def watch(version: int, topics: list[str] | None = None, wait_ms: int = 1_000) -> Watch:
    """A client's WATCH."""
    return Watch(0, 5_000, version, topics, wait_ms)


def told(rig: Rig, name: str, request: Watch) -> View | None:
    """What a client is told at once; None: it is held."""
    client = rig.peers.get(rig.client(name).address)
    assert client is not None
    client.ask(request)
    if not client.replies:
        return None
    message = client.answer()
    assert isinstance(message, WatchResult)
    return message.view


def test_a_client_that_knows_nothing_gets_the_whole() -> None:
    rig = Rig()
    rig.publish(topic("a", 1), topic("b", 2))
    view = told(rig, "c", watch(-1))
    assert view is not None
    assert view.full
    assert {t.name for t in view.topics} == {"a", "b"}
    assert {b.id for b in view.brokers} == {"broker-1", "broker-2", "broker-3"}


def test_a_client_gets_what_changed_and_what_went() -> None:
    rig = Rig()
    rig.publish(topic("a", 1), topic("b", 2))
    before = rig.version
    rig.publish(topic("b", 2), topic("c", 3))
    view = told(rig, "c", watch(before))
    assert view is not None
    assert not view.full
    assert view.version == rig.version
    assert "c" in {t.name for t in view.topics}
    assert view.deleted == ["a"]


def test_after_a_whole_nothing_is_told_of_what_went_before() -> None:
    """Simulation, seed 1400564: a topic came and went between the broker's last version and the
    whole it was given; a client that knew the topic was told a delta without its end."""
    rig = Rig()
    rig.publish(topic("a", 1))
    rig.version += 1
    between = rig.version
    rig.publish(topic("a", 1), whole=True)
    view = told(rig, "c", watch(between))
    assert view is not None
    assert view.full


def test_a_client_hears_of_brokers_that_were_removed() -> None:
    rig = Rig()
    rig.publish(topic("a", 1))
    before = rig.version
    waiting = rig.client("waits")
    assert waiting.ask(watch(before, [])) == []
    assert rig.view is not None
    rig.version += 1
    brokers = [broker for broker in rig.view.brokers if broker.id != "broker-3"]
    rig.view = msgspec.structs.replace(
        rig.view, version=rig.version, full=False, brokers=brokers, deleted_brokers=["broker-3"]
    )
    rig.tell()
    assert waiting.answer().view.deleted_brokers == ["broker-3"]
    view = told(rig, "c", watch(before))
    assert view is not None
    assert view.deleted_brokers == ["broker-3"]
    rig.publish(topic("a", 1))
    view = told(rig, "d", watch(before))
    assert view is not None
    assert view.deleted_brokers == [], "it came back"


def test_a_client_that_is_up_to_date_waits_for_its_topics_or_its_time() -> None:
    rig = Rig()
    rig.publish(topic("a", 1))
    client = rig.client()
    assert client.ask(watch(rig.version, ["later"])) == []
    rig.settle(0.9)
    assert client.taken() == []
    rig.settle(0.1)
    view = client.answer().view
    assert not view.full
    assert view.topics == []
    client.ask(watch(rig.version, ["later"], 9_000))
    rig.publish(topic("a", 1), topic("later", 2))
    assert [t.name for t in client.answer().view.topics] == ["later"]


def test_who_waits_at_a_broker_that_hears_no_name_server_is_sent_on() -> None:
    """Chaos, seed 7002: a leader that no node heard any more was replaced, and clients that watched
    at it went on sending to it until the network was whole again."""
    rig = Rig()
    rig.publish(topic("a", 1))
    client = rig.client()
    assert client.ask(watch(rig.version, ["a"])) == []
    rig.granting = False
    rig.settle(1.0)
    assert client.answer().view.topics == [], "within its lease it is as good as any"
    rig.settle(2.0)
    assert client.ask(watch(rig.version, ["a"])) == []
    rig.settle(1.0)
    with pytest.raises(Unavailable, match="ask another node"):
        client.answer()
    # Who begins must begin somewhere: an outage of the raft group is none of the brokers.
    view = told(rig, "new", watch(-1))
    assert view is not None
    assert view.full


def test_it_never_goes_back() -> None:
    rig = Rig()
    rig.publish(topic("a", 1))
    client = rig.client()
    assert client.ask(watch(rig.version + 50)) == []
    rig.settle(1.0)
    with pytest.raises(Unavailable):
        client.answer()


def test_a_broker_without_metadata_says_so_in_time() -> None:
    rig = Rig()
    client = rig.client()
    assert client.ask(watch(-1, wait_ms=200)) == []
    rig.settle(0.2)
    with pytest.raises(Unavailable):
        client.answer()


def test_a_silent_name_server_is_left_for_the_next() -> None:
    rig = Rig()
    rig.publish(topic("a", 1))
    assert rig.ns.count(Watch) == 1
    request = rig.ns.take(Watch)
    assert request.version == rig.version
    # Held longer than it promised: asked again.
    rig.settle(11.1)
    assert rig.ns.count(Watch) >= 1


def test_who_is_refused_asks_once_around_at_full_speed_and_then_gently() -> None:
    rig = Rig()
    rig.publish(topic("a", 1))
    for _ in range(3):
        rig.refuse(rig.ns.take(Watch), Unavailable("not yet"))
        rig.settle(0.05)
    rig.refuse(rig.ns.take(Watch), Unavailable("not yet"))
    rig.settle(0.2)
    assert rig.ns.count(Watch) == 0
    rig.settle(0.1)
    assert rig.ns.count(Watch) == 1


def test_a_name_server_that_holds_back_what_the_raft_leader_knows_is_left() -> None:
    rig = Rig()
    rig.publish(topic("a", 1))
    before = rig.ns.take(Watch)
    rig.settle(1.1)
    # The next heartbeat's grant names a version that this WATCH should have told long ago.
    rig.version += 1
    rig.settle(1.1)
    assert rig.ns.count(Watch) == 1
    assert rig.ns.take(Watch).id != before.id


def test_the_raft_leader_is_watched_once_it_is_heard() -> None:
    rig = Rig(name_servers=[NAME_SERVER, "ns2:7701"])
    rig.lead()
    leader = rig.stations["ns2:7701"] = Station("ns2:7701", "name-2")
    rig.broker.context.servers.accepted("ns2:7701")
    rig.lead()
    assert (rig.ns.count(Watch), leader.count(Watch)) == (1, 0), "no session with it yet"
    rig.settle(2.0)  # a heartbeat begins one
    rig.lead()
    assert (rig.ns.count(Watch), leader.count(Watch)) == (0, 1)
    # Who does not answer is left as any other is.
    cut_off = Unavailable("name-2 reaches no raft leader: ask another name server")
    rig.refuse(leader.take(Watch), cut_off, "ns2:7701")
    rig.settle(0.1)
    assert (rig.ns.count(Watch), leader.count(Watch)) == (1, 0)


def test_a_watch_that_seems_to_lag_is_given_longer_each_time_until_one_is_answered() -> None:
    rig = Rig()
    rig.publish(topic("a", 1))
    behind = rig.broker.routes.version

    def left_after() -> float:
        """Seconds until the WATCH that waits is replaced, while a newer version is told of."""
        rig.ns.asked.clear()
        rig.version += 1
        began = rig.mono
        while not rig.ns.count(Watch):
            rig.settle(0.1)
            rig.within(lambda turn: watcher.heard_of(rig.version, turn))
            assert rig.mono - began < 20.0
        return rig.mono - began

    watcher = rig.broker.parts.metadata_watcher
    assert [round(left_after(), 1) for _ in range(3)] == pytest.approx([0.6, 1.1, 2.1], abs=0.11)
    assert rig.broker.routes.version == behind
    rig.publish(topic("a", 1))
    assert left_after() == pytest.approx(0.6, abs=0.11)


def told_servers(rig: Rig, *servers: NameServerView) -> None:
    """The broker learns of other name servers."""
    rig.publish()
    assert rig.view is not None
    rig.version += 1
    rig.view = msgspec.structs.replace(
        rig.view, version=rig.version, full=False, name_servers=[*servers]
    )
    rig.tell()


def test_name_servers_that_were_added_are_found_from_an_older_configuration() -> None:
    rig = Rig()
    told_servers(rig, NameServerView("name-4", "ns4:7701"), NameServerView("name-5", "ns5:7701"))
    known = rig.broker.known_servers()
    assert known == [KnownServer("ns4:7701"), KnownServer("ns5:7701")]
    # None of those that the configuration lists is left.
    storage = SimulatedStorage("store-1")
    storage.known_servers = known
    later = Rig(storage, incarnation="two", register=False)
    later.ns.silent = True
    later.stations["ns4:7701"] = Station("ns4:7701", "name-4")
    later.stations["ns4:7701"].silent = True
    asked = later.stations["ns5:7701"] = Station("ns5:7701", "name-5")
    later.settle(10.0)
    assert asked.count(Watch)
    assert later.commands


def test_the_keys_of_remembered_name_servers_are_remembered_too() -> None:
    storage = SimulatedStorage("store-1")
    storage.known_servers = [KnownServer("ns4:7701", ["a key"])]
    rig = Rig(storage)
    assert rig.broker.server_keys("ns4:7701") == ["a key"]
    assert not rig.broker.server_keys("ns5:7701")
    rig.stations["ns4:7701"] = Station("ns4:7701", "name-4")
    end = ListenerView("main", "ns4:7701", "curve")
    server = NameServerView("name-4", "ns4:7701", [end], ["a newer key"])
    told_servers(rig, server)
    assert rig.broker.known_servers() == [KnownServer("ns4:7701", ["a newer key"])]


def test_a_broker_without_a_raft_leader_says_which_name_servers_are_silent() -> None:
    rig = Rig(register=False, name_servers=[NAME_SERVER, "ns2:7701", "ns3:7701"])
    rig.stations["ns2:7701"] = Station("ns2:7701", "name-2")
    rig.stations["ns3:7701"] = Station("ns3:7701", "name-3")
    rig.ns.silent = rig.stations["ns3:7701"].silent = True

    def told() -> list[Note]:
        return [each for each in rig.notes if each.event == "name_servers_silent"]

    rig.settle(9.0)
    assert not told()
    rig.settle(3.0)
    (note,) = told()
    assert note.fields["silent"] == [NAME_SERVER, "ns3:7701"]
    assert note.fields["answering"] == ["ns2:7701"]
    assert "a majority elects" in str(note.fields["text"])
    rig.settle(50.0)
    assert len(told()) == 1
    rig.settle(12.0)
    assert len(told()) == 2


def test_a_broker_with_a_lease_says_nothing_of_name_servers() -> None:
    rig = Rig()
    rig.publish()
    rig.settle(30.0)
    assert not [each for each in rig.notes if each.event == "name_servers_silent"]
    rig.granting = False
    rig.settle(20.0)
    (note,) = [each for each in rig.notes if each.event == "name_servers_silent"]
    assert note.fields["answering"] == [NAME_SERVER]
