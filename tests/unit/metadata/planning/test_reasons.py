"""Why nothing moves, or not more, in words; and what a round examines at once."""

from __future__ import annotations

from typing import Any

import pytest

from logboom.metadata.planning.cluster_picture import QUEUES_PER_SLICE
from logboom.metadata.planning.words import bytes_in_words, seconds_in_words
from logboom.wire.commands import AlterTopic, FinishRestore, RestoreTopic
from logboom.wire.operation_commands import SetBrokerMode
from logboom.wire.view import TopicConfig
from tests.unit.metadata.planning.planned_clusters import GIB, MIB, PlannedCluster, cluster_of


def told(cluster: PlannedCluster, mode: str = "continuous", **rules: Any) -> tuple[str, str]:
    """The state of the planner and its first reason."""
    status = cluster.plan(mode, **rules).status()
    return status.state, (status.reasons or [""])[0]


def out_of_sync(cluster: PlannedCluster, broker: str) -> None:
    """A live broker leaves every ISR."""
    for queue in cluster.queues():
        stay = [each for each in queue.standing.isr if each != broker]
        if queue.standing.leader != broker:
            cluster.change_isr(*stay, index=queue.index)


def test_nothing_to_do() -> None:
    cluster = cluster_of("abc")
    assert told(cluster) == ("idle", "the brokers are even")
    assert told(cluster, "new-broker")[0] == "idle"
    assert told(cluster, "off") == (
        "off",
        "balance_mode is off: only repairs and drains move replicas",
    )


def test_three_replicas_on_three_brokers_have_nowhere_to_go() -> None:
    cluster = cluster_of("abc")
    cluster.done(SetBrokerMode("c", "draining", 0))
    state, reason = told(cluster)
    assert state == "stalled"
    assert reason == "3 replicas, 2 brokers: nowhere to go (6 queues)"
    cluster.kill("b", since_s=901.0)
    assert told(cluster, replace_after_s=900.0)[1].startswith("3 replicas, 1 broker: nowhere")


def test_a_destination_without_room() -> None:
    cluster = cluster_of("abcd")
    cluster.free_bytes = dict.fromkeys("abcd", int(0.05 * cluster.disk_bytes))
    cluster.report()
    cluster.done(SetBrokerMode("a", "draining", 0))
    state, reason = told(cluster)
    assert state == "stalled"
    assert reason.startswith("destination disk at 95%")


def test_balance_does_not_fill_a_disk_beyond_four_fifths() -> None:
    cluster = cluster_of("abc", queues=30)
    for queue in cluster.queues():
        cluster.sizes[queue.topic.id, queue.index] = GIB
    cluster.register("d")
    cluster.free_bytes["d"] = int(0.21 * cluster.disk_bytes)
    for _ in range(12):
        cluster.report()
        cluster.carry_out(cluster.plan("new-broker"))
        cluster.copy()
        cluster.free_bytes["d"] = int(0.21 * cluster.disk_bytes) - cluster.held()["d"]
    cluster.report()
    state, reason = told(cluster, "new-broker")
    assert state == "stalled"
    assert reason.startswith("destination disk at 80%")
    assert cluster.state.cluster.filling == {"d"}


def test_a_zone_that_has_no_other_broker() -> None:
    cluster = PlannedCluster()
    for name, zone in (("a", "x"), ("b", "y"), ("c", "x")):
        cluster.register(name, zone=zone)
    cluster.create(queues=2, replicas=2)
    cluster.report()
    cluster.done(SetBrokerMode("b", "draining", 0))
    state, reason = told(cluster)
    assert (state, reason) == ("stalled", "nowhere to go that keeps 2 zones (2 queues)")


def test_a_queue_without_a_leader() -> None:
    cluster = cluster_of("ab", queues=1, replicas=1)
    (leader,) = cluster.queue().standing.replicas
    cluster.kill(leader, since_s=1_000.0)
    state, reason = told(cluster, replace_after_s=900.0)
    assert (state, reason) == ("stalled", "queue t/0 has no leader to copy from")


def test_a_dead_broker_whose_replicas_are_not_replaced_yet() -> None:
    cluster = cluster_of("abcd")
    cluster.kill("a", since_s=60.0)
    state, reason = told(cluster, replace_after_s=900.0)
    assert state == "waiting"
    assert reason == "a is dead for 60 s: its replicas are replaced after 15 min"
    state, reason = told(cluster)
    assert state == "waiting"
    assert reason == "a is dead for 60 s: replace_after_s is 0, so its replicas wait for it"


def test_balance_waits_for_queues_that_are_not_in_sync() -> None:
    cluster = cluster_of("abc")
    cluster.register("d")
    cluster.report()
    out_of_sync(cluster, "c")
    state, reason = told(cluster, "new-broker")
    assert state == "waiting"
    assert reason.endswith("queues not in sync everywhere")


def test_balance_waits_for_the_load_of_every_broker() -> None:
    cluster = cluster_of("abc")
    cluster.register("d")
    assert told(cluster, "new-broker") == ("waiting", "the load of d is not known yet")


def test_a_broker_that_has_just_come_back_takes_no_balance_moves() -> None:
    cluster = cluster_of("abc", queues=30)
    cluster.done(SetBrokerMode("a", "draining", 0))
    cluster.done(SetBrokerMode("a", "active", 0))
    cluster.register("d")
    cluster.state.cluster.filling.clear()
    cluster.returned["d"] = cluster.now - 60.0
    cluster.report()
    state, reason = told(cluster)
    assert (state, reason) == ("waiting", "d is back for less than 10 min")
    cluster.now += 600.0
    cluster.report()
    assert told(cluster)[0] == "moving"


def test_a_drain_waits_for_a_dead_replica() -> None:
    cluster = cluster_of("abcd", queues=1)
    dead, drained = cluster.queue().standing.replicas[1:3]
    cluster.kill(dead)
    cluster.done(SetBrokerMode(drained, "draining", 0))
    state, reason = told(cluster)
    assert state == "waiting"
    assert reason == f"{dead} is dead, and a move ends once all of its target are in sync"


def test_limits_are_a_reason_that_ends_by_itself() -> None:
    cluster = cluster_of("abcd", queues=40)
    cluster.done(SetBrokerMode("a", "draining", 0))
    planned = cluster.plan()
    cluster.carry_out(planned)
    again = cluster.plan()
    status = again.status()
    assert not again.moves
    assert status.state == "moving"
    assert status.waiting > 0
    assert any("under way" in reason for reason in status.reasons)


def test_a_move_that_was_refused_tells_why() -> None:
    cluster = cluster_of("abcd", queues=1)
    cluster.done(SetBrokerMode(cluster.queue().standing.replicas[0], "draining", 0))
    cluster.refused[cluster.queue().topic.id, 0] = "the name servers said no"
    assert told(cluster) == ("stalled", "the name servers said no")


@pytest.mark.parametrize(("wanted", "moves"), [(1, 6), (2, 6), (4, 4)])
def test_other_numbers_of_replicas(wanted: int, moves: int) -> None:
    cluster = cluster_of("abcde")
    cluster.done(AlterTopic("t", None, None, 0, wanted))
    assert len(cluster.plan().moves) >= min(moves, 2)
    cluster.settle()
    assert {len(queue.standing.replicas) for queue in cluster.queues()} == {wanted}
    assert cluster.settle() == 0


def test_a_dead_destination_is_given_up_after_five_minutes() -> None:
    cluster = cluster_of("abc")
    cluster.register("d")
    cluster.report()
    cluster.carry_out(cluster.plan("new-broker"))
    assert cluster.moving()
    cluster.kill("d", since_s=290.0)
    assert not cluster.plan("new-broker").cancels
    cluster.now += 11.0
    planned = cluster.plan("new-broker")
    assert planned.cancels == cluster.moving()
    cluster.carry_out(planned)
    assert not cluster.moving()


def test_a_drained_broker_is_said_to_be_so() -> None:
    cluster = cluster_of("abcd")
    cluster.done(SetBrokerMode("a", "draining", 0))
    cluster.settle("off")
    assert cluster.state.cluster.modes == {"a": "drained"}
    assert not cluster.state.cluster.brokers["a"].queues


def test_a_plan_tells_shares_before_and_after() -> None:
    cluster = cluster_of("abc", queues=12)
    cluster.register("d")
    cluster.report()
    plan = cluster.plan_run()
    after = {each.broker: each.replicas for each in plan.after}
    assert {each.broker: each.replicas for each in plan.before}["d"] == 0
    assert max(after.values()) - min(after.values()) <= 2
    assert sum(after.values()) == 36
    for move in plan.moves:
        assert (move.topic, move.zones_before, move.zones_after) == ("t", 1, 1)
        assert move.copied_bytes in (0, MIB)
        assert move.version == cluster.queue(move.queue).version
    assert len(cluster.plan_run(most=3).moves) <= 3


def test_a_round_examines_a_bounded_number_of_queues_at_once() -> None:
    cluster = PlannedCluster()
    for name in "abcd":
        cluster.register(name)
    for number in range(6):
        cluster.create(f"t{number}", 1_000, 3)
    cluster.register("e")
    cluster.report()
    cluster.plan()
    most = QUEUES_PER_SLICE + 2 * 64 * 8
    assert sum(cluster.slices) >= 6_000
    assert max(cluster.slices) <= most
    cluster.plan_run()
    assert max(cluster.slices) <= most + 1_000
    cluster.done(SetBrokerMode("a", "draining", 0))
    planned = cluster.plan()
    assert max(cluster.slices) <= most
    assert planned.status().waiting > 1_000


def test_an_even_cluster_is_looked_at_once() -> None:
    cluster = cluster_of("abc", queues=1_000)
    cluster.plan()
    assert sum(cluster.slices) == 1_000


def test_amounts_in_words() -> None:
    assert [bytes_in_words(each) for each in (0, 4 * MIB, 1.5 * GIB, 1_000)] == [
        "0 B",
        "4 MiB",
        "1.5 GiB",
        "1 KiB",
    ]
    assert [seconds_in_words(each) for each in (40, 900, 3 * 3600)] == ["40 s", "15 min", "3 h"]


def restoring_cluster() -> PlannedCluster:
    """A cluster with a topic that is in use, and one of two queues that is being restored."""
    cluster = cluster_of("abcd", queues=6)
    cluster.done(RestoreTopic("restored", 0, TopicConfig(), 3, 0, "", [3, 3], "backup"))
    cluster.report()
    return cluster


def finish(cluster: PlannedCluster) -> None:
    """The restore ends."""
    topic = cluster.state.cluster.topics["restored"]
    cluster.done(FinishRestore("restored", topic.id, "backup"))


@pytest.mark.parametrize("why", ["drain", "repair"])
def test_queues_that_are_being_restored_are_moved_afterwards(why: str) -> None:
    cluster = restoring_cluster()
    leaving = cluster.state.cluster.topics["restored"].queues[0].standing.replicas[-1]
    if why == "drain":
        cluster.done(SetBrokerMode(leaving, "draining", 0))
    else:
        cluster.kill(leaving, since_s=901.0)
    rules: dict[str, Any] = {"replace_after_s": 900.0}
    moved: set[str] = set()
    for _ in range(20):
        planned = cluster.plan(**rules)
        moved |= {move.queue.topic.name for move in cluster.carry_out(planned)}
        cluster.copy()
        cluster.report()
    assert moved <= {"t"}
    assert told(cluster, **rules)[0] == "waiting"
    assert told(cluster, **rules)[1].startswith("queues that are being restored are moved")
    assert cluster.state.cluster.modes.get(leaving) != "drained"
    finish(cluster)
    cluster.settle(**rules)
    queues = cluster.state.cluster.topics["restored"].queues
    assert all(leaving not in queue.standing.replicas for queue in queues)


def test_balance_waits_until_restores_have_ended() -> None:
    cluster = restoring_cluster()
    cluster.register("e")
    cluster.report()
    assert cluster.state.cluster.filling == {"e"}
    planned = cluster.plan("new-broker")
    assert (planned.moves, planned.filled) == ([], [])
    assert planned.status().reasons == ["until restores have ended: 1 topic"]
    assert cluster.plan_run().reasons == ["until restores have ended: 1 topic"]
    finish(cluster)
    assert cluster.plan("new-broker").moves
