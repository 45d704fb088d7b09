"""A survivor that goes on alone: what counts up is above whatever was lost, log ends decide (R15)."""

from __future__ import annotations

from logboom.metadata.raft.log_commands import GoOnAlone, NoteNameServer, entry_of
from logboom.metadata.state.state_machine import StateMachine
from logboom.metadata.watch.watch_views import view_since
from logboom.wire.commands import (
    AllocateProducerIds,
    AlterTopic,
    CreateTopic,
    DiscardLostTopic,
    QueueTail,
    RemoveBroker,
    ReportTails,
)
from logboom.wire.transactions import OpenApplication
from logboom.wire.view import TopicConfig
from tests.unit.metadata.groups.tables import GroupTables
from tests.unit.metadata.state.states import Tables

BROKERS = ("a", "b", "c")
LOST = 100_000
"""Commands that the survivor lacks."""


def cluster(replicas: int = 3, config: TopicConfig | None = None) -> Tables:
    tables = Tables()
    tables.begin()
    for broker in BROKERS:
        tables.register(broker)
    tables.done(CreateTopic("t", 1, replicas, config or TopicConfig(), 0))
    return tables


def copy_of(tables: Tables) -> Tables:
    copy = Tables()
    copy.state.restore(tables.state.snapshot())
    copy.epochs = dict(tables.epochs)
    copy.incarnations = tables.incarnations + 1_000
    return copy


def report(tables: Tables, broker: str, *tail: int, topic: str = "t") -> None:
    """Report a log end (last epoch, offset), or that there is no log."""
    topic_id = tables.state.cluster.topics[topic].id
    tails = [QueueTail(topic_id, 0, tail[0], tail[1], 0)] if tail else []
    tables.done(ReportTails(broker, tables.epochs[broker], tails, 0, True))


def recovered(tables: Tables, *back: str) -> Tables:
    """The same after a recovery; these brokers have registered again."""
    tables.done(GoOnAlone())
    for broker in back:
        tables.register(broker)
    return tables


def leader(tables: Tables) -> str | None:
    return tables.queue().standing.leader


def test_everything_that_counts_up_is_above_what_was_lost() -> None:
    survivor = cluster()
    survivor.done(OpenApplication("app", 0))
    lost = copy_of(survivor)
    for number in range(200):
        lost.done(CreateTopic(f"lost{number}", 1, 1, TopicConfig(), 0))
        lost.done(AllocateProducerIds(1_000))
        lost.done(OpenApplication("app", 0))
        lost.register("a")
    gone, now = lost.state.cluster, recovered(survivor).state.cluster
    assert now.version > gone.version + LOST
    assert now.next_topic_id > gone.next_topic_id + LOST
    assert now.next_producer_id > gone.next_producer_id + LOST
    assert now.next_instance_epoch > gone.next_instance_epoch + LOST
    assert now.groups.next_id > gone.groups.next_id + LOST
    assert now.groups.first_epoch > LOST
    assert now.transactions.apps["app"].epoch > gone.transactions.apps["app"].epoch + LOST
    before, after = gone.topics["t"].queues[0], now.topics["t"].queues[0]
    assert after.epoch > before.epoch + LOST
    assert after.version > before.version + LOST
    survivor.register("a")
    survivor.done(CreateTopic("later", 1, 1, TopicConfig(), 0))
    assert now.topics["later"].queues[0].epoch > before.epoch + LOST
    assert all(
        first <= topic.id < end
        for topic in gone.topics.values()
        if topic.name != "t"
        for first, end in now.lost_topic_ids
    )
    # All numbers leave room for a hundred of these.
    for _ in range(99):
        survivor.done(GoOnAlone())
    assert now.topics["t"].queues[0].epoch < 1 << 31
    assert now.next_topic_id < 1 << 32
    assert now.version < 1 << 53


def test_r15_epochs_of_groups_are_above_what_was_lost() -> None:
    survivor = GroupTables()
    survivor.join("m")
    survivor.settle()
    lost = GroupTables()
    lost.state.restore(survivor.state.snapshot())
    lost.incarnations = survivor.incarnations + 1_000
    for number in range(200):
        # Each registration of its broker renews the coordinator.
        lost.register(lost.group.coordinator)
        lost.join(f"m{number}", {"t": "*", f"u{number}": "*"}, replace=True)
    lost.join("m", group="anew", coordinator_epoch=0)
    gone = lost.group
    survivor.done(GoOnAlone())
    for broker in BROKERS:
        survivor.register(broker)
    now = survivor.group
    assert now.coordinator_epoch > gone.coordinator_epoch + LOST
    assert now.group_epoch > gone.group_epoch + LOST
    assert now.subscription_version > gone.subscription_version + LOST
    # What a coordinator asked for whose entries are lost does not count, also in a group that is made anew.
    late = survivor.apply(survivor.joining("late", coordinator_epoch=gone.coordinator_epoch))
    assert late.code == "NOT_COORDINATOR"
    survivor.join("m", group="anew", coordinator_epoch=0)
    groups = (each.state.cluster.groups.by_name["anew"] for each in (survivor, lost))
    anew, before = (group.coordinator_epoch for group in groups)
    assert anew > before + LOST


def test_r15_a_process_whose_start_was_lost_takes_its_name_again() -> None:
    survivor = GroupTables()
    survivor.join("old", instance="i")
    survivor.done(GoOnAlone())
    for broker in BROKERS:
        survivor.register(broker)
    # That `new` had taken the place of `old` is among what was lost.
    survivor.join("new", instance="i", again=True)
    late = survivor.apply(survivor.joining("old", instance="i", again=True))
    assert late.code == "INSTANCE_TAKEN"
    survivor.join("newer", instance="i")
    assert (
        survivor.apply(survivor.joining("new", instance="i", again=True)).code == "INSTANCE_TAKEN"
    )


def test_whoever_knows_what_was_lost_hears_everything() -> None:
    survivor = cluster()
    lost = copy_of(survivor)
    for number in range(50):
        lost.done(CreateTopic(f"lost{number}", 1, 1, TopicConfig(), 0))
    now = recovered(survivor).state.cluster
    view = view_since(now, lost.state.cluster.version, None, [], None, None)
    assert view.full
    assert [topic.name for topic in view.topics] == ["t"]
    assert view.lost_topic_ids == now.lost_topic_ids
    assert (view.recoveries, view.next_topic_id) == (1, now.next_topic_id)


def test_every_broker_registers_again() -> None:
    tables = recovered(cluster())
    assert tables.state.cluster.alive == set()
    assert leader(tables) is None


def test_the_longest_log_leads_whoever_the_survivor_takes_for_the_leader() -> None:
    tables = recovered(cluster(), "a", "b")
    assert leader(tables) is None
    report(tables, "a", 1, 90)
    assert leader(tables) is None
    report(tables, "b", 3, 70)
    assert leader(tables) == "b"
    assert tables.queue().standing.isr == ("b",)


def test_as_many_have_to_report_as_a_commit_may_have_missed() -> None:
    """With one copy needed for a commit it may be on any of the three."""
    tables = recovered(cluster(config=TopicConfig(min_in_sync=1)), *BROKERS)
    report(tables, "a", 1, 90)
    report(tables, "b", 1, 80)
    assert leader(tables) is None
    report(tables, "c", 2, 10)
    assert leader(tables) == "c"


def test_a_replica_that_a_lost_move_has_brought_leads_if_it_has_the_log() -> None:
    tables = cluster(replicas=1)
    (owner,) = tables.queue().standing.replicas
    other, third = (broker for broker in BROKERS if broker != owner)
    recovered(tables, *BROKERS)
    report(tables, owner, -1, 0)
    report(tables, other, 4, 300)
    assert leader(tables) is None
    report(tables, third)
    assert leader(tables) == other


def test_r15_a_replica_that_was_moved_away_stands_for_none_of_the_others() -> None:
    """What was committed since is on two of the three others."""
    tables = cluster()
    tables.register("d")
    recovered(tables, *BROKERS, "d")
    report(tables, "d", 1, 80)
    report(tables, "c", 2, 60)
    assert leader(tables) is None
    report(tables, "b", 2, 90)
    assert leader(tables) == "b"


def test_r15_a_single_replica_is_awaited_whoever_held_it_before() -> None:
    tables = cluster(replicas=1)
    (owner,) = tables.queue().standing.replicas
    former, other = (broker for broker in BROKERS if broker != owner)
    recovered(tables, *BROKERS)
    report(tables, former, 1, 80)
    report(tables, other)
    assert leader(tables) is None
    report(tables, owner, 2, 90)
    assert leader(tables) == owner


def test_r15_brokers_that_a_lost_move_may_have_brought_are_awaited() -> None:
    """If `d` had taken the place of `c`, what was committed since is on `b` and `d` alone."""
    tables = cluster()
    tables.register("d")
    recovered(tables, *BROKERS, "d")
    report(tables, "a", 1, 60)
    report(tables, "c", 1, 60)
    assert leader(tables) is None
    other = copy_of(tables)
    report(tables, "b", 1, 60)
    assert leader(tables) in BROKERS
    report(other, "d", 2, 90)
    assert leader(other) == "d"


def test_r15_one_broker_that_does_not_come_back_holds_nothing_up() -> None:
    tables = cluster()
    tables.register("d")
    recovered(tables, *BROKERS)
    for broker in BROKERS:
        report(tables, broker, 1, 60)
    assert leader(tables) in BROKERS


def test_empty_logs_count_once_every_broker_was_heard() -> None:
    tables = recovered(cluster(), "a", "b")
    report(tables, "a", -1, 0)
    report(tables, "b", -1, 0)
    assert leader(tables) is None
    tables.register("c")
    report(tables, "c", -1, 0)
    assert leader(tables) is not None


def test_an_operator_may_give_up_a_broker_that_does_not_come_back() -> None:
    tables = recovered(cluster(), "a", "b")
    report(tables, "a", -1, 0)
    report(tables, "b", -1, 0)
    tables.done(RemoveBroker("c", accept_loss=True))
    assert leader(tables) is not None


def test_an_unclean_election_waits_for_the_best_unless_it_is_asked_for_now() -> None:
    tables = recovered(cluster(config=TopicConfig(unclean_election=True)), "a")
    report(tables, "a", 1, 90)
    assert leader(tables) is None
    tables.done(AlterTopic("t", None, TopicConfig(), 0))
    assert leader(tables) is None
    tables.done(AlterTopic("t", None, TopicConfig(unclean_election=True), 0))
    assert leader(tables) == "a"


def test_a_suspect_store_makes_all_report() -> None:
    tables = recovered(cluster(), "a")
    tables.register("b", suspect=True)
    report(tables, "a", 1, 10)
    report(tables, "b", 1, 5)
    assert leader(tables) is None
    tables.register("c")
    report(tables, "c", 1, 20)
    assert leader(tables) == "c"


def test_a_recovery_survives_a_snapshot() -> None:
    tables = recovered(cluster(), "a")
    report(tables, "a", 1, 90)
    copy = copy_of(tables)
    assert copy.state.snapshot() == tables.state.snapshot()
    copy.register("b")
    report(copy, "b", 1, 95)
    assert leader(copy) == "b"
    assert copy.state.cluster.groups.first_epoch == tables.state.cluster.groups.first_epoch


def test_what_an_operator_gives_up_is_deleted_and_nothing_else() -> None:
    tables = recovered(cluster())
    now = tables.state.cluster
    ((first, end),) = now.lost_topic_ids
    version = now.version
    tables.done(DiscardLostTopic(first + 3))
    assert now.lost_topic_ids == [(first, first + 3), (first + 4, end)]
    assert now.version > version
    tables.done(DiscardLostTopic(first))
    assert now.lost_topic_ids[0] == (first + 1, first + 3)
    known = now.topics["t"].id
    for wrong in (known, first + 3, end):
        assert tables.apply(DiscardLostTopic(wrong)).code == "UNKNOWN_TOPIC"
    assert copy_of(tables).state.cluster.lost_topic_ids == now.lost_topic_ids


def test_older_name_servers_stop_at_it() -> None:
    assert entry_of("", 0, 0, GoOnAlone()).format == 8
    assert entry_of("", 0, 0, DiscardLostTopic(1)).format == 8
    assert entry_of("", 0, 0, NoteNameServer("n", "n:1", "n:2")).format == 1
    assert StateMachine().snapshot() != b""
