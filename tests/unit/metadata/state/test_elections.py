"""Elections, ISR and eligible replicas: one test per rule (SAFETY Q2, Q3, Q6, Q7, Q13, Q14)."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import product

import pytest

from logboom.metadata.state import broker_commands
from logboom.metadata.state.state_counters import figures_of
from logboom.wire.commands import (
    AlterTopic,
    DeleteTopic,
    ElectLeader,
    FenceBroker,
    QueueTail,
    RegisterBroker,
    ReportRoom,
    ReportTails,
)
from logboom.wire.view import TopicConfig
from tests.thorough import seeds
from tests.unit.metadata.state.states import Tables, three_brokers


def standing(tables: Tables) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    found = tables.queue().standing
    return found.leader, found.isr, found.eligible


def test_a_new_queue_is_led_by_its_first_replica_with_all_in_sync() -> None:
    assert standing(three_brokers()) == ("a", ("a", "b", "c"), ())


# ── Q2 ──────────────────────────────────────────────────────────────────────────────────────────


def test_q2_registering_ends_all_leaderships_of_the_broker() -> None:
    tables = three_brokers()
    tables.create("u", queues=6)
    before = {i: tables.queue(i, "u").epoch for i in range(6)}
    tables.register("a")
    for index in range(6):
        queue = tables.queue(index, "u")
        assert queue.standing.leader != "a"
        led_by_a = queue.standing.replicas[0] == "a"
        assert queue.epoch == before[index] + led_by_a
        assert queue.standing.isr == queue.standing.replicas, "the same store stays in sync"


def test_q2_alone_in_the_isr_it_leads_again_only_in_a_new_epoch() -> None:
    tables = three_brokers(min_in_sync=1)
    assert tables.change_isr("a") == ""
    epoch = tables.queue().epoch
    first = tables.epochs["a"]
    assert tables.register("a") > first
    assert standing(tables)[0] == "a"
    assert tables.queue().epoch == epoch + 1


def test_q2_a_repeated_registration_of_one_process_changes_nothing() -> None:
    tables = three_brokers()
    version = tables.state.version
    known = tables.state.cluster.brokers["a"]
    repeated = RegisterBroker("a", known.store_id, known.incarnation, known.endpoint, "", False, 0)
    again = tables.done(repeated)
    assert again.value == tables.epochs["a"]
    assert tables.state.version == version
    tables.fence("a")
    assert tables.done(repeated).value != tables.epochs["a"]


# ── Q3 ──────────────────────────────────────────────────────────────────────────────────────────


def test_q3_another_store_leaves_every_isr_in_the_same_command() -> None:
    tables = three_brokers()
    tables.register("a", store="a new disk")
    assert standing(tables) == ("b", ("b", "c"), ())


def test_q3_another_store_is_not_eligible_either() -> None:
    tables = three_brokers()
    assert tables.change_isr("a", "b") == ""
    assert tables.change_isr("a") == ""
    assert standing(tables) == ("a", ("a",), ("b",))
    tables.register("b", store="a new disk")
    assert standing(tables) == ("a", ("a",), ())


def test_q3_the_last_member_with_an_empty_store_does_not_lead() -> None:
    tables = three_brokers(min_in_sync=1)
    assert tables.change_isr("a") == ""
    tables.register("a", store="a new disk")
    assert standing(tables) == (None, ("a",), ())
    tables.register("a", store="a new disk")
    assert standing(tables)[0] is None, "restarting does not bring back what was lost"


def test_q3_an_empty_store_that_calls_itself_damaged_does_not_lead_either() -> None:
    tables = three_brokers(replicas=1)
    tables.register("a", store="a new disk")
    tables.report_damage("a")
    assert standing(tables)[0] is None
    tables.report_damage("a", mended=True)
    assert standing(tables)[0] is None


def test_q3_an_eligible_replica_leads_instead_of_an_empty_store() -> None:
    tables = three_brokers()
    assert tables.change_isr("a") == ""
    tables.fence("b")
    tables.fence("c")
    tables.register("a", store="a new disk")
    assert standing(tables)[0] is None
    tables.register("c")
    assert standing(tables) == ("c", ("c",), ("b",))
    assert tables.change_isr("c", "a") == "", "it may follow and grow as any other"


def test_q3_an_operator_may_take_an_empty_store_for_the_truth() -> None:
    tables = three_brokers(min_in_sync=1)
    assert tables.change_isr("a") == ""
    tables.register("a", store="a new disk")
    tables.done(ElectLeader("t", 0, "a", 0))
    assert standing(tables)[0] == "a"


def test_q3_the_right_disk_that_comes_back_leads_again() -> None:
    tables = three_brokers(min_in_sync=1)
    assert tables.change_isr("a") == ""
    before = tables.queue().epoch
    # Twice without its disk.
    tables.register("a", store="an empty folder")
    tables.register("a", store="another empty folder")
    assert standing(tables) == (None, ("a",), ())
    tables.state.restore(tables.state.snapshot())
    tables.register("a")
    assert standing(tables) == ("a", ("a",), ())
    assert tables.queue().standing.lost == ()
    assert tables.queue().epoch > before
    assert not tables.state.cluster.lost_stores


def test_q3_only_the_store_that_held_the_queue_brings_it_back() -> None:
    tables = three_brokers(replicas=1)
    tables.register("a", store="an empty folder")
    # What an operator takes for the truth may be written to: now that is what must not be lost.
    tables.done(ElectLeader("t", 0, "a", 0))
    assert not tables.state.cluster.lost_stores
    tables.register("a")
    assert standing(tables) == (None, ("a",), ())
    tables.register("a", store="an empty folder")
    assert standing(tables) == ("a", ("a",), ())


def test_q3_the_right_disk_is_suspect_if_it_says_so() -> None:
    tables = three_brokers(replicas=1)
    tables.register("a", store="an empty folder")
    tables.register("a", suspect=True)
    # It alone has anything: a suspect leads where there is no other.
    assert standing(tables) == ("a", ("a",), ())


def test_q3_a_damaged_copy_does_not_come_back_as_a_good_one() -> None:
    tables = three_brokers(replicas=1)
    tables.report_damage("a")
    tables.register("a", store="an empty folder")
    tables.register("a")
    assert standing(tables)[0] is None


def test_q3_what_others_went_on_with_does_not_come_back() -> None:
    tables = three_brokers()
    assert tables.change_isr("a") == ""
    tables.fence("b")
    tables.fence("c")
    tables.register("a", store="an empty folder")
    tables.register("c")
    assert standing(tables) == ("c", ("c",), ("b",))
    tables.register("a")
    assert standing(tables) == ("c", ("c",), ("b",))
    assert not tables.state.cluster.lost_stores


def test_q3_a_deleted_topic_leaves_no_store_behind() -> None:
    tables = three_brokers(replicas=1)
    tables.register("a", store="an empty folder")
    assert tables.state.cluster.lost_stores
    tables.done(DeleteTopic("t", 0))
    assert not tables.state.cluster.lost_stores


# ── Q6 ──────────────────────────────────────────────────────────────────────────────────────────


def test_q6_a_stale_instance_epoch_is_refused() -> None:
    tables = three_brokers()
    assert tables.change_isr("a") == ""
    stale = tables.epochs["b"]
    tables.register("b")
    isr = [("a", tables.epochs["a"]), ("b", stale)]
    assert tables.change_isr("a", isr=isr) == "FENCED"
    assert tables.change_isr("a", "b") == ""


def test_q6_a_fenced_broker_is_not_let_into_the_isr() -> None:
    tables = three_brokers()
    tables.fence("b")
    assert tables.change_isr("a", "b", "c") == "FENCED"


def test_q6_the_asking_leaders_own_epochs_count() -> None:
    tables = three_brokers()
    assert tables.change_isr("a", "b", leader_epoch=0) == "STALE_EPOCH"
    assert tables.change_isr("a", "b", version=0) == "CONFLICT"
    assert tables.change_isr("a", "b", topic_id=99) == "UNKNOWN_QUEUE"
    assert tables.change_isr("b", "c") == "INVALID_ARGUMENT"
    assert standing(tables)[1] == ("a", "b", "c")


def test_q6_a_change_counts_once_per_version() -> None:
    tables = three_brokers()
    version = tables.queue().version
    assert tables.change_isr("a", "b", version=version) == ""
    assert tables.change_isr("a", version=version) == "CONFLICT"


# ── Q7 ──────────────────────────────────────────────────────────────────────────────────────────


def test_q7_fence_isr_and_election_are_one_command() -> None:
    tables = three_brokers()
    version = tables.state.version
    tables.fence("a")
    assert tables.state.version == version + 1
    assert standing(tables) == ("b", ("b", "c"), ())
    assert not tables.state.cluster.brokers["a"].alive


def test_q7_who_leaves_below_min_in_sync_stays_eligible_until_the_isr_is_back() -> None:
    tables = three_brokers()
    assert tables.change_isr("a", "b") == ""
    assert standing(tables)[2] == (), "two copies suffice: the HW moves without c"
    tables.fence("b")
    assert standing(tables) == ("a", ("a",), ("b",))
    tables.register("b")
    assert tables.change_isr("a", "b") == ""
    assert standing(tables) == ("a", ("a", "b"), ())


def test_q7_an_eligible_replica_leads_when_the_last_isr_member_is_gone() -> None:
    tables = three_brokers()
    tables.fence("b")
    tables.fence("c")
    assert standing(tables) == ("a", ("a",), ("c",)), "b left while two copies remained"
    tables.fence("a")
    assert standing(tables) == (None, ("a",), ("c",)), "the last member is never removed"
    tables.register("b")
    assert standing(tables)[0] is None, "b may lack what a and c acknowledged"
    tables.register("c")
    assert standing(tables) == ("c", ("c",), ("a",)), "a holds all below the HW too"


def test_q7_with_min_in_sync_one_nobody_is_eligible() -> None:
    tables = three_brokers(min_in_sync=1)
    assert tables.change_isr("a") == ""
    assert standing(tables) == ("a", ("a",), ())
    tables.fence("a")
    assert standing(tables) == (None, ("a",), ())


def test_q7_fewer_copies_needed_ends_eligibility() -> None:
    tables = three_brokers()
    assert tables.change_isr("a") == ""
    assert standing(tables)[2] == ("b", "c")
    tables.done(AlterTopic("t", None, TopicConfig(min_in_sync=1), 0))
    assert standing(tables)[2] == (), "the HW may move without them from now on"


def test_q7_a_leader_that_counts_by_the_old_min_in_sync_cannot_shrink_the_isr() -> None:
    tables = three_brokers(min_in_sync=1)
    version = tables.queue().version
    tables.done(AlterTopic("t", None, TopicConfig(min_in_sync=2), 0))
    assert tables.change_isr("a", version=version) == "CONFLICT"


def test_q7_the_isr_member_that_comes_back_leads_at_once() -> None:
    tables = three_brokers()
    for broker in "cba":
        tables.fence(broker)
    assert standing(tables) == (None, ("a",), ("b",))
    epoch = tables.queue().epoch
    tables.register("a")
    assert standing(tables) == ("a", ("a",), ("b",))
    assert tables.queue().epoch == epoch + 1


def test_no_unclean_election_unless_the_topic_asks() -> None:
    tables = three_brokers(min_in_sync=1)
    assert tables.change_isr("a") == ""
    tables.fence("a")
    assert standing(tables)[0] is None
    assert counted(tables) == (1, 0)
    tables.done(AlterTopic("t", None, TopicConfig(min_in_sync=1, unclean_election=True), 0))
    assert standing(tables) == ("b", ("b",), ())
    assert counted(tables) == (0, 1)


def counted(tables: Tables) -> tuple[object, object]:
    """Return how many queues have no leader, and how many elections were unclean, as STATS say."""
    figures = figures_of(tables.state)
    return figures["queues_leaderless"], figures["unclean_elections"]


def test_clean_elections_do_not_count_as_unclean() -> None:
    tables = three_brokers(min_in_sync=1)
    tables.fence("a")
    assert standing(tables)[0] == "b"
    # Neither a member that joins and leads at once, nor one that was eligible, may lack anything.
    tables.register("a")
    tables.fence("b")
    tables.fence("c")
    tables.register("c")
    assert counted(tables)[1] == 0
    assert figures_of(tables.state)["brokers.fenced"] == 1
    assert figures_of(tables.state)["brokers.alive"] == 2


def test_stepping_down_hands_everything_over_in_one_command() -> None:
    tables = three_brokers()
    tables.create("u", queues=6)
    tables.create("single", queues=3, replicas=1)
    tables.step_down("a")
    for name, count in (("u", 6), ("t", 1)):
        for index in range(count):
            found = tables.queue(index, name).standing
            assert found.leader in ("b", "c")
            assert "a" not in found.isr
    alone = [tables.queue(i, "single").standing for i in range(3)]
    assert sorted(s.leader or "" for s in alone) == ["", "b", "c"]
    assert all(len(s.isr) == 1 for s in alone)
    assert tables.change_isr("b", "a", "c") == "FENCED"


def test_r13_a_fence_of_another_term_is_refused() -> None:
    tables = three_brokers()
    tables.begin(term=2)
    result = tables.apply(FenceBroker("a", tables.epochs["a"], 1, 0))
    assert result.code == "STALE_EPOCH"
    assert tables.state.cluster.brokers["a"].alive


def test_a_fence_of_an_earlier_registration_is_refused() -> None:
    tables = three_brokers()
    epoch = tables.epochs["a"]
    tables.register("a")
    assert tables.apply(FenceBroker("a", epoch, 1, 0)).code == "STALE_EPOCH"
    assert tables.state.cluster.brokers["a"].alive


# ── Q13 ─────────────────────────────────────────────────────────────────────────────────────────


def test_q13_a_suspect_leaves_every_isr_that_has_another_member() -> None:
    tables = three_brokers()
    tables.register("a", suspect=True)
    assert standing(tables) == ("b", ("b", "c"), ())


def test_q13_a_suspect_does_not_lead_while_a_sound_candidate_may_return() -> None:
    tables = three_brokers()
    tables.fence("b")
    tables.fence("c")
    tables.fence("a")
    tables.register("a", suspect=True)
    assert standing(tables) == (None, ("a",), ("c",))
    tables.register("c")
    assert standing(tables) == ("c", ("c",), ("a",))


def test_q13_if_all_are_suspect_the_greatest_tail_leads() -> None:
    tables = three_brokers()
    tables.fence("b")
    tables.fence("c")
    tables.fence("a")
    tables.register("a", suspect=True)
    tables.report_tail("a", 3, 50)
    assert standing(tables)[0] is None, "c is not heard yet"
    tables.register("c", suspect=True)
    tables.report_tail("c", 3, 60)
    assert standing(tables) == ("c", ("c",), ("a",))
    assert "a" in tables.queue().standing.suspect
    assert tables.change_isr("c", "a") == ""
    assert "a" not in tables.queue().standing.suspect
    assert tables.state.cluster.tails == {}, (
        "tails of replicas that are trusted again are forgotten"
    )


def test_q13_the_epoch_of_the_tail_counts_before_its_end() -> None:
    tables = three_brokers()
    for broker in "bca":
        tables.fence(broker)
    for broker in "ca":
        tables.register(broker, suspect=True)
    tables.report_tail("a", 4, 10)
    tables.report_tail("c", 3, 60)
    assert standing(tables)[0] == "a"


def test_q13_the_greatest_tail_is_waited_for() -> None:
    tables = three_brokers()
    for broker in "bca":
        tables.fence(broker)
    for broker in "ca":
        tables.register(broker, suspect=True)
    tables.report_tail("c", 3, 60)
    tables.fence("c")
    tables.report_tail("a", 3, 50)
    assert standing(tables)[0] is None
    tables.register("c", suspect=True)
    tables.report_tail("c", 3, 60)
    assert standing(tables)[0] == "c"


def test_q13_a_single_suspect_copy_leads_at_once() -> None:
    tables = three_brokers(replicas=1)
    tables.register("a", suspect=True)
    assert standing(tables) == ("a", ("a",), ())


# ── Q14 ─────────────────────────────────────────────────────────────────────────────────────────


def test_q14_a_damaged_leader_leaves_the_isr_first() -> None:
    tables = three_brokers()
    tables.report_damage("a")
    assert standing(tables) == ("b", ("b", "c"), ())
    assert tables.change_isr("b", "a", "c") == "DATA_DAMAGED"
    tables.report_damage("a", mended=True)
    assert tables.change_isr("b", "a", "c") == ""


def test_q14_a_damaged_replica_leads_only_if_no_other_can() -> None:
    tables = three_brokers(min_in_sync=1)
    assert tables.change_isr("a") == ""
    epoch = tables.queue().epoch
    tables.report_damage("a")
    assert standing(tables) == ("a", ("a",), ())
    assert tables.queue().epoch == epoch + 1
    assert tables.change_isr("a", "b") == ""
    assert standing(tables) == ("b", ("b",), ()), "as soon as another is in sync it leads"


def test_q14_an_eligible_replica_that_returns_takes_over_from_a_damaged_leader() -> None:
    tables = three_brokers()
    tables.fence("b")
    tables.fence("c")
    tables.report_damage("a")
    assert standing(tables) == ("a", ("a",), ("c",))
    tables.register("c")
    assert standing(tables) == ("c", ("c",), ())


def test_q14_what_a_damaged_follower_had_counts_no_more() -> None:
    # It is cut where it is damaged: by its positions of before, its leader would let it back into
    # the ISR for what it held once, and ack what it does not hold.
    tables = three_brokers()
    tables.report_damage("b")
    assert standing(tables) == ("a", ("a", "c"), ())
    assert tables.queue().epoch == 2, "only positions compared in the new epoch count"
    tables.report_damage("b")
    assert tables.queue().epoch == 3, "it was damaged again before it was whole"
    tables.report_damage("b", mended=True)
    assert tables.queue().epoch == 3
    assert tables.change_isr("a", "c", "b") == ""


def test_q14_a_damaged_leader_that_nobody_can_relieve_keeps_its_epoch() -> None:
    tables = three_brokers(replicas=1)
    tables.report_damage("a")
    epoch = tables.queue().epoch
    tables.report_damage("a")
    assert tables.queue().epoch == epoch


def test_q14_mended_the_only_copy_leads_on() -> None:
    tables = three_brokers(replicas=1)
    tables.report_damage("a")
    tables.report_damage("a", mended=True)
    assert standing(tables) == ("a", ("a",), ())
    assert tables.queue().standing.damaged == ()


# ── an operator's wishes ────────────────────────────────────────────────────────────────────────


def test_a_leader_may_be_chosen_among_the_isr() -> None:
    tables = three_brokers()
    tables.done(ElectLeader("t", 0, "c", 0))
    assert standing(tables)[0] == "c"
    tables.done(ElectLeader("t", 0, None, 0))
    assert standing(tables)[0] == "a"
    epoch = tables.queue().epoch
    tables.done(ElectLeader("t", 0, None, 0))
    assert tables.queue().epoch == epoch, "nothing to move"


@pytest.mark.parametrize(
    ("topic", "queue", "prefer", "code"),
    [
        ("none", 0, None, "UNKNOWN_TOPIC"),
        ("t", 1, None, "UNKNOWN_QUEUE"),
        ("t", 0, "b", "INVALID_ARGUMENT"),
        ("t", 0, "d", "INVALID_ARGUMENT"),
    ],
)
def test_a_leader_outside_the_isr_is_refused(
    topic: str, queue: int, prefer: str | None, code: str
) -> None:
    tables = three_brokers()
    assert tables.change_isr("a", "c") == ""
    assert tables.apply(ElectLeader(topic, queue, prefer, 0)).code == code


# ── full disks ──────────────────────────────────────────────────────────────────────────────────


def test_a_leader_with_a_full_disk_hands_over_and_is_waited_for_no_more() -> None:
    tables = three_brokers()
    epoch = tables.queue().epoch
    tables.report_room("a", full=True)
    assert standing(tables) == ("b", ("b", "c"), ())
    assert tables.queue().epoch == epoch + 1


def test_a_follower_with_a_full_disk_is_waited_for_no_more() -> None:
    tables = three_brokers()
    epoch = tables.queue().epoch
    tables.report_room("c", full=True)
    assert standing(tables) == ("a", ("a", "b"), ())
    assert tables.queue().epoch == epoch


def test_who_is_needed_stays_however_full() -> None:
    tables = three_brokers()
    tables.change_isr("a", "b")
    tables.report_room("a", full=True)
    assert standing(tables) == ("a", ("a", "b"), ())
    # A third copy comes: now it can go.
    assert tables.change_isr("a", "b", "c") == ""
    assert standing(tables) == ("b", ("b", "c"), ())


def test_if_all_disks_are_full_nothing_moves_to_and_fro() -> None:
    tables = three_brokers()
    for broker in "abc":
        tables.report_room(broker, full=True)
    assert standing(tables) == ("b", ("b", "c"), ())
    epoch = tables.queue().epoch
    tables.report_room("c", full=False)
    tables.report_room("a", full=False)
    assert standing(tables) == ("b", ("b", "c"), ())
    assert tables.queue().epoch == epoch
    assert tables.change_isr("b", "c", "a") == ""
    # With the third in sync again the full one is not needed.
    assert standing(tables) == ("a", ("a", "c"), ())


def test_an_only_replica_stays_where_it_is() -> None:
    tables = three_brokers()
    tables.create("alone", replicas=1)
    leader = tables.queue(0, "alone").standing.leader
    assert leader is not None
    tables.report_room(leader, full=True)
    assert tables.queue(0, "alone").standing.leader == leader


def test_nobody_is_let_into_the_isr_before_it_has_room() -> None:
    tables = three_brokers()
    tables.report_room("c", full=True)
    assert tables.change_isr("a", "b", "c") == "DISK_FULL"
    tables.report_room("c", full=False)
    assert tables.change_isr("a", "b", "c") == ""


def test_who_has_room_is_elected_first() -> None:
    tables = three_brokers(min_in_sync=3)
    tables.report_room("b", full=True)
    assert standing(tables)[1] == ("a", "b", "c")
    tables.fence("a")
    assert standing(tables)[0] == "c"
    tables.fence("c")
    assert standing(tables)[0] == "b"


def test_fewer_copies_needed_may_relieve_a_full_leader() -> None:
    tables = three_brokers(min_in_sync=3)
    tables.report_room("a", full=True)
    assert standing(tables)[0] == "a"
    tables.done(AlterTopic("t", None, TopicConfig(min_in_sync=2), 0))
    assert standing(tables) == ("b", ("b", "c"), ())


@pytest.mark.parametrize("way", ["register", "fence", "step_down"])
def test_a_new_process_says_anew_whether_its_disk_is_full(way: str) -> None:
    tables = three_brokers()
    tables.report_room("a", full=True)
    getattr(tables, way)("a")
    assert tables.state.cluster.full == set()
    stale = ReportRoom("a", tables.epochs["a"] - 1, True, 0)
    assert tables.apply(stale).code == "FENCED"


def test_new_queues_go_where_there_is_room_if_there_are_enough() -> None:
    tables = three_brokers()
    tables.register("d")
    tables.report_room("a", full=True)
    tables.create("u", queues=4)
    assert {r for q in range(4) for r in tables.queue(q, "u").standing.replicas} == set("bcd")
    tables.report_room("b", full=True)
    tables.create("v", queues=4)
    assert {r for q in range(4) for r in tables.queue(q, "v").standing.replicas} == set("abcd")


def test_a_full_broker_that_had_to_get_a_new_queue_is_relieved_by_its_next_report() -> None:
    tables = three_brokers()
    tables.report_room("a", full=True)
    tables.create("u", queues=3)
    led = [n for n in range(3) if tables.queue(n, "u").standing.leader == "a"]
    assert len(led) == 1, "three copies need all three brokers"
    tables.report_room("a", full=True)
    for n in range(3):
        s = tables.queue(n, "u").standing
        assert s.leader in ("b", "c")
        assert set(s.isr) == {"b", "c"}


def test_a_full_leader_is_relieved_by_its_next_report_once_another_process_has_room() -> None:
    tables = three_brokers()
    tables.report_room("c", full=True)
    assert tables.change_isr("a", "b") == ""
    tables.report_room("a", full=True)
    assert standing(tables) == ("a", ("a", "b"), ())
    tables.report_room("c", full=False)
    tables.report_room("b", full=True)
    assert tables.change_isr("a", "b", "c") == ""
    tables.register("b")
    assert standing(tables) == ("a", ("a", "b", "c"), ()), "nobody knows yet how b's disk is"
    tables.report_room("a", full=True)
    assert standing(tables) == ("b", ("b", "c"), ())


# ── many queues at once ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", seeds(12))
def test_queues_that_are_alike_get_what_each_would_get_by_itself(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    tables = Tables()
    tables.begin()
    for broker in "abcd":
        tables.register(broker)
    for topic in range(4):
        config = {"min_in_sync": rng.choice((0, 1, 2)), "unclean_election": rng.random() < 0.3}
        tables.create(f"t{topic}", queues=6, replicas=3, **config)
    cluster = tables.state.cluster
    for _ in range(40):
        broker, action = rng.choice("abcd"), rng.random()
        if action < 0.3 and broker in cluster.alive:
            tables.fence(broker)
        elif action < 0.6:
            tables.register(broker, suspect=rng.random() < 0.5)
        elif action < 0.8 and broker in cluster.alive:
            name = f"t{rng.randrange(4)}"
            epoch, index = rng.randrange(3), rng.randrange(6)
            tail = QueueTail(cluster.topics[name].id, index, epoch, rng.randrange(9), 0)
            tables.done(ReportTails(broker, tables.epochs[broker], [tail], 0))
        elif action < 0.9 and broker in cluster.alive:
            tables.report_room(broker, full=rng.random() < 0.5)
        elif rng.random() < 0.5:
            cluster.doubted[cluster.topics["t0"].id, rng.randrange(6)] = rng.choice((1, 2))
    before, every = tables.state.snapshot(), frozenset(product(cluster.topics_by_id, range(6)))

    def after(
        action: Callable[[Tables], object], in_question: AbstractSet[tuple[int, int]]
    ) -> bytes:
        with monkeypatch.context() as patch:
            twin = Tables()
            twin.state.restore(before)
            twin.epochs, twin.incarnations = dict(tables.epochs), tables.incarnations
            if in_question:
                patch.setattr(broker_commands, "_in_question", lambda _: in_question)
            action(twin)
            return twin.state.snapshot()

    for broker in "abcd":
        for change in (
            partial(Tables.register, broker=broker),
            partial(Tables.register, broker=broker, suspect=True),
            partial(Tables.register, broker=broker, store="another"),
            partial(Tables.fence, broker=broker),
        ):
            assert after(change, set()) == after(change, every)
