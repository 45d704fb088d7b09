"""The planner at the Raft leader: a slice per turn, proposals, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logboom.client.checks.operation_checks import loss_findings
from logboom.metadata.duties.move_planner import (
    IDLE_ROUND_S,
    MAX_DESCRIPTIONS,
    MAX_RUNS,
    ROUND_S,
    MovePlanner,
)
from logboom.metadata.planning.description import SILENT_S
from logboom.metadata.planning.load_table import MAX_PARTS, STALE_S, LoadTable
from logboom.metadata.raft.log_commands import AnyLogCommand, encode_entry, entry_of
from logboom.metadata.raft.raft_config import SubmitOutcome, SubmitStatus
from logboom.metadata.raft.submissions import OnResult
from logboom.wire.actor import Instant, Note
from logboom.wire.base import Command
from logboom.wire.commands import CreateTopic, RegisterBroker
from logboom.wire.errors import LogboomError
from logboom.wire.features import FEATURES
from logboom.wire.messages import NODES_ONLY, Ok
from logboom.wire.operation_commands import (
    CancelReassign,
    EndFilling,
    QueueMove,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.operation_messages import (
    BalancePlanned,
    ClusterDescribed,
    DescribeCluster,
    PlanBalance,
    ReplicaLoad,
    ReportLoad,
)
from logboom.wire.settings import LiveSettings
from logboom.wire.view import TopicConfig
from tests.unit.metadata.name_servers import Group
from tests.unit.metadata.planning.planned_clusters import MIB, PlannedCluster
from tests.unit.wire.work import longest_ms, without_garbage_of_others

MOST_MS = 10.0


class Leader:
    """A Raft leader that commits at once."""

    def __init__(self, cluster: PlannedCluster, **settings: str) -> None:
        self.cluster = cluster
        self.state = cluster.state
        self.settings = LiveSettings("name-1")
        self.settings.follow([("", name, value) for name, value in settings.items()])
        self.proposed: list[AnyLogCommand] = []
        self.planner = MovePlanner(self)
        self.planner.loads = cluster.loads
        self.planner.restart(cluster.now)
        cluster.report()
        self.turns = 0

    def submit(self, command: AnyLogCommand, on_result: OnResult) -> None:
        """Apply a command of the planner's."""
        self.proposed.append(command)
        result = self.state.apply(encode_entry(entry_of("", 0, 0, command)))
        on_result(SubmitOutcome(SubmitStatus.APPLIED, result))

    def log_time_ms(self, now: float) -> int:
        """The log began with this clock."""
        return int(now * 1000)

    def turn(self, seconds: float = 0.0) -> None:
        """One turn, some time after the last one."""
        self.cluster.now += seconds
        self.turns += 1
        self.planner.wake(self.cluster.now)
        for _ in range(3):
            # A turn asks for what is due more than once, as the name server does.
            self.planner.perform(Instant(self.cluster.now, 0))

    def round(self, seconds: float = ROUND_S) -> list[Command]:
        """Turns until a round has ended; what it has proposed."""
        before = len(self.proposed)
        self.turn(seconds)
        while self.planner.deadline() <= self.cluster.now:
            self.turn()
        return list(self.proposed[before:])

    def described(self, shown: Callable[[str], bool] = lambda _: True) -> ClusterDescribed:
        """What DescribeCluster answers."""
        told: list[ClusterDescribed | LogboomError] = []
        self.planner.describe(shown, "", told.append)
        while not told:
            self.turn()
        assert isinstance(told[0], ClusterDescribed)
        return told[0]


def a_leader(brokers: str = "abc", queues: int = 6, **settings: str) -> Leader:
    """A cluster of brokers with one topic, and its Raft leader."""
    cluster = PlannedCluster()
    for name in brokers:
        cluster.register(name)
    cluster.create(queues=queues)
    return Leader(cluster, **settings)


def test_a_round_takes_several_turns_and_proposes_at_its_end() -> None:
    leader = a_leader(queues=1_000)
    leader.cluster.create("u", queues=1_000)
    leader.cluster.register("d")
    leader.cluster.report()
    assert not leader.round(0.5)
    assert leader.turns == 1
    (reassign,) = leader.round()
    assert isinstance(reassign, Reassign)
    assert len(reassign.moves) >= 2
    assert leader.turns > 5, "a slice per turn"
    assert len(leader.cluster.moving()) == 2


def test_new_brokers_are_filled_and_said_to_be_full() -> None:
    leader = a_leader()
    leader.cluster.register("d")
    for _ in range(30):
        leader.cluster.report()
        leader.round()
        leader.cluster.copy()
    assert EndFilling("d") in leader.proposed
    assert not leader.state.cluster.filling
    assert len(leader.state.cluster.brokers["d"].queues) >= 3
    count = len(leader.proposed)
    leader.round()
    assert len(leader.proposed) == count


def test_an_idle_planner_looks_again_only_when_something_changed() -> None:
    leader = a_leader()
    leader.round()
    turns = leader.turns
    leader.round()
    assert leader.turns == turns + 1, "nothing was examined"
    leader.cluster.create("u")
    leader.round()
    assert leader.turns > turns + 2
    turns = leader.turns
    leader.round(IDLE_ROUND_S)
    assert leader.turns > turns + 1


def test_a_draining_broker_is_emptied_and_becomes_drained() -> None:
    leader = a_leader("abcd", balance_mode="off")
    leader.cluster.done(SetBrokerMode("a", "draining", 0))
    for _ in range(20):
        leader.cluster.report()
        leader.round()
        assert all(move.reason == "drain" for move in leader.described().moves)
        leader.cluster.copy()
    assert leader.state.cluster.modes == {"a": "drained"}


def test_a_broker_dead_for_long_is_replaced_and_the_time_begins_with_the_leader() -> None:
    leader = a_leader("abcd", replace_after_s="100")
    leader.cluster.fence("a")
    leader.planner.follow(leader.cluster.now)
    for _ in range(9):
        leader.cluster.report()
        assert not leader.round(10.0)
    leader.planner.restart(leader.cluster.now)
    leader.cluster.report()
    assert not leader.round(20.0), "a new leader counts anew"
    leader.cluster.report()
    (reassign,) = leader.round(80.0)
    assert isinstance(reassign, Reassign)
    assert all("a" not in move.target for move in reassign.moves)
    assert {move.reason for move in leader.described().moves} == {"repair"}


def test_a_destination_that_is_dead_for_five_minutes_is_given_up() -> None:
    leader = a_leader()
    leader.cluster.register("d")
    leader.cluster.report()
    leader.round()
    leader.cluster.fence("d")
    leader.planner.follow(leader.cluster.now)
    (move, *_) = leader.described().moves
    assert move.stuck == "d is dead: the move is cancelled if it stays so"
    leader.round(299.0)
    assert not any(isinstance(each, CancelReassign) for each in leader.proposed)
    leader.round()
    assert any(isinstance(each, CancelReassign) for each in leader.proposed)
    assert not leader.cluster.moving()


def test_a_move_that_is_refused_is_not_proposed_every_second() -> None:
    leader = a_leader("abcd", queues=1)
    queue = leader.cluster.queue()
    leader.cluster.done(SetBrokerMode(queue.standing.replicas[0], "draining", 0))
    leader.cluster.report_room("d", full=True)
    real = leader.state.cluster.full
    leader.state.cluster.full = set()
    leader.turn(ROUND_S)
    # The disk fills up between the plan and its proposal.
    leader.state.cluster.full = real
    while leader.planner.deadline() <= leader.cluster.now:
        leader.turn()
    count = len(leader.proposed)
    assert count == 1
    leader.state.cluster.full = set()
    for _ in range(5):
        leader.round()
    assert len(leader.proposed) == count
    assert "no disk space" in leader.described().planner.reasons[0]
    leader.round(60.0)
    assert len(leader.proposed) == count + 1


def test_nothing_is_planned_below_the_features_level() -> None:
    leader = a_leader("abcd")
    leader.cluster.done(SetBrokerMode("a", "draining", 0))
    leader.cluster.be_older()
    assert not leader.round()
    status = leader.described().planner
    assert status.state == "off"
    assert "logboom cluster upgrade finalize" in status.reasons[0]


def test_the_description_of_brokers_and_of_a_move() -> None:
    leader = a_leader(move_bytes_per_s=str(4 * MIB))
    cluster = leader.cluster
    cluster.register("d", zone="z", host="h")
    cluster.sizes[1, 0] = 100 * MIB
    cluster.produced = 2 * MIB
    queue = cluster.queue()
    target = ["d", *queue.standing.replicas[1:]]
    cluster.done(Reassign([QueueMove(1, 0, -1, target)], 0))
    cluster.copied[1, 0, "d"] = 10 * MIB
    cluster.report()
    cluster.now += 10.0
    cluster.copied[1, 0, "d"] = 50 * MIB
    cluster.report()
    described = leader.described()
    (move,) = described.moves
    assert (move.topic, move.queue, move.reason) == ("t", 0, "operator")
    assert (move.replicas, move.adding) == ([*target, queue.standing.replicas[-1]], ["d"])
    assert (move.done_bytes, move.total_bytes) == (50 * MIB, 100 * MIB)
    assert (move.bytes_per_s, move.produced_bytes_per_s) == (4 * MIB, 2 * MIB)
    assert move.left_s == 25
    assert move.stuck == ""
    d = next(each for each in described.brokers if each.broker == "d")
    assert (d.zone, d.host, d.mode, d.alive, d.filling) == ("z", "h", "active", True, True)
    assert (d.replicas, d.leading, d.moves_in, d.size_bytes) == (1, 0, 1, 50 * MIB)
    assert not leader.described(lambda _: False).moves


def test_what_a_broker_is_yet_to_delete_is_not_counted() -> None:
    leader = a_leader()
    cluster = leader.cluster
    cluster.sizes[1, 0] = 100 * MIB
    cluster.report()
    queue = cluster.queue()
    (left,) = queue.standing.replicas[2:]

    def size() -> int:
        (found,) = (each for each in leader.described().brokers if each.broker == left)
        return found.size_bytes

    before = size()
    cluster.done(Reassign([QueueMove(1, 0, -1, [*queue.standing.replicas[:2]])], 0))
    assert left not in queue.standing.replicas
    assert size() == before - 100 * MIB


@pytest.mark.parametrize(
    ("produced", "throttle", "arrived", "said"),
    [
        (6, 4, 40, "throttle 4 MiB/s < 6 MiB/s produced: raise move_bytes_per_s"),
        (6, 0, 40, "it copies 4 MiB/s, and 6 MiB/s are produced"),
        (0, 0, 0, "nothing was copied for 40 s"),
    ],
)
def test_why_a_move_makes_no_progress(
    produced: int, throttle: int, arrived: int, said: str
) -> None:
    leader = a_leader(move_bytes_per_s=str(throttle * MIB), balance_mode="off")
    cluster = leader.cluster
    cluster.register("d")
    cluster.sizes[1, 0] = 1_000 * MIB
    cluster.produced = produced * MIB
    cluster.done(Reassign([QueueMove(1, 0, -1, ["d", *cluster.queue().standing.replicas[1:]])], 0))
    cluster.copied[1, 0, "d"] = MIB
    cluster.report()
    leader.round()
    # The round took a second.
    cluster.now += 9.0 if arrived else SILENT_S + 9.0
    cluster.copied[1, 0, "d"] = (1 + arrived) * MIB
    cluster.report()
    leader.round()
    (move,) = leader.described().moves
    assert move.stuck == said
    if produced:
        assert move.left_s == -1, "it never ends"


def test_a_move_that_gets_stuck_is_told_once_and_when_it_goes_on() -> None:
    leader = a_leader(balance_mode="off")
    cluster = leader.cluster
    cluster.register("d")
    cluster.sizes[1, 0] = 1_000 * MIB
    cluster.done(Reassign([QueueMove(1, 0, -1, ["d", *cluster.queue().standing.replicas[1:]])], 0))

    def told(copied: int, seconds: float) -> list[Note]:
        cluster.copied[1, 0, "d"] = copied
        cluster.now += seconds
        cluster.report()
        leader.round()
        return leader.planner.take_notes()

    assert not told(MIB, 0)
    assert not told(MIB, SILENT_S - 5)
    (stuck,) = told(MIB, 10)
    assert stuck.event == "move_stuck"
    assert stuck.fields["topic"] == "t"
    assert stuck.fields["added"] == ["d"]
    assert not told(MIB, 10)
    (resumed,) = told(2 * MIB, 10)
    assert resumed.event == "move_resumed"
    # Each round takes a second of its own.
    assert resumed.fields["seconds"] == 26 + 11 + 11 + 11
    assert not told(2 * MIB, 1)


def test_plans_of_balance_are_answered_one_after_the_other_and_a_new_leader_has_none() -> None:
    leader = a_leader(queues=100)
    leader.cluster.register("d")
    leader.cluster.report()
    answers: list[Any] = []
    for _ in range(MAX_RUNS + 1):
        leader.planner.plan_balance(PlanBalance(0, 1_000, 10), answers.append)
    assert isinstance(answers[0], LogboomError)
    leader.round()
    plans = [each for each in answers if isinstance(each, BalancePlanned)]
    assert len(plans) == MAX_RUNS
    assert len(plans[0].moves) == 10
    leader.planner.plan_balance(PlanBalance(0, 1_000), answers.append)
    leader.planner.restart(leader.cluster.now)
    assert isinstance(answers[-1], LogboomError)


# ── reports ─────────────────────────────────────────────────────────────────────────────────────


def part(number: int, of: int, *queues: int, epoch: int = 1) -> ReportLoad:
    """A part of a report of broker a."""
    loads = [ReplicaLoad(1, queue, 100 + queue) for queue in queues]
    return ReportLoad(0, 0, "a", epoch, number, of, 1_000, 500, 0, 0, loads)


def test_a_report_counts_once_it_is_whole() -> None:
    table = LoadTable()
    table.take(part(0, 2, 0, 1), 1.0)
    assert "a" not in table.reports
    table.take(part(1, 2, 2), 1.0)
    assert set(table.reports["a"].replicas) == {(1, 0), (1, 1), (1, 2)}
    table.take(part(0, 1, 5), 11.0)
    assert set(table.reports["a"].replicas) == {(1, 5)}
    assert table.reported("a", 11.0)
    assert not table.reported("a", 11.0 + STALE_S)
    table.keep_only({"b"})
    assert not table.reports


@pytest.mark.parametrize(
    "parts",
    [
        [part(1, 2, 0)],
        [part(0, 3, 0), part(2, 3, 1)],
        [part(0, 2, 0), part(1, 2, 1, epoch=2)],
        [part(0, 2, 0), part(1, 3, 1)],
        [part(-1, 1, 0)],
        [part(0, MAX_PARTS + 1, 0)],
        [part(0, 0)],
    ],
)
def test_parts_that_do_not_belong_together_make_no_report(parts: list[ReportLoad]) -> None:
    table = LoadTable()
    for each in parts:
        table.take(each, 1.0)
    assert not table.reports


# ── at a name server ────────────────────────────────────────────────────────────────────────────


def test_a_name_server_describes_the_cluster_and_plans() -> None:
    group = Group()
    group.register("broker-1")
    described = group.ask(group.leader(), DescribeCluster(0, 2_000))
    assert isinstance(described, ClusterDescribed)
    assert [each.broker for each in described.brokers] == ["broker-1"]
    assert described.brokers[0].size_bytes == -1, "nothing was reported yet"
    planned = group.ask(group.leader(), PlanBalance(0, 2_000))
    assert isinstance(planned, BalancePlanned)
    assert planned.reasons == ["the load of broker-1 is not known yet"]
    refused = group.ask(group.followers()[0], DescribeCluster(0, 2_000))
    assert isinstance(refused, LogboomError)
    assert refused.code == "NOT_LEADER"


def test_a_loss_is_as_old_as_the_raft_log_says() -> None:
    group = Group()
    group.register("broker-1")
    group.propose(CreateTopic("t", 1, 1, TopicConfig(unclean_election=True), 0))
    another_disk = RegisterBroker(
        "broker-1", "another store", "i", "broker-1:7711", "", False, 0, features=FEATURES
    )
    group.propose(another_disk, "broker")
    group.run(5.0)
    described = group.ask(group.leader(), DescribeCluster(0, 2_000))
    assert isinstance(described, ClusterDescribed)
    (topic,) = group.view(group.leader()).topics
    (loss,) = topic.queues[0].losses
    assert 5_000 <= described.log_time_ms - loss.time_ms < 60_000
    (found,) = loss_findings([topic], described.log_time_ms)
    assert found.check == "losses"


def test_a_client_reports_no_load_and_a_broker_none_for_another() -> None:
    group = Group()
    epoch = group.register("broker-1")
    assert ReportLoad in NODES_ONLY
    message = ReportLoad(0, 1_000, "broker-1", epoch, 0, 1, 1, 1, 0, 0, [])
    for who in ("client", "broker"):
        refused = group.ask(group.leader(), message, who)
        assert isinstance(refused, LogboomError), who
        assert not isinstance(refused, Ok)


def test_descriptions_take_turns_with_rounds_and_are_bounded() -> None:
    leader = a_leader(queues=1_000)
    for number in range(8):
        leader.cluster.create(f"more-{number}", queues=1_000)
    told: list[ClusterDescribed | LogboomError] = []
    for _ in range(MAX_DESCRIPTIONS + 1):
        leader.planner.describe(lambda _: True, "", told.append)
    assert [error_code(each) for each in told] == ["BUSY"]
    before = leader.turns
    leader.turn(ROUND_S)
    while leader.planner.deadline() <= leader.cluster.now:
        leader.turn()
    answers = [each for each in told[1:] if isinstance(each, ClusterDescribed)]
    assert len(answers) == MAX_DESCRIPTIONS
    assert leader.turns - before > 2 * MAX_DESCRIPTIONS
    assert {sum(broker.leading for broker in each.brokers) for each in answers} == {9_000}


def test_no_slice_of_a_description_lasts() -> None:
    leader = a_leader(queues=1)
    for number in range(60):
        leader.cluster.create(f"more-{number}", queues=1_000)
    leader.round()

    def begin() -> Callable[[], bool]:
        told: list[ClusterDescribed | LogboomError] = []
        leader.planner.describe(lambda _: True, "", told.append)

        def turn() -> bool:
            leader.turn()
            return not told

        return turn

    with without_garbage_of_others():
        assert longest_ms(begin, MOST_MS) <= MOST_MS


def error_code(told: ClusterDescribed | LogboomError) -> str:
    return told.code if isinstance(told, LogboomError) else ""
