"""The replicated state: topics, registration, dedup, snapshots, and what always holds."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.metadata.raft.journal_store import JournalError
from logboom.metadata.raft.log_commands import (
    ENTRY_FORMAT,
    ForgetNameServer,
    NoteListeners,
    NoteNameServer,
    entry_of,
)
from logboom.metadata.state.proposal_dedup import KEPT_MS, KEPT_RESULTS
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.state.state_snapshot import SNAPSHOT_FORMAT
from logboom.metadata.tables import replica_set
from logboom.metadata.tables.cluster_state import Queue
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterTopic,
    Barrier,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    FenceBroker,
    NewTerm,
    QueueTail,
    RegisterBroker,
    RemoveBroker,
    ReportDamage,
    ReportRoom,
    ReportTails,
    StepDown,
)
from logboom.wire.features import EARLIEST
from logboom.wire.listeners import ListenerView
from logboom.wire.operation_commands import (
    MODES,
    CancelReassign,
    QueueMove,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.routes import Routes
from logboom.wire.view import TopicConfig
from tests.thorough import examples
from tests.unit.metadata.state.states import Tables, three_brokers

PLAIN = TopicConfig()


def create(name: str = "new", queues: int = 1, replicas: int = 1, **config: Any) -> CreateTopic:
    return CreateTopic(name, queues, replicas, TopicConfig(**config), 0)


# ── topics ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (create("a b"), "INVALID_NAME", "1 to 127"),
        (create(""), "INVALID_NAME", "1 to 127"),
        (create("x" * 128), "INVALID_NAME", "1 to 127"),
        (create(".."), "INVALID_NAME", "'..'"),
        (create("t"), "TOPIC_EXISTS", "exists"),
        (create(queues=0), "INVALID_ARGUMENT", "1 to 1024"),
        (create(queues=1025), "INVALID_ARGUMENT", "1 to 1024"),
        (create(replicas=4), "TOO_FEW_BROKERS", "there are 3"),
        (create(replicas=-1), "INVALID_ARGUMENT", "replicas"),
        (create(replicas=2, min_in_sync=3), "INVALID_ARGUMENT", "min_in_sync"),
        (create(retention_ms=0), "INVALID_ARGUMENT", "retention_ms"),
        (create(retention_bytes=-2), "INVALID_ARGUMENT", "retention_bytes"),
        (create(max_message_bytes=0), "INVALID_ARGUMENT", "max_message_bytes"),
        (AlterTopic("none", 1, None, 0), "UNKNOWN_TOPIC", "does not exist"),
        (AlterTopic("t", 1, TopicConfig(min_in_sync=9), 0), "INVALID_ARGUMENT", "min_in_sync"),
        (DeleteTopic("none", 0), "UNKNOWN_TOPIC", "does not exist"),
        (AllocateProducerIds(0), "INVALID_ARGUMENT", "1 to"),
        (RemoveBroker("a"), "INVALID_ARGUMENT", "alive"),
        (RemoveBroker("z"), "UNKNOWN_BROKER", "not registered"),
        (StepDown("z", 1, 0), "UNKNOWN_BROKER", "not registered"),
        (StepDown("a", 99, 0), "FENCED", "register again"),
        (
            RegisterBroker("Bad!", "s", "i", "h:1", "", False, 0),
            "INVALID_NAME",
            "1 to 64",
        ),
        (RegisterBroker("d", "s", "i", "nowhere", "", False, 0), "INVALID_ARGUMENT", "host:port"),
        (RegisterBroker("d", "", "i", "h:1", "", False, 0), "INVALID_ARGUMENT", "store id"),
        (NewTerm(0, "name-9", "x", 0), "STALE_EPOCH", "too late"),
    ],
)
def test_a_refused_command_says_why_in_one_line_and_changes_nothing(
    command: Any, code: str, says: str
) -> None:
    tables = three_brokers()
    before = tables.state.snapshot()
    result = tables.apply(command)
    assert result.code == code
    assert says in result.text
    assert "\n" not in result.text
    assert tables.state.snapshot() == before


@pytest.mark.parametrize("end", ["tcp://h:1", "u@h:1", "*:1", "ü:1"])
def test_entries_with_endpoints_that_nobody_can_dial_are_applied_as_they_always_were(
    end: str,
) -> None:
    # They are refused before the log since; here, all releases must come to the same state.
    tables = three_brokers()
    listeners = [ListenerView("main", end, "none")]
    for command in (
        RegisterBroker("d", "s", "i", end, "", False, 0, listeners=listeners),
        NoteNameServer("name-4", end, end),
        NoteListeners("name-4", listeners, listeners),
    ):
        assert tables.apply(command).code == ""
    assert tables.state.cluster.brokers["d"].endpoint == end
    assert tables.state.cluster.name_servers["name-4"] == (end, end)
    assert tables.state.cluster.listeners["name-4"].main == listeners


def test_replicas_default_to_three_or_as_many_as_live() -> None:
    tables = three_brokers()
    tables.done(create("x", replicas=0))
    assert len(tables.queue(0, "x").standing.replicas) == 3
    tables.fence("c")
    tables.done(create("y", replicas=0))
    assert len(tables.queue(0, "y").standing.replicas) == 2
    tables.be_older()
    tables.done(create("z", replicas=0))
    assert tables.state.cluster.topics["z"].replicas == 2


@pytest.mark.parametrize(("mode", "wanted"), [("active", 3), ("maintenance", 3), ("draining", 2)])
def test_three_replicas_are_wanted_though_a_broker_is_away(mode: str, wanted: int) -> None:
    tables = three_brokers()
    tables.done(SetBrokerMode("c", mode, 0))
    tables.fence("c")
    tables.done(create("x", replicas=0, min_in_sync=2))
    assert len(tables.queue(0, "x").standing.replicas) == 2
    tables.state.restore(tables.state.snapshot())
    assert tables.state.cluster.topics["x"].replicas == wanted
    # Who names a number gets that, or a refusal.
    tables.done(create("y", replicas=2))
    assert tables.state.cluster.topics["y"].replicas == 2


def on_hosts(**hosts: str) -> Tables:
    """Brokers on these hosts."""
    tables = Tables()
    tables.begin()
    for broker, host in hosts.items():
        tables.register(broker, host=host)
    return tables


def test_a_host_gets_no_two_replicas_of_a_queue() -> None:
    tables = on_hosts(a="one", b="one", c="two", d="two", e="")
    tables.done(create("x", queues=10, replicas=0))
    host_of = {"a": "one", "b": "one", "c": "two", "d": "two", "e": "e"}
    queues = tables.state.cluster.topics["x"].queues
    for queue in queues:
        assert {host_of[b] for b in queue.standing.replicas} == {"one", "two", "e"}
    assert {queue.standing.leader for queue in queues} == set("abcde")
    # Of the host `one` only b is left, which is enough; without it, it is not.
    tables.fence("a")
    tables.done(AlterTopic("x", 12, None, 0))
    assert all("b" in queue.standing.replicas for queue in queues[10:])
    tables.fence("b")
    refused = tables.apply(create("y", replicas=3))
    assert refused.code == "TOO_FEW_BROKERS"
    assert "3 replicas need 3 machines, the 3 live brokers are on 2" in refused.text
    assert tables.apply(AlterTopic("x", 13, None, 0)).code == "TOO_FEW_BROKERS"
    tables.done(create("y", replicas=0))
    assert len(tables.queue(0, "y").standing.replicas) == 2


def test_full_disks_are_avoided_only_where_the_other_hosts_suffice() -> None:
    tables = on_hosts(a="one", b="one", c="two")
    tables.report_room("c", full=True)
    tables.done(create("x", queues=4, replicas=2))
    for queue in tables.state.cluster.topics["x"].queues:
        assert len({*queue.standing.replicas} & {"a", "b"}) == 1
    tables.done(create("y", queues=4, replicas=1))
    assert {q.standing.leader for q in tables.state.cluster.topics["y"].queues} == {"a", "b"}


def test_hosts_are_part_of_the_state_and_change_with_the_next_registration() -> None:
    tables = on_hosts(a="one", b="one")
    tables.be_older()
    snapshot = tables.state.snapshot()
    assert msgspec.msgpack.decode(snapshot)[0] == 5
    twin = Tables()
    twin.state.restore(snapshot)
    assert {b.id: b.host for b in twin.state.cluster.brokers.values()} == {"a": "one", "b": "one"}
    assert twin.state.snapshot() == snapshot
    tables.register("a")
    tables.register("b")
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 1
    # A name server that would place replicas without regard to hosts stops instead.
    alone = RegisterBroker("a", "s", "i", "h:1", "", False, 0)
    assert entry_of("", 0, 0, alone).format == 1
    shared = msgspec.structs.replace(alone, host="one")
    assert entry_of("", 0, 0, shared).format == 5
    tables.done(create("x", replicas=2))


OPEN = ListenerView("inside", "a.test:7711", "none")
CURVE = ListenerView("outside", "a.test:7712", "curve")


def test_listeners_are_part_of_the_state_and_change_with_the_next_registration() -> None:
    tables = Tables()
    tables.begin(features=EARLIEST)
    tables.register("a", host="one", listeners=[OPEN, CURVE])
    tables.register("b")
    note = NoteListeners("name-1", [OPEN], [CURVE])
    tables.done(note)
    cluster = tables.state.cluster
    assert cluster.broker_view(cluster.brokers["a"]).listeners == [OPEN, CURVE]
    assert cluster.listeners == {"name-1": ([OPEN], [CURVE])}
    version = cluster.version
    tables.done(note)
    assert cluster.version == version
    snapshot = tables.state.snapshot()
    assert msgspec.msgpack.decode(snapshot)[0] == 6
    twin = Tables()
    twin.state.restore(snapshot)
    assert twin.state.cluster.brokers["a"].listeners == [OPEN, CURVE]
    assert twin.state.cluster.brokers["a"].host == "one"
    assert twin.state.cluster.brokers["b"].listeners == []
    assert twin.state.cluster.listeners == cluster.listeners
    assert twin.state.snapshot() == snapshot
    # Back to a single open one, the state is as older versions have it.
    tables.register("a")
    tables.done(NoteListeners("name-1", [], []))
    assert cluster.listeners == {}
    assert msgspec.msgpack.decode(tables.state.snapshot())[0] == 1
    # Older name servers stop, because they would not show the listeners.
    alone = RegisterBroker("a", "s", "i", "h:1", "", False, 0)
    assert entry_of("", 0, 0, msgspec.structs.replace(alone, listeners=[OPEN])).format == 6
    assert entry_of("", 0, 0, note).format == 6


@pytest.mark.parametrize(
    "listeners",
    [
        [ListenerView("inside", "nowhere", "none")],
        [ListenerView("inside", "h:1", "plain")],
        [OPEN] * 9,
    ],
)
def test_impossible_listeners_are_refused(listeners: list[ListenerView]) -> None:
    tables = Tables()
    tables.begin()
    command = RegisterBroker("a", "s", "i", "h:1", "", False, 0, "", listeners)
    assert tables.apply(command).code == "INVALID_ARGUMENT"
    assert tables.apply(NoteListeners("name-1", [], listeners)).code == "INVALID_ARGUMENT"
    assert tables.state.cluster.brokers == {}
    assert tables.state.cluster.listeners == {}


def test_listeners_of_a_removed_name_server_are_forgotten() -> None:
    tables = Tables()
    tables.begin()
    tables.done(NoteListeners("name-2", [OPEN], [CURVE]))
    tables.done(ForgetNameServer("name-2"))
    tables.done(NoteListeners("name-2", [OPEN], [CURVE]))
    assert tables.state.cluster.listeners == {}


def test_without_any_broker_no_topic() -> None:
    tables = Tables()
    tables.begin()
    assert tables.apply(create()).code == "TOO_FEW_BROKERS"


def test_the_id_of_a_deleted_topic_is_never_used_again() -> None:
    tables = three_brokers()
    first = tables.queue().topic.id
    tables.done(DeleteTopic("t", 0))
    assert all(not broker.queues for broker in tables.state.cluster.brokers.values())
    second = tables.done(create("t")).value
    assert isinstance(second, int)
    assert second > first


def test_queues_can_only_grow_and_stay_spread() -> None:
    tables = three_brokers()
    tables.done(AlterTopic("t", 9, None, 0))
    queues = tables.state.cluster.topics["t"].queues
    assert [q.index for q in queues] == list(range(9))
    leaders = [q.standing.leader for q in queues]
    assert {leaders.count(broker) for broker in "abc"} == {3}
    assert tables.apply(AlterTopic("t", 8, None, 0)).code == "INVALID_ARGUMENT"


def test_producer_ids_are_given_once() -> None:
    tables = Tables()
    assert tables.done(AllocateProducerIds(1000)).value == 1
    assert tables.done(AllocateProducerIds(1)).value == 1001


def test_a_fenced_broker_without_replicas_can_be_removed() -> None:
    tables = three_brokers()
    tables.register("d")
    tables.fence("d")
    tables.fence("a")
    tables.done(create("alone", 1, replicas=1))
    (alone,) = tables.state.cluster.topics["alone"].queues
    keeper = alone.standing.leader
    assert keeper is not None
    tables.fence(keeper)
    refused = tables.apply(RemoveBroker(keeper))
    assert refused.code == "INVALID_ARGUMENT", "it holds the only replica of a queue"
    version = tables.state.version
    tables.done(RemoveBroker("d"))
    view = view_since(tables.state.cluster, version, None, [], None)
    assert view.deleted_brokers == ["d"]
    assert tables.register("d") > tables.epochs["c"], "instance epochs go on growing"


def test_the_cluster_is_founded_once() -> None:
    tables = Tables()
    tables.done(NewTerm(1, "name-1", "first", 0))
    tables.done(NewTerm(2, "name-2", "second", 0))
    assert tables.state.cluster.cluster_id == "first"


def test_r9_the_id_of_a_removed_name_server_is_not_used_again() -> None:
    tables = Tables()
    joins = NoteNameServer("name-4", "h:1", "h:2")
    tables.done(joins)
    tables.done(joins)
    tables.done(ForgetNameServer("name-4"))
    assert tables.apply(joins).code == "INVALID_ARGUMENT"


# ── dedup ───────────────────────────────────────────────────────────────────────────────────────


def test_a_proposal_sent_again_gets_the_first_result() -> None:
    tables = Tables()
    first = tables.apply(AllocateProducerIds(10), "me", 1)
    assert tables.apply(AllocateProducerIds(10), "me", 1) == first
    assert tables.apply(AllocateProducerIds(10), "me", 2).value == 11
    assert tables.apply(AllocateProducerIds(10), "you", 1).value == 21


def test_the_first_result_survives_a_snapshot() -> None:
    tables = Tables()
    first = tables.apply(AllocateProducerIds(10), "me", 1)
    snapshot, tables.state = tables.state.snapshot(), StateMachine()
    tables.state.restore(snapshot)
    assert tables.apply(AllocateProducerIds(10), "me", 1) == first


def test_only_the_last_results_of_a_proposer_are_kept() -> None:
    tables = Tables()
    for number in range(1, KEPT_RESULTS + 2):
        tables.apply(AllocateProducerIds(1), "me", number)
    assert tables.apply(AllocateProducerIds(1), "me", 2).value == 2
    again = tables.apply(AllocateProducerIds(1), "me", 1)
    assert again.code == "CONFLICT", "neither applied again nor answered wrongly"
    assert tables.done(AllocateProducerIds(1)).value == KEPT_RESULTS + 2


def test_silent_proposers_are_forgotten_by_the_time_in_the_commands() -> None:
    tables = Tables()
    tables.apply(Barrier(), "me", 1, time_ms=1_000)
    tables.apply(Barrier(), "you", 1, time_ms=1_000 + KEPT_MS)
    assert set(tables.state.dedup.windows) == {"me", "you"}
    tables.apply(Barrier(), "you", 2, time_ms=1_001 + KEPT_MS)
    assert set(tables.state.dedup.windows) == {"you"}


# ── hostile and newer bytes ─────────────────────────────────────────────────────────────────────


def test_malformed_entries_are_answered_and_change_nothing() -> None:
    state = StateMachine()
    before = state.snapshot()
    for junk in (b"", b"\xc1", b"\x93\x01\x02\x03", msgspec.msgpack.encode([1, "", 0, 0, ["x"]])):
        assert b"MALFORMED" in state.apply(junk)
    assert state.snapshot() == before


def test_an_entry_of_a_newer_format_stops_the_node() -> None:
    newer = msgspec.msgpack.encode([ENTRY_FORMAT + 1, {"all": "new"}])
    with pytest.raises(JournalError, match="upgrade"):
        StateMachine().apply(newer)


def test_full_disks_make_another_format_only_while_there_are_any() -> None:
    tables = three_brokers()
    tables.be_older()
    before = tables.state.snapshot()
    tables.report_room("b", full=True)
    snapshot = tables.state.snapshot()
    assert msgspec.msgpack.decode(snapshot)[0] == 4
    twin = Tables()
    twin.state.restore(snapshot)
    assert twin.state.cluster.full == {"b"}
    assert twin.state.snapshot() == snapshot
    tables.report_room("b", full=False)
    assert (
        msgspec.msgpack.decode(tables.state.snapshot())[0] == msgspec.msgpack.decode(before)[0] == 1
    )
    assert entry_of("", 0, 0, ReportRoom("b", 1, True, 0)).format == 4


def test_a_snapshot_of_a_newer_format_is_refused() -> None:
    with pytest.raises(JournalError, match="upgrade"):
        StateMachine().restore(msgspec.msgpack.encode([SNAPSHOT_FORMAT + 1, "whatever"]))
    with pytest.raises(JournalError, match="malformed"):
        StateMachine().restore(b"\x91\x01")


# ── what always holds ───────────────────────────────────────────────────────────────────────────

BROKERS = "abcd"
steps = st.lists(
    st.tuples(st.integers(0, 22), st.integers(0, 3), st.integers(0, 1_000)), max_size=60
)


def random_command(tables: Tables, kind: int, who: int, dice: int) -> None:
    """One more thing that may happen, in whatever state the tables are."""
    broker = BROKERS[who]
    cluster = tables.state.cluster
    registered = broker in tables.epochs
    # By name: a restored state may hold its tables in another order.
    queues = [q for _, topic in sorted(cluster.topics.items()) for q in topic.queues]
    queue = queues[dice % len(queues)] if queues else None
    subset = [b for n, b in enumerate(BROKERS) if dice >> n & 1 and b in tables.epochs]
    match kind:
        case 0 | 1:
            host = "shared" if broker in "cd" else ""
            store = f"{broker}{dice % 5 == 0}"
            tables.register(broker, store, suspect=dice % 4 == 0, host=host)
        case 2 | 3 if registered:
            tables.apply(FenceBroker(broker, tables.epochs[broker], 1, 0))
        case 4 if registered:
            tables.apply(StepDown(broker, tables.epochs[broker], 0))
        case 5:
            config = TopicConfig(min_in_sync=dice % 3, unclean_election=dice % 7 == 0)
            tables.apply(CreateTopic(f"t{dice % 3}", 1 + dice % 3, dice % 4, config, 0))
        case 6:
            config = TopicConfig(min_in_sync=dice % 3, unclean_election=dice % 7 == 0)
            tables.apply(AlterTopic(f"t{dice % 3}", 1 + dice % 5, config, 0))
        case 7 if dice % 4 == 0:
            tables.apply(DeleteTopic(f"t{dice % 3}", 0))
        case 8 | 9 | 10 if queue is not None and queue.standing.leader is not None:
            leader = queue.standing.leader
            isr = {leader, *subset} & set(queue.standing.replicas)
            tables.change_isr(*isr, name=queue.topic.name, index=queue.index)
        case 11 if queue is not None:
            name = queue.topic.name
            prefer = broker if dice % 2 else None
            tables.apply(ElectLeader(name, queue.index, prefer, 0))
        case 12 if queue is not None and registered and cluster.brokers[broker].alive:
            where = [(queue.topic.id, queue.index)]
            tables.apply(_damage(broker, tables.epochs[broker], where, dice % 3 == 0))
        case 13 if queue is not None and registered and cluster.brokers[broker].alive:
            tables.apply(_tail(broker, tables.epochs[broker], queue.topic.id, queue.index, dice))
        case 14 | 15 if registered:
            tables.apply(ReportRoom(broker, tables.epochs[broker], dice % 3 > 0, 0))
        case 16 | 17 | 18 if queue is not None and subset:
            version = queue.version if dice % 2 else -1
            target = subset[dice % 3 :] + subset[: dice % 3]
            move = QueueMove(queue.topic.id, queue.index, version, target)
            tables.apply(Reassign([move], 0, force=dice % 5 == 0))
        case 19 if queue is not None:
            tables.apply(CancelReassign([(queue.topic.id, queue.index)], 0))
        case 20:
            mode = (*MODES, "active", "active")[dice % 6]
            tables.apply(SetBrokerMode(broker, mode, 0))
        case 21:
            tables.apply(AlterTopic(f"t{dice % 3}", None, None, 0, 1 + dice % 4))
        case 22 if registered:
            gone = tables.apply(RemoveBroker(broker, accept_loss=dice % 2 == 0))
            if not gone.code:
                del tables.epochs[broker]
        case _:
            pass


def _damage(broker: str, epoch: int, where: list[tuple[int, int]], mended: bool) -> Any:
    return ReportDamage(broker, epoch, where, mended, 0)


def _tail(broker: str, epoch: int, topic_id: int, queue: int, dice: int) -> Any:
    return ReportTails(broker, epoch, [QueueTail(topic_id, queue, dice % 3, dice, 0)], 0)


def check(tables: Tables, epochs: dict[tuple[int, int], tuple[int, int, str | None]]) -> None:
    """The invariants, and that epochs only grow."""
    cluster = tables.state.cluster
    for topic in cluster.topics.values():
        for queue in topic.queues:
            s = queue.standing
            assert s.isr
            assert set(s.isr) <= set(s.replicas)
            for replicas in (s.target, s.original):
                assert replicas
                assert not {"c", "d"} <= set(replicas) or not cluster.brokers["c"].host
            assert not set(s.adding) & set(s.removing)
            assert {*s.adding, *s.original} == set(s.replicas)
            assert s.replicas == (*s.target, *s.removing)
            assert s.leader not in s.uncounted
            if s.moving and s.leader in s.isr and s.leader in s.target:
                stuck = {*s.suspect, *s.damaged, *s.lost}
                assert not set(s.target) <= set(s.isr) - stuck, "a move that is done has ended"
            assert set(s.eligible) <= set(s.replicas)
            assert not set(s.isr) & set(s.eligible)
            assert not s.eligible or len(s.isr) < queue.need, "eligible only below min_in_sync"
            assert s.leader is None or (s.leader in s.isr and s.leader in cluster.alive)
            assert s.leader not in s.lost or s.leader is None
            assert (queue in cluster.displaced) == s.displaced
            assert (queue in cluster.leaderless) == (s.leader is None)
            for replica in s.replicas:
                assert queue in cluster.brokers[replica].queues
            where = (topic.id, queue.index)
            epoch, version, leader = epochs.get(where, (0, 0, None))
            assert queue.epoch >= epoch
            assert queue.version >= version
            if s.leader != leader:
                assert queue.epoch > epoch, "a leadership has an epoch of its own"
            epochs[where] = (queue.epoch, queue.version, s.leader)
    assert cluster.full <= cluster.alive
    assert cluster.alive == {b.id for b in cluster.brokers.values() if b.alive}
    if cluster.full:
        check_room(tables)


def check_room(tables: Tables) -> None:
    """Where others have room, brokers with full disks neither lead nor are waited for.

    That holds once they have reported again, as they do every few seconds: a new queue may be
    placed on a broker with a full disk, and another broker may have room since it registered.
    """
    twin = Tables()
    twin.epochs = tables.epochs
    twin.state.restore(tables.state.snapshot())
    cluster = twin.state.cluster
    for broker in sorted(cluster.full):
        twin.report_room(broker, full=True)
    for topic in cluster.topics.values():
        for queue in topic.queues:
            s = queue.standing
            room = [r for r in s.isr if r not in cluster.full]
            if len(room) < min(queue.need, len(s.isr)):
                continue
            stuck = {*s.suspect, *s.damaged, *s.lost}
            fit = [r for r in room if r in cluster.alive and r not in stuck]
            if s.leader in cluster.full:
                assert not fit
            else:
                assert s.leader is None or len(room) == len(s.isr)


def play(script: list[tuple[int, int, int]], see: Callable[[Tables], None]) -> Tables:
    tables = Tables()
    tables.begin()
    for kind, who, dice in script:
        random_command(tables, kind, who, dice)
        see(tables)
    return tables


@settings(max_examples=examples(300), deadline=None)
@example([(0, 0, 0), (0, 1, 0), (14, 0, 1), (5, 0, 748)])
@given(steps)
def test_whatever_happens_the_invariants_hold(script: list[tuple[int, int, int]]) -> None:
    epochs: dict[tuple[int, int], tuple[int, int, str | None]] = {}
    play(script, lambda tables: check(tables, epochs))


@settings(max_examples=examples(100), deadline=None)
@given(steps, steps)
def test_a_restored_state_is_equal_and_goes_on_equally(
    first: list[tuple[int, int, int]], then: list[tuple[int, int, int]]
) -> None:
    tables = play(first, lambda _: None)
    twin = Tables()
    twin.epochs = dict(tables.epochs)
    twin.state.restore(tables.state.snapshot())
    twin.incarnations = tables.incarnations
    assert twin.state.snapshot() == tables.state.snapshot()
    for kind, who, dice in then:
        random_command(tables, kind, who, dice)
        random_command(twin, kind, who, dice)
        assert twin.state.snapshot() == tables.state.snapshot()
    epochs: dict[tuple[int, int], tuple[int, int, str | None]] = {}
    check(twin, epochs)


@settings(max_examples=examples(100), deadline=None)
@given(steps, st.integers(1, 9))
def test_deltas_lead_to_the_same_view_as_the_whole(
    script: list[tuple[int, int, int]], every: int
) -> None:
    routes = Routes()
    seen = 0

    def watch(tables: Tables) -> None:
        nonlocal seen
        seen += 1
        if seen % every == 0:
            routes.update(view_since(tables.state.cluster, routes.version, None, [], None))

    tables = play(script, watch)
    cluster = tables.state.cluster
    routes.update(view_since(cluster, routes.version, None, [], None))
    whole = Routes()
    whole.update(view_since(cluster, -1, None, [], None))
    assert routes.topics == whole.topics
    assert routes.brokers == whole.brokers
    assert routes.names == whole.names
    assert routes.version == whole.version


def test_an_emptied_cache_changes_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two name servers one may have run for so long that it has emptied its cache."""
    tables = three_brokers()
    twin = StateMachine()
    twin.restore(tables.state.snapshot())
    monkeypatch.setattr(replica_set, "_interned", {})
    tables.done(AlterTopic("t", None, TopicConfig(retention_ms=5_000), 0))
    before = twin.cluster.topics["t"].queues[0].version
    assert tables.queue().version == before


def test_a_delta_holds_only_what_changed_and_only_what_is_asked_for() -> None:
    tables = three_brokers()
    tables.create("u")
    tables.create("v")
    version = tables.state.version
    tables.done(AlterTopic("u", 2, None, 0))
    tables.done(DeleteTopic("v", 0))
    view = view_since(tables.state.cluster, version, None, [], None)
    assert ([t.name for t in view.topics], view.deleted, view.brokers) == (["u"], ["v"], [])
    assert not view.full
    view = view_since(tables.state.cluster, version, {"t"}, [], None)
    assert (view.topics, view.deleted) == ([], [])
    assert view.version == tables.state.version


def test_after_a_restore_an_older_version_gets_the_whole() -> None:
    tables = three_brokers()
    version = tables.state.version
    tables.done(DeleteTopic("t", 0))
    snapshot, tables.state = tables.state.snapshot(), StateMachine()
    tables.state.restore(snapshot)
    cluster = tables.state.cluster
    assert view_since(cluster, version, None, [], None).full
    assert not view_since(cluster, tables.state.version, None, [], None).full


def test_a_deleted_topic_leaves_no_garbage_that_only_a_collection_finds() -> None:
    tables = three_brokers()
    name = "short-lived"
    tables.create(name, queues=8)

    def held() -> int:
        return sum(type(each) is Queue and each.topic.name == name for each in gc.get_objects())

    gc.disable()
    try:
        assert held() == 8
        tables.done(DeleteTopic(name, 0))
        assert held() == 0
    finally:
        gc.enable()
