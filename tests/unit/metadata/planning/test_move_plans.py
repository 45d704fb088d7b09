"""Plans of moves over random clusters: they keep the rules, end, and even the brokers out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logboom.metadata.planning.balance import SPREAD_BYTES, Balance, BalanceLimits
from logboom.metadata.planning.cluster_picture import PlannedMoveOf, PlanningRules
from logboom.metadata.planning.move_round import Attendance, BalanceRun, picture_of
from logboom.wire.commands import RemoveBroker
from logboom.wire.operation_commands import QueueMove, Reassign, SetBrokerMode
from logboom.wire.operation_messages import BalancePlanned
from tests.thorough import examples
from tests.unit.metadata.planning.planned_clusters import GIB, MIB, PlannedCluster

RULES = PlanningRules()


def random_cluster(seed: int) -> PlannedCluster:
    """Zones, hosts, sizes and moves of leaders as they come; every broker alive."""
    rng = random.Random(seed)
    cluster = PlannedCluster()
    zones = rng.randint(1, 4)
    shared = rng.random() < 0.3
    count = rng.randint(3, 8)
    later = rng.randint(0, 3)

    def register(number: int) -> None:
        host = f"host-{number // 2}" if shared else ""
        cluster.register(f"b{number}", zone=f"z{number % zones}", host=host)

    for number in range(count):
        register(number)
    hosts = (count + 1) // 2 if shared else count
    for topic in range(rng.randint(1, 4)):
        replicas = rng.randint(1, min(3, hosts))
        cluster.create(f"t{topic}", rng.randint(1, 12), replicas)
    for queue in cluster.queues():
        if rng.random() < 0.8:
            cluster.sizes[queue.topic.id, queue.index] = rng.randint(0, 8) * 10 * MIB
    for number in range(count, count + later):
        register(number)
    cluster.report()
    return cluster


def test_a_topic_created_while_a_broker_is_down_gets_its_replica_once_it_is_back() -> None:
    cluster = PlannedCluster()
    for name in "abc":
        cluster.register(name)
    cluster.kill("c")
    cluster.create("%RETRY%g", queues=2, replicas=0)
    cluster.report()
    assert not cluster.plan("off").moves
    assert cluster.plan("off").status().state == "stalled"
    cluster.register("c")
    del cluster.died["c"]
    cluster.report()
    moves = cluster.carry_out(cluster.plan("off"))
    assert [{*move.target} for move in moves] == [{*"abc"}] * 2


def check(cluster: PlannedCluster, moves: list[PlannedMoveOf]) -> None:
    """Every planned move keeps zones and hosts, and goes to brokers that may take it."""
    state = cluster.state.cluster
    for move in moves:
        before = move.queue.standing.target
        added = set(move.target) - set(before)
        assert len(set(move.target)) == len(move.target)
        assert added <= state.alive - state.modes.keys() - state.full
        hosts = [state.brokers[each].host for each in move.target if state.brokers[each].host]
        assert len(hosts) == len(set(hosts))
        zones = {state.brokers[each].zone for each in before}
        after = {state.brokers[each].zone for each in move.target}
        assert len(after) >= min(len(zones), len(move.target))


def check_limits(cluster: PlannedCluster) -> None:
    """What is under way keeps the limits."""
    copying = {
        queue: set(queue.standing.adding) - set(queue.standing.isr)
        for queue in cluster.moving()
        if set(queue.standing.adding) - set(queue.standing.isr)
    }
    assert len(copying) <= RULES.moves_in_all
    for broker in cluster.state.cluster.brokers:
        to_it = sum(broker in fetching for fetching in copying.values())
        from_it = sum(queue.standing.leader == broker for queue in copying)
        assert to_it <= RULES.moves_per_destination, broker
        assert from_it <= RULES.moves_per_source, broker


def run(cluster: PlannedCluster, between: Callable[[int], None] = lambda _: None) -> int:
    """Plan until nothing is left to do, with copies that end at any time; the rounds."""
    rng = random.Random(7)
    for number in range(2_000):
        between(number)
        cluster.report()
        planned = cluster.plan(replace_after_s=900.0)
        check(cluster, planned.moves)
        cluster.carry_out(planned)
        check_limits(cluster)
        # Before copies end: what follows from the last of them is for the next round.
        going_on = [
            queue
            for queue in cluster.moving()
            # A move whose target has a dead broker waits for it, or for its replacement.
            if set(queue.standing.target) <= cluster.state.cluster.alive
        ]
        if rng.random() < 0.7:
            cluster.copy()
        if not planned.moves and not planned.cancels and not going_on:
            return number
    raise AssertionError("moves never end")


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_balance_keeps_the_rules_and_ends(seed: int) -> None:
    cluster = random_cluster(seed)
    run(cluster)
    assert cluster.settle() == 0, "what is even is not moved"
    assert not cluster.plan_run().moves


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 1 << 32))
@example(1774)  # The last copy ends in a round that plans nothing.
def test_a_dead_and_a_draining_broker_are_given_up_where_that_is_possible(seed: int) -> None:
    cluster = random_cluster(seed)
    rng = random.Random(seed + 1)
    names = sorted(cluster.state.cluster.brokers)
    dead, draining = rng.sample(names, 2)
    cluster.kill(dead, since_s=1_000.0)
    cluster.done(SetBrokerMode(draining, "draining", 0))
    run(cluster)
    for name in (dead, draining):
        if cluster.state.cluster.brokers[name].queues:
            # Whoever stays has nowhere to go: the planner says so.
            status = cluster.plan(replace_after_s=900.0).status()
            assert status.waiting > 0 or cluster.moving()
            assert status.reasons
    if not cluster.state.cluster.brokers[draining].queues:
        assert cluster.state.cluster.modes[draining] == "drained"


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_destinations_that_die_do_not_keep_moves_from_ending(seed: int) -> None:
    cluster = random_cluster(seed)
    rng = random.Random(seed + 2)
    names = sorted(cluster.state.cluster.brokers)

    def between(number: int) -> None:
        cluster.now += 60.0
        if number < 60 and rng.random() < 0.2:
            name = rng.choice(names)
            if name in cluster.state.cluster.alive:
                cluster.kill(name)
            else:
                cluster.register(name, zone=cluster.state.cluster.brokers[name].zone)
                cluster.returned[name] = cluster.now
                del cluster.died[name]
        for queue in cluster.queues():
            s = queue.standing
            there = [each for each in s.replicas if each in cluster.state.cluster.alive]
            steady = [each for each in there if each not in s.adding]
            if s.leader is not None and set(s.isr) - set(s.adding) != set(steady):
                cluster.change_isr(*steady, name=queue.topic.name, index=queue.index)

    run(cluster, between)


def test_brokers_are_even_within_a_tenth_after_two_came() -> None:
    cluster = PlannedCluster()
    for name in "abc":
        cluster.register(name)
    for number in range(4):
        cluster.create(f"t{number}", 24, 3)
    rng = random.Random(3)
    for queue in cluster.queues():
        cluster.sizes[queue.topic.id, queue.index] = rng.randint(20, 60) * MIB
    for name in "de":
        cluster.register(name)
    assert cluster.state.cluster.filling == {"d", "e"}
    cluster.settle("new-broker")
    held = cluster.held()
    mean = sum(held.values()) / len(held)
    assert max(held.values()) - min(held.values()) <= 0.1 * mean + SPREAD_BYTES
    assert not cluster.state.cluster.filling
    preferred = [broker.preferred for broker in cluster.state.cluster.brokers.values()]
    assert max(preferred) - min(preferred) <= 2
    assert cluster.settle("new-broker") == 0


def test_zones_are_evened_out_within_themselves() -> None:
    cluster = PlannedCluster()
    for number in range(3):
        cluster.register(f"b{number}", zone=f"z{number}")
    cluster.create(queues=30)
    for queue in cluster.queues():
        cluster.sizes[queue.topic.id, queue.index] = GIB
    cluster.register("b3", zone="z0")
    cluster.settle("new-broker")
    held = cluster.held()
    assert held["b1"] == held["b2"] == 30 * GIB
    assert abs(held["b0"] - held["b3"]) <= 3 * GIB
    assert not cluster.state.cluster.filling


@pytest.mark.parametrize("mode", ["off", "new-broker"])
def test_without_a_new_broker_only_continuous_moves(mode: str) -> None:
    cluster = PlannedCluster()
    for name in "abcd":
        cluster.register(name)
    cluster.create(queues=1, replicas=3)
    cluster.create("u", queues=40, replicas=1)
    for queue in cluster.queues():
        if queue.standing.replicas[0] == "a":
            cluster.sizes[queue.topic.id, queue.index] = GIB
    assert cluster.settle(mode) == 0
    assert cluster.settle("continuous") > 0


def held_by(sizes: dict[str, list[int]]) -> PlannedCluster:
    """Brokers with queues of one replica: their sizes in bytes."""
    cluster = PlannedCluster()
    for broker in sizes:
        cluster.register(broker)
    of = [(broker, size) for broker, each in sizes.items() for size in each]
    cluster.create(queues=len(of), replicas=1)
    for queue, (broker, size) in zip(cluster.queues(), of, strict=True):
        cluster.sizes[queue.topic.id, queue.index] = size
        cluster.done(Reassign([QueueMove(queue.topic.id, queue.index, -1, [broker])], 0))
        if queue.standing.moving:
            cluster.copy()
    assert cluster.held() == {broker: sum(each) for broker, each in sizes.items()}
    cluster.report()
    return cluster


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param({"a": [0, 0, 0], "b": [0]}, id="two replicas more"),
        pytest.param({"a": [200_000, 200_000], "b": [0, 0]}, id="less than a MiB more"),
        pytest.param({"a": [GIB] * 6, "b": [6 * GIB]}, id="replicas for bytes"),
    ],
)
def test_what_differs_too_little_or_would_make_bytes_uneven_stays(
    sizes: dict[str, list[int]],
) -> None:
    cluster = held_by(sizes)
    assert cluster.settle() == 0


def test_what_differs_by_more_moves() -> None:
    cluster = held_by({"a": [0, 0, 0, 0], "b": [0]})
    assert cluster.settle() == 1


def test_a_new_broker_is_filled_at_once_also_if_it_was_away() -> None:
    cluster = held_by({"a": [GIB] * 4, "b": [GIB] * 4})
    cluster.register("c")
    cluster.returned["c"] = cluster.now
    cluster.report()
    assert cluster.plan("new-broker").moves


def test_a_new_broker_that_waits_for_other_moves_is_not_said_to_be_filled() -> None:
    cluster = held_by({"a": [GIB] * 4, "b": [GIB] * 4})
    cluster.register("c")
    cluster.report()
    waiting = cluster.plan("new-broker", moves_in_all=0)
    assert (waiting.moves, waiting.filled) == ([], [])
    cluster.settle("new-broker")
    assert not cluster.state.cluster.filling


def test_the_next_look_for_balance_begins_where_the_last_one_ended() -> None:
    cluster = held_by({"a": [0] * 10, "b": [0] * 10, "c": []})
    attendance = Attendance({}, {})

    def looks(skipped: int, examined: int) -> bool:
        """Look at some queues; True if there are more."""
        picture = picture_of(cluster.state.cluster, cluster.loads, RULES, attendance, cluster.now)
        for broker, registration in cluster.state.cluster.brokers.items():
            picture.brokers[broker].replicas = len(registration.queues)
        limits = BalanceLimits(9, 9, 9, only_filling=False, skipped=skipped, examined=examined)
        balance = Balance(picture, cluster.state.cluster, limits)
        list(balance.steps())
        return balance.more

    assert [looks(skipped, 1) for skipped in (0, 9, 15, 18, 20)] == [True] * 4 + [False]


def uneven() -> PlannedCluster:
    """Three brokers with 600 queues of two replicas each, and an empty one."""
    cluster = PlannedCluster()
    for broker in "abc":
        cluster.register(broker)
    cluster.create("t", 600, 2)
    cluster.register("d")
    cluster.report()
    return cluster


def planned(cluster: PlannedCluster, at: int, happens: Callable[[], object]) -> BalancePlanned:
    """Plan in slices; something happens after some of them."""
    run = BalanceRun(
        cluster.state.cluster,
        cluster.loads,
        PlanningRules("continuous"),
        Attendance({}, {}),
        100,
        cluster.now,
    )
    for number, _ in enumerate(run.steps(), 1):
        if number == at:
            happens()
    return run.result


@pytest.mark.parametrize("at", range(1, 10))
def test_a_broker_that_is_removed_while_balance_is_planned_gives_nothing(at: int) -> None:
    cluster = uneven()

    def remove() -> None:
        cluster.fence("c")
        cluster.done(RemoveBroker("c"))

    planned(cluster, at, remove)
    assert "c" not in cluster.state.cluster.brokers


@pytest.mark.parametrize("at", [3, 4, 5])
def test_moves_that_begin_while_balance_is_planned_are_left_alone(at: int) -> None:
    cluster = uneven()

    def move() -> None:
        for queue in cluster.queues():
            first, second = queue.standing.replicas
            (third,) = {"a", "b", "c"} - {first, second}
            cluster.done(Reassign([QueueMove(queue.topic.id, queue.index, -1, [first, third])], 0))

    assert planned(cluster, at, lambda: None).moves
    assert not planned(cluster, at, move).moves
