"""The name server's core: three of them with the real raft, on a simulated network."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from logboom.metadata.config import (
    LEASE_MS,
    SESSION_TIMEOUT_S,
    NameServerListener,
    check_lease,
)
from logboom.metadata.duties import leader_duties
from logboom.metadata.duties.listener_notes import ListenerNotes
from logboom.metadata.raft.log_commands import decode_entry
from logboom.metadata.tables.cluster_state import OPEN, ClusterState
from logboom.wire.access.access_commands import AdmitInitialUsers, EndUserKeys
from logboom.wire.actor import Call
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterIsr,
    AlterTopic,
    Barrier,
    CreateTopic,
    DiscardLostTopic,
    FenceBroker,
    IsrChange,
    NewTerm,
    RegisterBroker,
    RemoveBroker,
    ReportRoom,
)
from logboom.wire.errors import LogboomError, NotLeader, Refused, StartError, Unavailable
from logboom.wire.features import EARLIEST, FEATURES
from logboom.wire.hello import Identity
from logboom.wire.listeners import ListenerView
from logboom.wire.messages import (
    AddNameServer,
    AnyMessage,
    Heartbeat,
    HeartbeatGranted,
    Offsets,
    Ok,
    Propose,
    Proposed,
    RemoveNameServer,
    Stats,
    StatsResult,
    Watch,
    WatchResult,
)
from logboom.wire.view import NameServerView, QueueView, TopicConfig
from tests.unit.metadata.name_servers import RAFT, Asked, Group


def topic(
    name: str = "t", queues: int = 1, replicas: int = 0, config: TopicConfig | None = None
) -> CreateTopic:
    return CreateTopic(name, queues, replicas, config or TopicConfig(), 0)


def beat(group: Group, epochs: dict[str, int], seconds: float) -> None:
    """Heartbeats of live brokers, each second."""
    for _ in range(int(seconds)):
        for broker, epoch in epochs.items():
            assert isinstance(group.heartbeat(broker, epoch), HeartbeatGranted)
        group.run(1.0)


# ── proposals ───────────────────────────────────────────────────────────────────────────────────


def test_a_cluster_is_founded_and_every_name_server_knows() -> None:
    group = Group()
    group.leader()
    group.run(0.5)
    ids = {group.view(name).cluster_id for name in group.processes}
    assert len(ids) == 1
    assert "" not in ids


def test_a_cluster_is_founded_at_the_level_of_its_release() -> None:
    group = Group()
    group.leader()
    group.run(0.5)
    assert {group.view(name).features for name in group.processes} == {FEATURES}


def test_name_servers_that_were_upgraded_write_nothing_that_older_ones_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leader_duties, "FEATURES", EARLIEST)
    group = Group()
    group.register("a")
    names = list(group.processes)
    monkeypatch.undo()
    for _ in range(2):
        for name in names:
            group.kill(name)
        for name in names:
            group.start(name)
        leader = group.leader()
        group.run(0.5)
    assert {group.view(name).features for name in names} == {EARLIEST}
    entries = [*map(decode_entry, group.core(leader).raft.earlier_commands())]
    assert len([entry for entry in entries if isinstance(entry.command, NewTerm)]) >= 2
    assert {entry.format for entry in entries} == {1}


def test_no_topic_allows_messages_that_a_live_broker_does_not_accept() -> None:
    group = Group()
    leader = group.leader()
    epochs = {broker: group.register(broker) for broker in ("a", "b")}
    large, small = TopicConfig(max_message_bytes=9_000), TopicConfig(max_message_bytes=8_000)
    # A broker that does not say accepts all there is.
    assert isinstance(group.heartbeat("a", epochs["a"]), HeartbeatGranted)
    assert group.propose(topic("old", config=large)).code == ""
    for broker, limit in (("a", 20_000), ("b", 8_000)):
        granted = group.heartbeat(broker, epochs[broker], max_request_bytes=limit)
        assert isinstance(granted, HeartbeatGranted)
    for command in (topic("new", config=large), AlterTopic("t", None, large, 0)):
        error = group.ask(leader, Propose(0, 1_000, "me", 1, command))
        assert isinstance(error, LogboomError)
        assert "b accepts requests of at most 8000 bytes" in error.text
        assert "max_request_bytes" in error.text
    assert group.propose(topic("new", config=small)).code == ""
    # What is there already keeps its setting, and its other settings can be changed.
    altered = TopicConfig(max_message_bytes=9_000, retention_ms=5_000_000)
    assert group.propose(AlterTopic("old", None, altered, 0)).code == ""
    # The topics of groups take what their sources took.
    retry = Propose(0, 1_000, "x", 1, topic("%RETRY%g", config=large))
    assert isinstance(group.ask(leader, retry, "broker"), Proposed)


def test_r13_only_the_raft_leader_takes_proposals_and_the_others_name_it() -> None:
    group = Group()
    leader = group.leader()
    group.run(0.5)
    for name in group.followers():
        error = group.ask(name, Propose(0, 1_000, "me", 1, Barrier()))
        assert isinstance(error, NotLeader)
        assert error.fields == {"leader": leader, "endpoint": f"{leader}:7701"}
    assert isinstance(group.ask(leader, Propose(0, 1_000, "me", 1, Barrier())), Proposed)


def test_a_retry_at_the_next_leader_gets_the_first_result() -> None:
    group = Group()
    first = group.propose(AllocateProducerIds(10), proposer="me", number=7)
    group.kill(group.leader())
    again = group.propose(AllocateProducerIds(10), proposer="me", number=7)
    assert again == first
    assert group.propose(AllocateProducerIds(10), proposer="me", number=8).value == 11


@pytest.mark.parametrize("days", [1, 400, -1])
def test_a_retry_gets_the_first_result_though_wall_clocks_jump_meanwhile(days: int) -> None:
    group = Group()
    first = group.propose(AllocateProducerIds(10), proposer="me", number=7)
    for process in group.processes.values():
        process.clock.wall_ahead_ms += days * 86_400_000
    assert group.propose(AllocateProducerIds(10), proposer="you", number=1).value == 11
    assert group.propose(AllocateProducerIds(10), proposer="me", number=7) == first
    group.kill(group.leader())
    assert group.propose(AllocateProducerIds(10), proposer="you", number=2).value == 21
    assert group.propose(AllocateProducerIds(10), proposer="me", number=7) == first


def test_the_logs_time_passes_at_every_leader() -> None:
    group = Group()
    group.propose(AllocateProducerIds(1))
    begun, shown = group.scheduler.now, group.core(group.leader()).cluster.clock_ms
    for killed in (True, False):
        group.run(20.0)
        if killed:
            group.kill(group.leader())
        group.propose(AllocateProducerIds(1))
        passed = group.core(group.leader()).cluster.clock_ms - shown
        assert passed / 1000 == pytest.approx(group.scheduler.now - begun, abs=0.1)


def test_the_logs_time_goes_on_after_a_restart_of_all() -> None:
    group = Group()
    group.propose(AllocateProducerIds(1))
    group.run(20.0)
    group.propose(AllocateProducerIds(1))
    shown = group.core(group.leader()).cluster.clock_ms
    names = list(group.processes)
    for name in names:
        group.kill(name)
    group.run(1_000.0)
    for name in names:
        group.start(name)
    begun = group.scheduler.now
    group.propose(AllocateProducerIds(1))
    passed = group.core(group.leader()).cluster.clock_ms - shown
    assert 0 < passed / 1000 <= group.scheduler.now - begun, "no clock passes while nobody runs"


def test_the_logs_time_goes_on_from_a_snapshot() -> None:
    group = Group(size=1)
    group.propose(AllocateProducerIds(1))
    group.run(20.0)
    # Some of these restarts find a snapshot and nothing behind it.
    for _ in range(RAFT.compact_entries + 2):
        group.propose(AllocateProducerIds(1))
        group.kill("name-1")
        restored = group.start("name-1").cluster.clock_ms
        group.leader()
        assert group.core("name-1").cluster.clock_ms > restored


def test_a_client_cannot_take_the_results_of_a_nodes_proposals() -> None:
    group = Group()
    ours = group.propose(AllocateProducerIds(1), "broker", "broker-1", 1)
    theirs = group.propose(AllocateProducerIds(1), "client", "broker-1", 1)
    assert theirs.value != ours.value


def test_a_proposal_without_a_majority_is_not_answered_as_done() -> None:
    group = Group()
    leader = group.leader()
    for name in group.followers():
        group.kill(name)
    answer = group.ask(leader, Propose(0, 4_000, "me", 1, topic()))
    assert isinstance(answer, LogboomError)
    assert answer.retryable


def test_all_name_servers_lose_power_and_nothing_answered_is_lost() -> None:
    group = Group()
    group.register("b")
    for number in range(40):
        assert group.propose(topic(f"t{number}")).code == ""
    for name in list(group.processes):
        group.kill(name)
    for member in group.members:
        group.start(member.id)
    view = group.view(group.leader())
    assert len(view.topics) == 40
    assert any(disk.snapshot is not None for disk in group.disks.values()), "compaction was on"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (NewTerm(99, "me", "x", 0), "broker"),
        (FenceBroker("b", 1, 1, 0), "broker"),
        (FenceBroker("b", 1, 1, 0), "client"),
        (AdmitInitialUsers([], 0), "broker"),
        (EndUserKeys(0), "broker"),
        (AdmitInitialUsers([], 0), "client"),
        (EndUserKeys(0), "client"),
        (RegisterBroker("b", "s", "i", "h:1", "", False, 0), "client"),
    ],
)
def test_commands_of_others_are_refused(command: NewTerm, kind: str) -> None:
    group = Group(size=1)
    assert kind in ("broker", "client")
    answer = group.ask(
        group.leader(),
        Propose(0, 1_000, "me", 1, command),
        "broker" if kind == "broker" else "client",
    )
    assert isinstance(answer, Refused)
    assert answer.code == "UNAUTHENTICATED"


def test_bad_proposals_are_refused_before_the_log() -> None:
    group = Group(size=1)
    leader = group.leader()
    for message, code in (
        (Propose(0, 1_000, "x" * 129, 1, Barrier()), "INVALID_ARGUMENT"),
        (Propose(0, 1_000, "me", 1, topic("%RETRY%group")), "INVALID_NAME"),
        (Propose(0, 1_000, "me", 1, topic("x" * 70_000)), "TOO_LARGE"),
    ):
        answer = group.ask(leader, message)
        assert isinstance(answer, LogboomError)
        assert answer.code == code


@pytest.mark.parametrize("end", ["tcp://b:1", "u@b:1", "b :1", "*:1", "b:0", "::1:1", "b:²"])
def test_a_broker_that_nobody_can_dial_is_refused_before_the_log(end: str) -> None:
    group = Group(size=1)
    good = RegisterBroker("b", "s", "i", "b:1", "", False, 0, features=FEATURES)
    curve = [ListenerView("main", "b:1", "none"), ListenerView("outside", end, "curve")]
    for command in (
        msgspec.structs.replace(good, endpoint=end),
        msgspec.structs.replace(good, listeners=curve),
    ):
        answer = group.ask(group.leader(), Propose(0, 1_000, "b", 1, command), "broker")
        assert isinstance(answer, LogboomError)
        assert answer.code == "INVALID_ARGUMENT"
        assert "b advertises an address: " in answer.text
        assert "\n" not in answer.text
    assert not group.core(group.leader()).cluster.brokers


def test_r15_a_broker_that_knows_more_than_was_decided_is_refused() -> None:
    """The name servers were restored from a copy that is older than what it knows."""
    group = Group(size=1)
    leader = group.leader()
    group.register("a")
    cluster = group.core(leader).cluster
    good = RegisterBroker("b", "s", "i", "b:1", "", False, 0, features=FEATURES)
    for odd, said in (
        ({"topic_id": cluster.next_topic_id}, "has a replica of topic 1"),
        ({"version": cluster.version + 1}, "knows metadata version"),
    ):
        command = msgspec.structs.replace(good, **odd)
        answer = group.ask(leader, Propose(0, 1_000, "b", 1, command), "broker")
        assert isinstance(answer, LogboomError)
        assert said in answer.text
        assert "recover --restored" in answer.text
    assert "b" not in cluster.brokers
    command = msgspec.structs.replace(
        good, topic_id=cluster.next_topic_id - 1, version=cluster.version
    )
    assert group.propose(command, "broker").code == ""


def test_a_topic_is_given_up_only_after_a_recovery() -> None:
    """An older name server would stop at the command."""
    group = Group(size=1)
    index = group.core(group.leader()).raft.last_index
    answer = group.ask(group.leader(), Propose(0, 1_000, "x", 1, DiscardLostTopic(1)), "operator")
    assert isinstance(answer, LogboomError)
    assert answer.code == "UNKNOWN_TOPIC"
    assert group.core(group.leader()).raft.last_index == index


def test_listeners_that_nobody_can_dial_are_not_noted() -> None:
    cluster, notes = ClusterState(), ListenerNotes()
    good = [ListenerView("main", "n:1", "none")]
    odd = [ListenerView("main", "tcp://n:1", "none")]
    announced = {"name-1": (good, odd), "name-2": (odd, []), "name-3": (good, good)}
    assert [note.name_server for note in notes.take(cluster, announced, {})] == ["name-3"]


def test_a_request_for_a_broker_is_refused_by_name() -> None:
    group = Group(size=1)
    answer = group.ask(group.leader(), Offsets(0, 1_000, "t", [0]))
    assert isinstance(answer, LogboomError)
    assert answer.code == "UNKNOWN_TYPE"
    assert "name server" in answer.text


# ── watch ───────────────────────────────────────────────────────────────────────────────────────


def test_a_held_watch_is_woken_by_the_change_at_every_name_server() -> None:
    group = Group()
    group.register("b")
    group.run(0.5)
    version = group.view(group.leader()).version
    held = {name: group.begin(name, Watch(0, 9_000, version, None, 8_000)) for name in group.disks}
    group.run(1.0)
    assert all(asked.reply is None for asked in held.values())
    group.propose(topic())
    for asked in held.values():
        answer = group.wait(asked)
        assert isinstance(answer, WatchResult)
        assert [t.name for t in answer.view.topics] == ["t"]
        assert not answer.view.full


INSIDE = NameServerListener(name="main", listen="name-2:7701", security="none")
OUTSIDE = NameServerListener(name="outside", listen="name-2:7801", security="curve")
OWN_RAFT = NameServerListener(name="raft", listen="name-2:7721", security="none", for_raft=True)
OTHER_RAFT = NameServerListener(name="raft-2", listen="name-2:7821", security="none", for_raft=True)


def advertised(*listeners: NameServerListener) -> list[NameServerListener]:
    """Listeners as the skin gives them to the core."""
    return [msgspec.structs.replace(each, advertise=each.listen) for each in listeners]


def test_listeners_are_announced_and_each_client_is_told_its_own() -> None:
    group = Group()
    group.leader()
    group.kill("name-2")
    group.start("name-2", listeners=advertised(OUTSIDE, INSIDE, OWN_RAFT))
    everybody = group.processes.values()
    noted = [
        ListenerView("outside", "name-2:7801", "curve"),
        ListenerView("main", "name-2:7701", "none"),
    ]
    wait = group.scheduler.now + 10
    group.scheduler.run(wait, lambda: all(group.core(p.name).cluster.listeners for p in everybody))
    for process in everybody:
        found = group.core(process.name).cluster.listeners["name-2"]
        assert (found.main, [each.endpoint for each in found.raft]) == (noted, ["name-2:7721"])
    # A client that came by "main" is told "main", though another is the first.
    for name in ("name-1", "name-2"):
        told = {server.id: server for server in group.view(name).name_servers}
        assert told["name-2"] == NameServerView("name-2", "name-2:7701")
    # A node is told all.
    answer = group.ask("name-1", Watch(0, 1_500, -1, None, 500), "broker")
    assert isinstance(answer, WatchResult)
    told = {server.id: server for server in answer.view.name_servers}
    assert told["name-2"].listeners == noted
    # Back to one of each.
    group.kill("name-2")
    group.start("name-2")
    group.scheduler.run(
        group.scheduler.now + 10,
        lambda: not any(group.core(p.name).cluster.listeners for p in everybody),
    )
    assert group.view("name-1").name_servers == [
        NameServerView(f"name-{n}", f"name-{n}:7701") for n in (1, 2, 3)
    ]


@pytest.mark.parametrize("all_at_once", [False, True])
def test_the_group_follows_a_raft_listener_that_moves(all_at_once: bool) -> None:
    group = Group()
    group.leader()
    ways = ((INSIDE, OWN_RAFT, OTHER_RAFT), (INSIDE, OTHER_RAFT, OWN_RAFT), (INSIDE, OTHER_RAFT))
    for listeners in ways[2:] if all_at_once else ways:
        group.kill("name-2")
        group.start("name-2", listeners=advertised(*listeners))
        raft = [each.listen for each in listeners if each.for_raft]
        await_raft_listeners(group, raft)


def await_raft_listeners(group: Group, raft: list[str]) -> None:
    """Wait until everybody is linked with everybody, and knows these listeners of name-2."""

    def follows(name: str) -> bool:
        core = group.core(name)
        noted = core.cluster.listeners.get("name-2", OPEN).raft
        return [each.endpoint for each in noted] == raft and core.links.up_count() == 2

    names = list(group.processes)
    group.scheduler.run(group.scheduler.now + 20, lambda: all(map(follows, names)))
    assert all(map(follows, names)), raft


def test_a_watch_ends_exactly_at_its_deadline() -> None:
    group = Group()
    version = group.view(group.leader()).version
    began = group.scheduler.now
    view = group.view(group.leader(), version, wait_ms=730)
    assert view.version == version
    assert not view.full
    assert 0.73 <= group.scheduler.now - began < 0.75


def test_changes_of_other_topics_do_not_wake_a_watch() -> None:
    group = Group()
    group.register("b")
    version = group.propose(topic("mine")).version
    leader = group.leader()
    mine = group.begin(leader, Watch(0, 9_000, version, ["mine"], 8_000))
    group.run(0.2)
    group.propose(topic("other"))
    group.run(0.2)
    assert mine.reply is None
    group.register("b")
    answer = group.wait(mine)
    assert isinstance(answer, WatchResult)
    assert [t.name for t in answer.view.topics] == ["mine"]


def test_r14_a_name_server_behind_the_asked_version_waits() -> None:
    group = Group()
    group.register("b")
    behind = group.followers()[0]
    group.run(0.5)
    old = group.view(behind).version
    group.processes[behind].pause()
    version = group.propose(topic()).version
    assert version > old
    # Its own copy is older when it wakes up; it must catch up before it answers.
    asked = group.begin(behind, Watch(0, 5_000, version - 1, None, 4_000))
    group.run(0.1)
    group.processes[behind].resume()
    answer = group.wait(asked)
    assert isinstance(answer, WatchResult)
    assert answer.view.version >= version


def test_r14_one_that_cannot_catch_up_says_so_and_never_answers_older() -> None:
    group = Group()
    group.run(1.0)
    version = group.view(group.leader()).version
    answer = group.ask(group.leader(), Watch(0, 2_000, version + 1_000, None, 500))
    assert isinstance(answer, Unavailable)
    assert "behind" in answer.text


def test_a_name_server_cut_off_from_the_group_says_so() -> None:
    group = Group()
    alone = group.followers()[0]
    group.run(0.5)
    for other in group.processes:
        if other != alone:
            group.network.block(alone, other)
            group.network.block(other, alone)
    group.run(3.0)
    version = group.core(alone).state.version
    answer = group.ask(alone, Watch(0, 2_000, version, None, 500))
    assert isinstance(answer, Unavailable)
    assert "raft leader" in answer.text


def test_a_read_behind_a_barrier_is_linearizable() -> None:
    group = Group()
    group.register("b")
    slow = group.followers()[0]
    group.processes[slow].pause()
    group.propose(topic())
    version = group.propose(Barrier()).version
    group.processes[slow].resume()
    view = group.view(slow, version - 1)
    assert view.version >= version
    assert [t.name for t in view.topics] == ["t"]


def test_a_lagging_name_server_gets_a_snapshot_and_its_watches_wake() -> None:
    group = Group()
    group.register("b")
    slow = group.followers()[0]
    group.run(0.5)
    version = group.view(slow).version
    group.kill(slow)
    for number in range(80):
        group.propose(topic(f"t{number}"))
    group.start(slow)
    view = group.view(slow, version, wait_ms=4_000)
    assert view.version > version
    assert view.full, "what changed before the snapshot is not known"
    group.run(1.0)
    assert group.core(slow).counters()["raft_snapshots_installed"] == 1
    assert len(group.view(slow).topics) == 80
    states = {group.core(name).state.snapshot() for name in group.processes}
    assert len(states) == 1


# ── heartbeats, sessions, fencing ───────────────────────────────────────────────────────────────


def test_a_silent_broker_is_fenced_after_its_session_and_its_queues_move() -> None:
    group = Group()
    epochs = {broker: group.register(broker) for broker in "abc"}
    group.propose(topic(queues=3, replicas=3))
    beat(group, epochs, 6)
    assert all(b.alive for b in group.view(group.leader()).brokers)
    del epochs["a"]
    silent = group.scheduler.now
    while all(b.alive for b in group.view(group.leader()).brokers):
        for broker, epoch in epochs.items():
            assert isinstance(group.heartbeat(broker, epoch), HeartbeatGranted)
        group.run(0.2)
    assert group.scheduler.now - silent < SESSION_TIMEOUT_S + 0.5
    view = group.view(group.leader())
    assert [b.id for b in view.brokers if not b.alive] == ["a"]
    for queue in view.topics[0].queues:
        assert queue.leader in ("b", "c")
        assert queue.isr == [r for r in queue.replicas if r != "a"]


def test_a_fenced_or_unknown_broker_must_register_again() -> None:
    group = Group()
    epoch = group.register("a")
    for broker, instance in (("a", epoch + 1), ("a", epoch - 1), ("z", 1)):
        answer = group.heartbeat(broker, instance)
        assert isinstance(answer, Refused)
        assert answer.code == "FENCED"
    group.run(SESSION_TIMEOUT_S + 0.5)
    answer = group.heartbeat("a", epoch)
    assert isinstance(answer, Refused)
    assert isinstance(group.heartbeat("a", group.register("a")), HeartbeatGranted)


def test_q11_a_heartbeat_grants_the_lease() -> None:
    group = Group()
    epoch = group.register("a")
    answer = group.heartbeat("a", epoch)
    assert isinstance(answer, HeartbeatGranted)
    assert answer.lease_ms == LEASE_MS
    assert answer.version >= 1


@pytest.mark.parametrize(
    ("lease_ms", "session_s", "fallback_s"),
    [(2_001, 3.0, 1.0), (4_000, 3.0, 1.0), (2_000, 3.0, 1.01), (2_000, 2.9, 1.0), (0, 3.0, -1.0)],
)
def test_q11_no_lease_outlives_the_session(
    lease_ms: int, session_s: float, fallback_s: float
) -> None:
    check_lease(1.0, 2_000, 3.0)
    with pytest.raises(StartError, match="two brokers could lead one queue") as refused:
        check_lease(fallback_s, lease_ms, session_s)
    assert refused.value.code == "BAD_CONFIG"


def test_q11_a_name_server_whose_raft_leader_steps_down_too_late_does_not_start() -> None:
    with pytest.raises(StartError, match=r"fallback of 1\.5 s"):
        Group(raft=replace(RAFT, leader_fallback_s=1.5))


def test_q11_only_a_leader_sure_of_its_majority_grants() -> None:
    group = Group()
    epoch = group.register("a")
    leader = group.leader()
    follower = group.followers()[0]
    assert isinstance(group.heartbeat("a", epoch, follower), NotLeader)
    for other in group.followers():
        group.network.block(leader, other)
        group.network.block(other, leader)
    group.run(1.1)
    answer = group.heartbeat("a", epoch, leader)
    assert isinstance(answer, NotLeader), "its majority may have elected another"


def test_q11_a_leader_that_slept_grants_nothing_in_its_first_turn() -> None:
    group = Group()
    epoch = group.register("a")
    sleeper = group.leader()
    assert isinstance(group.heartbeat("a", epoch, sleeper), HeartbeatGranted)
    group.processes[sleeper].pause()
    beat_late = Heartbeat(0, 9_000, "a", epoch, features=FEATURES)
    asked = group.begin(sleeper, beat_late, "broker", 9.0)
    group.run(2.5)
    group.processes[sleeper].resume()
    assert isinstance(group.wait(asked), NotLeader), "another leads by now"


def test_a_broker_that_registered_anew_has_a_session_of_its_own() -> None:
    group = Group()
    group.register("a")
    group.run(1.0)
    group.register("a")
    group.run(SESSION_TIMEOUT_S - 0.5)
    assert group.view(group.leader()).brokers[0].alive
    group.run(1.0)
    assert not group.view(group.leader()).brokers[0].alive


def test_r13_a_new_raft_leader_grants_full_sessions_first() -> None:
    group = Group()
    group.register("a")
    group.run(SESSION_TIMEOUT_S - 0.3)
    group.kill(group.leader())
    group.leader()
    began = group.scheduler.now
    group.run(SESSION_TIMEOUT_S - 0.5)
    assert group.view(group.leader()).brokers[0].alive, "the silence was the group's own"
    group.run(1.0)
    assert not group.view(group.leader()).brokers[0].alive
    assert group.scheduler.now - began < SESSION_TIMEOUT_S + 1.5


def test_r13_a_loop_that_was_away_grants_full_sessions_first() -> None:
    group = Group(size=1)
    group.register("a")
    leader = group.leader()
    group.processes[leader].pause()
    group.run(5.0)
    group.processes[leader].resume()
    group.run(SESSION_TIMEOUT_S - 0.5)
    assert group.view(leader).brokers[0].alive
    group.run(1.0)
    assert not group.view(leader).brokers[0].alive


def test_r13_a_paused_leader_that_wakes_up_fences_nobody() -> None:
    group = Group()
    epochs = {"a": group.register("a")}
    paused = group.leader()
    group.processes[paused].pause()
    group.run(2.0)
    beat(group, epochs, 4)
    group.processes[paused].resume()
    group.run(1.0)
    beat(group, epochs, 4)
    assert group.view(group.leader()).brokers[0].alive


def test_leaderships_go_home_once_the_preferred_replica_is_safely_back() -> None:
    group = Group(rebalance_after_s=5.0)
    epochs = {broker: group.register(broker) for broker in "abc"}
    group.propose(topic(queues=3, replicas=3))
    epochs["a"] = group.register("a")
    beat(group, epochs, 3)
    leaders = [q.leader for q in group.view(group.leader()).topics[0].queues]
    assert "a" not in leaders
    beat(group, epochs, 5)
    leaders = [q.leader for q in group.view(group.leader()).topics[0].queues]
    assert sorted(str(leader) for leader in leaders) == ["a", "b", "c"]


def test_no_leadership_goes_home_to_a_disk_that_was_full_a_moment_ago() -> None:
    group = Group(rebalance_after_s=5.0)
    epochs = {broker: group.register(broker) for broker in "abc"}
    group.propose(topic(queues=1, replicas=3, config=TopicConfig(min_in_sync=1)))

    def queue() -> QueueView:
        return group.view(group.leader()).topics[0].queues[0]

    home = str(queue().leader)
    group.propose(ReportRoom(home, epochs[home], True, 0), "broker")
    beat(group, epochs, 3)
    assert queue().leader not in (None, home)
    group.propose(ReportRoom(home, epochs[home], False, 0), "broker")
    now, leader = queue(), str(queue().leader)
    members = [(broker, epochs[broker]) for broker in now.replicas]
    topic_id = group.view(group.leader()).topics[0].id
    grow = IsrChange(topic_id, 0, now.leader_epoch, now.version, members)
    group.propose(AlterIsr(leader, epochs[leader], [grow], 0), "broker")
    assert sorted(queue().isr) == ["a", "b", "c"]
    beat(group, epochs, 50)
    assert queue().leader == leader
    beat(group, epochs, 20)
    assert queue().leader == home


@pytest.mark.parametrize(
    ("who", "silent", "home"), [("b", "a", False), ("a", "b", False), ("a", "d", True)]
)
def test_no_leadership_goes_home_between_two_that_do_not_hear_each_other(
    who: str, silent: str, *, home: bool
) -> None:
    group = Group(rebalance_after_s=5.0)
    epochs = {broker: group.register(broker) for broker in "ab"}
    group.propose(topic(queues=1, replicas=2))
    (queue,) = group.view(group.leader()).topics[0].queues
    names = dict(zip("ab", [queue.replicas[0], queue.replicas[1]], strict=True))
    epochs[names["a"]] = group.register(names["a"])

    def leader_after(seconds: int, told: dict[str, list[str]]) -> str | None:
        for _ in range(seconds):
            for broker, epoch in epochs.items():
                group.heartbeat(broker, epoch, unheard=told.get(broker, []))
            group.run(1.0)
        return group.view(group.leader()).topics[0].queues[0].leader

    told = {names[who]: [names.get(silent, silent)]}
    assert leader_after(8, told) == names["a" if home else "b"]
    assert leader_after(3, {}) == names["a" if home else "b"]
    assert leader_after(6, {}) == names["a"]


# ── the group itself ────────────────────────────────────────────────────────────────────────────


def test_r12_a_name_server_joins_and_one_leaves() -> None:
    group = Group()
    group.register("b")
    for number in range(30):
        group.propose(topic(f"t{number}"))
    group.start("name-4")
    request = AddNameServer(0, 5_000, "name-4", "name-4:7701", "name-4:7721")
    assert isinstance(group.ask(group.leader(), request, "operator"), Ok)
    gone = group.followers()[0]
    assert isinstance(group.ask(group.leader(), RemoveNameServer(0, 5_000, gone), "operator"), Ok)
    group.kill(gone)
    group.run(2.0)
    view = group.view("name-4")
    assert len(view.topics) == 30
    assert {n.id for n in view.name_servers} == {*group.disks} - {gone}
    assert group.core("name-4").raft.members == {*group.disks} - {gone}
    again = AddNameServer(0, 5_000, gone, f"{gone}:7701", f"{gone}:7721")
    answer = group.ask(group.leader(), again, "operator")
    assert isinstance(answer, LogboomError)
    assert "never used before" in answer.text


def test_r12_a_name_server_that_was_removed_ends_and_says_why() -> None:
    group = Group()
    group.register("b")
    running, down = group.followers()
    group.kill(down)
    request = AddNameServer(0, 5_000, "name-4", "name-4:7701", "name-4:7721")
    group.start("name-4")
    assert isinstance(group.ask(group.leader(), request, "operator"), Ok)
    for gone in (running, down):
        assert isinstance(
            group.ask(group.leader(), RemoveNameServer(0, 5_000, gone), "operator"), Ok
        )
    group.run(8.0)
    assert "was removed from the group" in group.ended[running]
    # It was down when it was removed: it hears of it when it greets.
    group.start(down)
    group.run(8.0)
    assert "never used before" in group.ended[down]
    assert set(group.ended) == {running, down}


def refused(answer: AnyMessage | LogboomError) -> tuple[str, str]:
    """Code and text of a refusal."""
    assert isinstance(answer, LogboomError)
    return answer.code, answer.text


def test_r12_a_client_without_the_cluster_key_changes_no_membership() -> None:
    group = Group()
    group.register("b")
    group.start("name-4")
    for request in (
        AddNameServer(0, 5_000, "name-4", "name-4:7701", "name-4:7721"),
        RemoveNameServer(0, 5_000, group.followers()[0]),
        Propose(0, 5_000, "me", 1, RemoveBroker("b")),
    ):
        code, text = refused(group.ask(group.leader(), request, "client"))
        assert code == "UNAUTHENTICATED"
        assert "--key-file" in text
    # An operator may remove a broker; this one is alive.
    answer = group.ask(group.leader(), Propose(0, 5_000, "me", 1, RemoveBroker("b")), "operator")
    assert isinstance(answer, Proposed)
    assert "alive" in answer.result.text
    group.run(1.0)
    assert group.core(group.leader()).raft.members == {"name-1", "name-2", "name-3"}


def test_r12_who_holds_another_key_is_told() -> None:
    group = Group()
    group.askers["operator"][0].identity = Identity("wrong", "client", cluster_key=b"another")
    request = RemoveNameServer(0, 5_000, group.followers()[0])
    code, text = refused(group.ask(group.leader(), request, "operator"))
    assert code == "UNAUTHENTICATED"
    assert "key file" in text


def test_r12_an_invented_name_server_is_not_added() -> None:
    group = Group()
    leader = group.leader()
    nobody = AddNameServer(0, 3_000, "name-4", "name-4:7701", "name-4:7721")
    code, text = refused(group.ask(leader, nobody, "operator"))
    assert code == "INVALID_ARGUMENT"
    assert "start it first" in text
    # One of another cluster, and one of another name, are no better.
    group.start("name-4", b"another key")
    assert "key" in refused(group.ask(group.leader(), nobody, "operator"))[1]
    group.start("name-5")
    other = AddNameServer(0, 3_000, "name-6", "name-5:7701", "name-5:7721")
    assert "name-5 answers" in refused(group.ask(group.leader(), other, "operator"))[1]
    assert group.core(group.leader()).raft.members == {"name-1", "name-2", "name-3"}
    assert not group.core(group.leader()).cluster.name_servers
    # What was refused stands in nobody's way.
    real = AddNameServer(0, 3_000, "name-5", "name-5:7701", "name-5:7721")
    assert isinstance(group.ask(group.leader(), real, "operator"), Ok)
    assert group.core(group.leader()).raft.members == {"name-1", "name-2", "name-3", "name-5"}


@pytest.mark.parametrize("name", ["name-4", "name-2"])
@pytest.mark.parametrize("end", ["tcp://name-4:7701", "*:7701", "name-4:0", "ü:1", "n:" + "1" * 90])
def test_r12_an_address_that_nobody_can_dial_is_not_added(name: str, end: str) -> None:
    group = Group()
    good = "name-4:7701"
    for ends in ((end, good), (good, end)):
        request = AddNameServer(0, 3_000, name, *ends)
        code, text = refused(group.ask(group.leader(), request, "operator"))
        assert code == "INVALID_ARGUMENT"
        assert "host:port" in text
        assert "\n" not in text
    assert not group.core(group.leader()).cluster.name_servers
    assert not group.ended


def test_r12_one_change_at_a_time() -> None:
    group = Group()
    group.start("name-4")
    leader = group.leader()
    first = AddNameServer(0, 5_000, "name-4", "name-4:7701", "name-4:7721")
    begun = group.begin(leader, first, "operator")
    other = group.begin(leader, RemoveNameServer(0, 5_000, group.followers()[0]), "operator")
    code, text = refused(group.wait(other))
    assert code == "BUSY"
    assert "name-4 is being added" in text
    assert isinstance(group.wait(begun), Ok)
    again = RemoveNameServer(0, 5_000, group.followers()[0])
    assert isinstance(group.ask(group.leader(), again, "operator"), Ok)


def test_r12_what_would_leave_no_majority_is_refused() -> None:
    group = Group()
    group.register("b")
    running, down = group.followers()
    group.kill(down)
    group.run(3.0)
    code, text = refused(group.ask(group.leader(), RemoveNameServer(0, 5_000, running), "operator"))
    assert code == "NO_MAJORITY"
    assert down in text
    assert isinstance(group.ask(group.leader(), RemoveNameServer(0, 5_000, down), "operator"), Ok)
    assert group.core(group.leader()).raft.members == {group.leader(), running}


def test_r12_a_leader_does_not_remove_itself_but_hands_over() -> None:
    group = Group()
    leader = group.leader()
    group.run(0.5)
    answer = group.ask(leader, RemoveNameServer(0, 5_000, leader), "operator")
    assert isinstance(answer, NotLeader)
    group.run(2.0)
    assert group.leader() != leader
    assert isinstance(group.ask(group.leader(), RemoveNameServer(0, 5_000, leader), "operator"), Ok)


def test_a_graceful_stop_hands_the_raft_leadership_over() -> None:
    group = Group()
    leader = group.leader()
    group.run(0.5)
    group.processes[leader].deliver(Call("stop"))
    began = group.scheduler.now
    group.run(0.6)
    assert group.ended == {leader: ""}
    del group.processes[leader]
    group.leader()
    assert group.scheduler.now - began < 1.0


def test_a_name_server_with_another_key_ends_and_says_why() -> None:
    group = Group()
    group.leader()
    group.kill("name-1")
    group.start("name-1", key=b"another key")
    group.run(3.0)
    assert "same cluster key" in group.ended["name-1"]
    assert set(group.ended) == {"name-1"}


def test_stats_tell_what_the_name_server_holds() -> None:
    group = Group()
    group.register("b")
    group.propose(topic(queues=5))
    answer = group.ask(group.leader(), Stats(0, 1_000))
    assert isinstance(answer, StatsResult)
    assert answer.role == "raft leader"
    wanted = {"brokers_alive": 1, "topics": 1, "queues": 5, "raft_links_up": 2}
    assert wanted.items() <= answer.counters.items()


def test_a_raft_leader_that_has_lost_its_majority_does_not_say_that_it_leads() -> None:
    group = Group()
    leader = group.leader()
    group.run(0.5)
    for name in group.followers():
        group.kill(name)
    group.run(RAFT.leader_fallback_s + 0.01)
    alone = group.ask(leader, Stats(0, 1_000))
    assert isinstance(alone, StatsResult)
    assert alone.role == "name server"
    assert alone.counters["in_touch"] == 0


def test_an_idle_name_server_takes_few_turns() -> None:
    group = Group()
    group.leader()
    group.run(5.0)
    before = group.scheduler.steps
    group.run(10.0)
    steps_per_second = (group.scheduler.steps - before) / 10
    assert steps_per_second < 250, "turns and messages of three name servers together"


def test_a_held_watch_that_is_sent_again_is_answered_once() -> None:
    group = Group()
    version = group.view(group.leader()).version
    leader = group.leader()
    asked: Asked = group.begin(leader, Watch(0, 9_000, version, None, 8_000))
    group.run(0.5)
    group.network.break_between("asking-client", leader)
    group.run(1.5)
    group.register("b")
    answer = group.wait(asked)
    assert isinstance(answer, WatchResult)
    assert answer.view.version > version
