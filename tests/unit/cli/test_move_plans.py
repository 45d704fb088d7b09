"""Plans of drains, moves, replica numbers and removals: what they say, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from logboom.cli.balance_commands import begun_text
from logboom.cli.broker_commands import (
    broker_row,
    describe_lines,
    is_drained,
    is_in_sync,
    is_kept_in_maintenance,
    maintenance_lines,
    may_be_stopped,
    queue_rows_of,
)
from logboom.cli.queue_commands import queue_rows
from logboom.client.balance_report import (
    plan_lines,
    run_plan,
    share_rows,
    spread_of,
    spread_text,
    status_lines,
)
from logboom.client.move_plans import (
    broker_ids,
    broker_of,
    move_text,
    plan_drain,
    plan_move,
    plan_removal,
    plan_replicas,
    plan_rows,
    queue_of,
)
from logboom.wire.errors import InvalidRequest, Refused
from logboom.wire.operation_messages import (
    BalancePlanned,
    BrokerLoad,
    BrokerShare,
    ClusterDescribed,
    PlannedMove,
    PlannerStatus,
    QueueMoveState,
)
from logboom.wire.view import QueueView, TopicConfig, TopicView

MIB = 1 << 20
PLANNER = PlannerStatus("idle", ["the brokers are even"], 0, "new-broker", 900.0, 0)
USUAL = BrokerLoad(
    "", "active", True, False, False, "", "", 2, 1, 1, 10 * MIB, 1000 * MIB, 600 * MIB, 2048, 0,
    0, 0, 0, 0,
)  # fmt: skip


def broker(name: str, **fields: Any) -> BrokerLoad:
    return msgspec.structs.replace(USUAL, broker=name, **fields)


def cluster(
    *brokers: BrokerLoad,
    sizes: Sequence[int] = (),
    moves: Sequence[QueueMoveState] = (),
    planner: PlannerStatus = PLANNER,
) -> ClusterDescribed:
    return ClusterDescribed(0, list(brokers), list(moves), planner, 7, list(sizes))


def queue(replicas: str, isr: str | None = None, **fields: Any) -> QueueView:
    """A queue on brokers of one letter each."""
    leader = fields.pop("leader", replicas[0])
    in_sync = list(replicas if isr is None else isr)
    return QueueView(list(replicas), leader, 1, 1, in_sync, fields.pop("eligible", []), **fields)


def topic(*queues: QueueView, min_in_sync: int = 0, replicas: int = 2) -> TopicView:
    config = TopicConfig(min_in_sync=min_in_sync)
    return TopicView("flights", 1, config, list(queues), 1, replicas=replicas)


THREE = cluster(*map(broker, "abc"))


# ── drain ───────────────────────────────────────────────────────────────────────────────────────


def test_a_drain_says_what_moves_and_where_to() -> None:
    plan = plan_drain(THREE, [topic(queue("ab"), queue("bc"), queue("ca"))], "a")
    assert plan.lines[:2] == [
        "a holds 2 replicas, 10.0 MiB; it leads 1 queue",
        "they move to b and c; each queue stays in as many zones",
    ]
    assert "move_bytes_per_s" in plan.lines[2]
    assert plan.copied_bytes == 10 * MIB
    assert plan.facts["receivers"] == ["b", "c"]


def test_an_empty_broker_is_drained_without_a_move() -> None:
    plan = plan_drain(THREE, [topic(queue("bc"))], "a")
    assert plan.lines[1] == "there is nothing to move"


@pytest.mark.parametrize(
    ("brokers", "text"),
    [
        ([broker("a"), broker("b"), broker("c", alive=False)], "1 other broker can take any"),
        ([broker("a"), broker("b"), broker("c", mode="draining")], "1 other broker can take any"),
        ([broker("a"), broker("b"), broker("c", mode="maintenance")], "1 other broker can"),
        ([broker("a"), broker("b"), broker("c", full=True)], "1 other broker can take any"),
        ([broker("a"), broker("b", host="m"), broker("c", host="m")], "2 other brokers can"),
    ],
)
def test_a_drain_that_has_nowhere_to_go_is_refused(brokers: list[BrokerLoad], text: str) -> None:
    with pytest.raises(InvalidRequest, match="nowhere to go") as refused:
        plan_drain(cluster(*brokers), [topic(queue("ab"))], "a")
    assert text in refused.value.text
    assert "flights/0" in refused.value.text
    assert "--replicas" in refused.value.text
    assert refused.value.code == "TOO_FEW_BROKERS"


def test_a_drain_to_fewer_zones_or_without_room_is_refused() -> None:
    zoned = cluster(broker("a", zone="x"), broker("b", zone="y"), broker("c", zone="y"))
    with pytest.raises(InvalidRequest, match=r"fewer zones \(flights/0\): .* zone 'x'"):
        plan_drain(zoned, [topic(queue("ab"))], "a")
    small = cluster(broker("a", size_bytes=20 * MIB), broker("b"), broker("c", free_bytes=MIB))
    small.brokers[1] = broker("b", free_bytes=MIB)
    with pytest.raises(InvalidRequest, match=r"20\.0 MiB are to be copied, and b and c have 2\.0"):
        plan_drain(small, [topic(queue("ab"))], "a")


def test_a_dead_broker_with_the_only_copy_is_said() -> None:
    dead = cluster(broker("a", alive=False), broker("b"), broker("c"))
    plan = plan_drain(dead, [topic(queue("ab", "a", leader=None))], "a")
    assert plan.facts["stranded"] == ["flights/0"]
    assert "only copy" in plan.lines[-1]


def test_an_unknown_broker_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidRequest, match="no broker 'z': there are a, b, c"):
        broker_of(THREE, "z")


# ── move ────────────────────────────────────────────────────────────────────────────────────────


def test_a_move_says_what_is_copied_and_given_up() -> None:
    described = cluster(*map(broker, "abc"), sizes=[3 * MIB])
    plan = plan_move(described, topic(queue("ab")), 0, ["b", "c"], force=False)
    assert plan.lines == [
        "flights queue 0: a, b → b, c",
        "copied: 3.0 MiB to c",
        "given up, once the others are in sync: a",
        "the leader moves from a to one of them",
        "zones: 1 → 1",
    ]
    assert plan.copied_bytes == 3 * MIB
    assert (plan.facts["adding"], plan.facts["removing"]) == (["c"], ["a"])


def test_another_order_copies_nothing() -> None:
    plan = plan_move(THREE, topic(queue("ab")), 0, ["b", "a"], force=False)
    assert plan.lines[1] == "nothing is copied: all of these have it already"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"alive": False}, "c is down"),
        ({"mode": "draining"}, "c is draining: `logboom broker undrain c`"),
        ({"mode": "drained"}, "c is drained"),
        ({"mode": "maintenance"}, "`logboom broker maintenance off c`"),
        ({"full": True}, "c has no disk space"),
        ({"host": "m"}, "is on the machine m"),
        ({"zone": "y"}, "say --force"),
        ({"free_bytes": MIB}, "1.0 MiB free"),
    ],
)
def test_a_move_to_a_broker_that_cannot_is_refused(fields: dict[str, Any], text: str) -> None:
    described = cluster(
        broker("a", zone="x"),
        broker("b", zone="y", host="m"),
        broker("c", **{"zone": "z", **fields}),
        sizes=[3 * MIB],
    )
    with pytest.raises(InvalidRequest) as refused:
        plan_move(described, topic(queue("ab")), 0, ["b", "c"], force=False)
    assert text in refused.value.text


def test_fewer_zones_may_be_forced_and_min_in_sync_not() -> None:
    described = cluster(broker("a", zone="x"), broker("b", zone="y"), broker("c", zone="y"))
    plan = plan_move(described, topic(queue("ab")), 0, ["b", "c"], force=True)
    assert plan.lines[-1] == "zones: 2 → 1"
    with pytest.raises(InvalidRequest, match="--min-in-sync 1"):
        plan_move(described, topic(queue("ab"), min_in_sync=2), 0, ["b"], force=True)


def test_ids_and_numbers_that_are_wrong() -> None:
    assert broker_ids("b-1, b-2") == ["b-1", "b-2"]
    with pytest.raises(InvalidRequest, match="twice"):
        broker_ids("b-1,b-1")
    with pytest.raises(InvalidRequest, match="no broker is named"):
        broker_ids(" , ")
    for number in (-1, 1):
        with pytest.raises(InvalidRequest, match="its queues are 0 to 0"):
            queue_of(topic(queue("ab")), number)


# ── number of replicas ──────────────────────────────────────────────────────────────────────────


def test_more_replicas_say_what_is_copied() -> None:
    described = cluster(*(broker(name, zone=name) for name in "abc"), sizes=[MIB, 2 * MIB])
    plan = plan_replicas(described, topic(queue("ab"), queue("bc")), 3, 0)
    assert plan.lines[0] == "flights: 2 → 3 replicas of each of 2 queues"
    assert plan.lines[1].startswith("copied: 2 replicas, 3.0 MiB")
    assert plan.lines[2:] == [
        "zones of a queue: 2 → 3",
        "a write with acks=all then needs 2 copies",
    ]
    assert (plan.copied_bytes, plan.facts["added"]) == (3 * MIB, 2)


def test_fewer_replicas_copy_nothing() -> None:
    plan = plan_replicas(THREE, topic(queue("ab"), queue("bc")), 1, 0)
    assert plan.lines[1] == "given up: 2 replicas; nothing is copied for that"
    assert plan.lines[-1] == "a write with acks=all then needs 1 copy"
    assert plan_replicas(THREE, topic(queue("ab")), 2, 0).lines[1] == (
        "every queue has so many already"
    )


@pytest.mark.parametrize(
    ("replicas", "min_in_sync", "text"),
    [(4, 0, "4 replicas need 4 machines"), (1, 2, "--min-in-sync 1"), (0, 0, "1 to 15")],
)
def test_an_impossible_number_is_refused(replicas: int, min_in_sync: int, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        plan_replicas(THREE, topic(queue("ab")), replicas, min_in_sync)


# ── removal ─────────────────────────────────────────────────────────────────────────────────────

DEAD = cluster(broker("a", alive=False), broker("b"), broker("c"))


def test_a_removal_says_which_queues_lose_their_messages() -> None:
    queues = [queue("a", leader=None), queue("ab", "a", leader=None), queue("ba", "b"), queue("bc")]
    removal = plan_removal(DEAD, [topic(*queues)], "a")
    assert (removal.lost, removal.doubtful, removal.loses) == (["flights/0"], ["flights/1"], True)
    lines = removal.plan.lines
    assert lines[0] == "a is down and holds 3 replicas"
    assert "ALL MESSAGES ARE LOST of 1 queue" in lines[1]
    assert "flights/0" in lines[1]
    assert "MAY BE LOST" in lines[2]
    assert "flights/1" in lines[2]
    assert lines[3].startswith("1 queue keeps all messages")


def test_a_removal_may_cost_nothing() -> None:
    eligible = queue("ab", "a", leader=None, eligible=["b"])
    removal = plan_removal(DEAD, [topic(eligible)], "a")
    assert not removal.loses
    assert "no queue loses anything" in plan_removal(DEAD, [topic(queue("bc"))], "a").plan.lines


def test_a_live_broker_is_not_removed() -> None:
    with pytest.raises(
        InvalidRequest, match=r"drain it with `logboom broker drain a --wait`, stop"
    ):
        plan_removal(THREE, [], "a")
    with pytest.raises(InvalidRequest, match="a is alive: stop it, then remove it"):
        plan_removal(cluster(broker("a", mode="drained")), [], "a")


# ── rows and words ──────────────────────────────────────────────────────────────────────────────


def a_move(**fields: Any) -> QueueMoveState:
    usual = QueueMoveState(
        "flights", 0, ["b", "c", "a"], ["c"], ["a"], "drain", MIB, 4 * MIB, MIB, 10, 3, ""
    )
    return msgspec.structs.replace(usual, **fields)


MOVING = queue("bca", "ab", adding=["c"], removing=["a"])


def test_brokers_as_rows() -> None:
    row = broker_row(broker("a", moves_in=2, moves_out=1))
    assert (row["state"], row["size"], row["disk"]) == ("up", "10.0 MiB", "40% of 1000.0 MiB")
    assert row["moves"] == "2 in, 1 out"
    unknown = broker_row(broker("a", alive=False, size_bytes=-1, disk_bytes=-1, free_bytes=-1))
    assert (unknown["state"], unknown["size"], unknown["disk"]) == ("down", None, None)
    assert broker_row(broker("a", full=True))["state"] == "full"


def test_queues_as_rows() -> None:
    described = cluster(*map(broker, "abc"), sizes=[MIB, 0], moves=[a_move()])
    rows = queue_rows(described, [topic(MOVING, queue("ab", leader=None))])
    assert rows[0]["move"] == "+c -a"
    assert rows[0]["replicas"] == ["b", "c"], "what it has at the end"
    assert rows[0]["progress"] == "25 %, 1.0 MiB/s (produced: 10 B/s), 3 s left"
    assert (rows[0]["size"], rows[1]["size"]) == ("1.0 MiB", None)
    assert rows[1]["leader"] == "no leader"
    assert move_text(queue("ab")) == ""


def test_a_broker_is_described() -> None:
    described = cluster(*map(broker, "abc"), moves=[a_move()])
    rows = queue_rows_of(described, [topic(MOVING, queue("ab", "a"), queue("bc"))], "a")
    assert [row["queue"] for row in rows] == [0, 1]
    assert rows[0]["move"] == "+c -a 25 %, 1.0 MiB/s (produced: 10 B/s), 3 s left"
    lines = describe_lines(broker("a", zone="x", filling=True, moves_out=1), "h:1", rows)
    assert lines[0] == "a at h:1: up, active, zone x"
    assert "only it is in sync: flights/1" in lines
    assert "it is new and does not hold its share yet" in lines
    assert "moves: 0 in (0 B/s), 1 out (0 B/s)" in lines


def test_maintenance_warns_of_what_only_it_can_lead() -> None:
    assert maintenance_lines("a", 3, [], on=True)[0].endswith("3 queues got another leader")
    lines = maintenance_lines("a", 3, ["flights/1"], on=True)
    assert lines[0].endswith("2 queues got another leader")
    assert "flights/1" in lines[1]
    assert "no leader while a is down" in lines[1]
    assert "active again" in maintenance_lines("a", 0, [], on=False)[0]


def test_a_broker_may_be_stopped_once_others_lead_and_is_back_once_in_sync() -> None:
    assert not may_be_stopped("a", [topic(queue("ab"))], THREE)
    assert may_be_stopped("b", [topic(queue("ab"))], THREE)
    assert may_be_stopped("a", [topic(queue("ab", "a"))], THREE), "no other can lead"
    assert is_in_sync("b", [topic(queue("ab"))], THREE)
    assert not is_in_sync("b", [topic(queue("ab", "a"))], THREE)
    assert is_in_sync("c", [topic(queue("bca", "ba", adding=["c"]))], THREE), (
        "a move is not waited for"
    )


def test_a_wait_ends_if_somebody_gives_the_broker_another_mode() -> None:
    def now(mode: str) -> ClusterDescribed:
        return cluster(broker("a", mode=mode), broker("b"))

    assert [is_drained("a", now(mode)) for mode in ("draining", "drained")] == [False, True]
    with pytest.raises(Refused, match="a is active now: the draining was ended"):
        is_drained("a", now("active"))
    assert is_kept_in_maintenance("a", now("maintenance"))
    with pytest.raises(Refused, match="a is active now: its maintenance was ended"):
        is_kept_in_maintenance("a", now("active"))


def test_the_status_says_why_nothing_moves() -> None:
    lines = status_lines(THREE)
    assert lines == [
        "idle: there is nothing to move",
        "- the brokers are even",
        "balance_mode new-broker; dead brokers are replaced: 900 s; throttle: automatic",
    ]
    stalled = PlannerStatus("stalled", ["nowhere to go"], 2, "off", 0.0, MIB)
    lines = status_lines(cluster(broker("a"), moves=[a_move(stuck="c is dead")], planner=stalled))
    assert lines[0].startswith("stalled: ")
    assert lines[1].startswith("1 queue under way, 2 more later")
    assert lines[2:4] == ["- nowhere to go", "- flights/0: c is dead"]
    assert lines[-1] == "balance_mode off; dead brokers are replaced: never; throttle: 1.0 MiB/s"


def test_the_spread_is_of_those_that_take_part() -> None:
    brokers = [
        broker("a", size_bytes=12 * MIB, replicas=5),
        broker("b", size_bytes=8 * MIB, leading=3),
        broker("c", size_bytes=0, alive=False, replicas=0),
        broker("d", size_bytes=0, mode="draining", replicas=0),
    ]
    assert spread_of(brokers) == {
        "bytes": 4 * MIB,
        "percent_of_mean": 40.0,
        "replicas": 3,
        "leads": 2,
    }
    assert spread_text(brokers) == "spread: 4.0 MiB (40 % of the mean), 3 replicas, 2 led queues"
    assert "not known yet" in spread_text([broker("a", size_bytes=-1)])
    assert spread_text(brokers[2:]) == "spread: no broker takes part"


def test_a_plan_of_balance() -> None:
    moves = [
        PlannedMove("flights", 1, 0, 3, ["a", "b"], ["b", "c"], 2 * MIB, 2, 2),
        PlannedMove("flights", 1, 1, 3, ["a", "b"], ["b", "a"], 0, 2, 2),
    ]
    before = [BrokerShare("a", 2, 2, 4 * MIB), BrokerShare("c", 0, 0, 0)]
    after = [BrokerShare("a", 1, 0, 2 * MIB), BrokerShare("c", 1, 0, 2 * MIB)]
    planned = BalancePlanned(0, moves, before, after, [])
    rows = plan_rows(planned)
    assert [row["change"] for row in rows] == ["+c -a", "led by b"]
    assert (rows[0]["copied"], rows[0]["zones"]) == ("2.0 MiB", "2 → 2")
    assert plan_lines(planned) == ["2 moves, 2.0 MiB to copy"]
    assert run_plan(planned).copied_bytes == 2 * MIB
    assert share_rows(planned)[1] == {
        "broker": "c",
        "size": "0 B → 2.0 MiB",
        "replicas": "0 → 1",
        "to_lead": "0 → 0",
    }
    nothing = BalancePlanned(0, [], [], [], ["the brokers are even"])
    assert plan_lines(nothing) == ["nothing to move", "- the brokers are even"]


def test_moves_that_wait_are_said_with_what_begins_them() -> None:
    assert "wait" not in begun_text(20, 0)
    assert begun_text(1, 0).startswith("1 move begun: see `logboom queue list --moving`")
    text = begun_text(20, 3)
    assert "; 3 wait, since 20 may be under way at once: run it again, use --wait, or" in text
    assert "1 waits" in begun_text(20, 1)


def test_one_is_not_many() -> None:
    brokers = [broker("a"), broker("b", replicas=1, leading=0)]
    assert spread_text(brokers).endswith("1 replica, 1 led queue")
