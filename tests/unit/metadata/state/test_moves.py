"""Moves of replicas in the replicated state: the rules M1 to M6, and each refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logboom.metadata.tables.replica_moves import cancel_move, give_up
from logboom.metadata.tables.replica_set import ReplicaSet, intern_replica_set
from logboom.wire.commands import (
    AlterTopic,
    CommandResult,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
    RemoveBroker,
)
from logboom.wire.operation_commands import (
    CancelReassign,
    QueueMove,
    Reassign,
    SetBrokerMode,
)
from logboom.wire.view import TopicConfig
from tests.thorough import examples
from tests.unit.metadata.state.states import Tables, three_brokers


class Moving(Tables):
    """Tables with short words for moves of topic "t"."""

    def try_to(
        self, *target: str, index: int = 0, version: int = -1, force: bool = False
    ) -> CommandResult:
        """Move a queue; the result."""
        move = QueueMove(self.queue(index).topic.id, index, version, list(target))
        return self.done(Reassign([move], 0, force))

    def move(self, *target: str, index: int = 0, force: bool = False) -> None:
        """Move a queue, which must not be refused."""
        result = self.try_to(*target, index=index, force=force)
        assert result.value == [""], result.text

    def cancel(self, index: int = 0) -> CommandResult:
        """Cancel a move; the result."""
        return self.done(CancelReassign([(self.queue(index).topic.id, index)], 0))

    @property
    def s(self) -> ReplicaSet:
        """The replica set of the first queue."""
        return self.queue().standing


def brokers(names: str = "abcd", *, replicas: int = 3, **config: Any) -> Moving:
    """Brokers, and topic t with one queue, which a leads and those that follow it replicate."""
    tables = Moving()
    tables.begin()
    for name in names[:replicas]:
        tables.register(name)
    tables.create(replicas=replicas, **config)
    for name in names[replicas:]:
        tables.register(name)
    assert tables.s.replicas == tuple(names[:replicas])
    return tables


# ── M1, M2: who counts, and when a move ends ────────────────────────────────────────────────────


def test_a_move_adds_first_and_ends_with_the_isr_change_that_brings_in_its_last_target() -> None:
    tables = brokers()
    epoch = tables.queue().epoch
    tables.move("d", "b", "c")
    assert tables.s.replicas == ("d", "b", "c", "a")
    assert (tables.s.adding, tables.s.removing) == (("d",), ("a",))
    assert (tables.s.leader, tables.s.isr) == ("a", ("b", "c", "a"))
    assert tables.queue().epoch == epoch + 1, "what the leader knows of replicas is of this epoch"
    assert tables.s.uncounted == ("d",)
    assert tables.change_isr("a", "b", "c", "d") == ""
    assert tables.s.key() == (("d", "b", "c"), "d", ("d", "b", "c"), (), (), (), ())
    assert tables.queue().epoch == epoch + 2
    held = {name: len(broker.queues) for name, broker in tables.state.cluster.brokers.items()}
    assert held == {"a": 0, "b": 1, "c": 1, "d": 1}
    assert tables.state.cluster.brokers["d"].preferred == 1
    view = tables.state.cluster.topic_view(tables.queue().topic).queues[0]
    assert (view.adding, view.removing) == ([], [])


def test_a_leader_that_stays_leads_on() -> None:
    tables = brokers()
    tables.move("a", "b", "d")
    epoch = tables.queue().epoch
    tables.change_isr("a", "b", "c", "d")
    assert (tables.s.leader, tables.s.replicas) == ("a", ("a", "b", "d"))
    assert tables.queue().epoch == epoch


def test_while_it_lasts_the_view_tells_of_it() -> None:
    tables = brokers()
    tables.move("d", "b", "c")
    view = tables.state.cluster.topic_view(tables.queue().topic).queues[0]
    assert view.replicas == ["d", "b", "c", "a"]
    assert (view.adding, view.removing) == (["d"], ["a"])


def test_another_order_of_the_same_replicas_counts_at_once() -> None:
    tables = brokers()
    epoch = tables.queue().epoch
    tables.move("c", "a", "b")
    assert (tables.s.replicas, tables.s.leader) == (("c", "a", "b"), "a")
    assert not tables.s.moving
    assert tables.s.displaced
    assert tables.queue() in tables.state.cluster.displaced
    assert tables.queue().epoch == epoch, "nobody came, so nothing is in doubt"


def test_what_is_only_removed_goes_at_once_where_the_rest_is_in_sync() -> None:
    tables = brokers()
    tables.move("b", "c")
    assert (tables.s.replicas, tables.s.isr, tables.s.leader) == (("b", "c"), ("b", "c"), "b")


def test_it_does_not_end_before_all_of_the_target_are_in_sync() -> None:
    tables = brokers("abcdef")
    tables.move("d", "e", "f")
    for isr in ("abcd", "abcde", "ade"):
        assert tables.change_isr(*isr) == ""
        assert tables.s.moving
    tables.change_isr("a", "d", "e", "f")
    assert tables.s.replicas == ("d", "e", "f")


def test_one_that_is_added_is_not_elected_before_it_is_in_sync() -> None:
    tables = brokers("ab", replicas=1, unclean_election=True)
    tables.move("b")
    tables.fence("a")
    assert (tables.s.leader, tables.s.isr) == (None, ("a",)), "unclean elections included"
    refused = tables.apply(ElectLeader("t", 0, "b", 0))
    assert refused.code == "INVALID_ARGUMENT"
    tables.register("a")
    assert tables.s.leader == "a"
    tables.change_isr("a", "b")
    assert (tables.s.replicas, tables.s.leader) == (("b",), "b")


def test_once_in_sync_one_that_is_added_is_like_any_other() -> None:
    tables = brokers("abcde")
    tables.move("d", "e", "c")
    tables.change_isr("a", "d")
    tables.fence("a")
    assert (tables.s.leader, tables.s.moving) == ("d", True)


def test_the_tail_of_one_that_is_added_is_not_compared() -> None:
    tables = brokers("abc", replicas=2)
    tables.move("a", "b", "c")
    for broker in "abc":
        tables.fence(broker)
    for broker in "abc":
        tables.register(broker, suspect=True)
    assert tables.s.suspect == ("a", "b")
    tables.report_tail("a", 1, 100)
    tables.report_tail("c", 1, 900)
    assert tables.s.leader is None
    tables.report_tail("b", 1, 50)
    assert tables.s.leader == "a"


@pytest.mark.parametrize("what", ["damage", "suspect", "store"])
def test_it_does_not_end_with_a_doubtful_replica(what: str) -> None:
    tables = brokers()
    tables.move("d", "b", "c")
    if what == "damage":
        tables.report_damage("c")
    elif what == "suspect":
        tables.register("c", suspect=True)
    else:
        tables.register("c", "another store")
    tables.change_isr("a", "b", "d")
    assert tables.s.moving
    if what == "damage":
        assert tables.change_isr("a", "b", "d", "c") == "DATA_DAMAGED"
        tables.report_damage("c", mended=True)
        assert tables.s.moving
    tables.change_isr(tables.s.leader or "", "b", "d", "c")
    assert tables.s.replicas == ("d", "b", "c")


def test_one_whose_only_target_is_damaged_ends_once_it_is_mended() -> None:
    tables = brokers("ab", replicas=2)
    tables.report_damage("b")
    tables.fence("a")
    tables.move("b")
    assert tables.s.moving
    tables.register("a")
    tables.report_damage("b", mended=True)
    tables.change_isr("a", "b")
    assert tables.s.replicas == ("b",)


def test_the_last_of_the_isr_returns_and_the_move_ends() -> None:
    tables = brokers("ab", replicas=2, min_in_sync=1)
    tables.change_isr("a")
    tables.fence("a")
    tables.move("a")
    assert (tables.s.leader, tables.s.moving) == (None, True)
    tables.register("a")
    assert (tables.s.leader, tables.s.replicas) == ("a", ("a",))


def test_it_does_not_end_with_one_that_has_lost_everything() -> None:
    tables = brokers("ab", replicas=2, min_in_sync=1)
    tables.change_isr("a")
    tables.register("a", "another store")
    assert (tables.s.leader, tables.s.lost) == (None, ("a",))
    tables.move("a")
    assert (tables.s.leader, tables.s.removing) == (None, ("b",)), "b may have more than nothing"


def test_the_leader_at_its_end_is_one_that_is_active() -> None:
    tables = brokers()
    tables.move("d", "b", "c")
    tables.done(SetBrokerMode("d", "maintenance", 0))
    assert tables.change_isr("a", "b", "c", "d") == ""
    assert (tables.s.replicas, tables.s.leader) == (("d", "b", "c"), "b")


# ── M3: needed copies and zones ─────────────────────────────────────────────────────────────────


def test_needed_copies_are_counted_without_what_is_added() -> None:
    tables = brokers("abc", replicas=1)
    tables.move("a", "b", "c")
    assert tables.queue().need == 1, "the one copy goes on being enough"
    tables.change_isr("a", "b")
    assert tables.queue().need == 1
    tables.change_isr("a", "b", "c")
    assert (tables.queue().need, tables.s.isr) == (2, ("a", "b", "c"))


def test_needed_copies_are_counted_with_what_is_removed() -> None:
    tables = brokers()
    tables.change_isr("a", "b")
    tables.move("c")
    assert (tables.queue().need, tables.s.moving) == (2, True)
    tables.change_isr("a", "b", "c")
    assert (tables.queue().need, tables.s.replicas, tables.s.isr) == (1, ("c",), ("c",))


def test_zones_do_not_get_fewer_unless_it_is_forced() -> None:
    tables = Moving()
    tables.begin()
    for broker, zone in {"a": "1", "b": "2", "c": "3"}.items():
        tables.register(broker, zone=zone)
    tables.create(replicas=3)
    tables.register("d", zone="2")
    tables.register("e", zone="1")
    keep = set(tables.s.replicas)
    refused = tables.try_to("e", "b", "d")
    assert refused.value == ["INVALID_ARGUMENT"]
    assert "in 3 zones, and would be in 2" in refused.text
    assert set(tables.s.replicas) == keep
    tables.move("e", "b", "c")
    tables.move("b", "c")
    tables.move("a", "b", "d", force=True)
    assert tables.s.adding == ("a", "d")


# ── refusals ────────────────────────────────────────────────────────────────────────────────────


def test_each_refusal_says_what_to_do_and_changes_nothing() -> None:
    tables = brokers("abcdef", replicas=3, min_in_sync=2)
    tables.register("g", host="shared")
    tables.register("h", host="shared")
    tables.fence("d")
    tables.done(SetBrokerMode("e", "draining", 0))
    tables.report_room("f", full=True)
    before = tables.state.snapshot()
    many = [f"b{n}" for n in range(16)]
    for target, code, text in (
        ([], "INVALID_ARGUMENT", "give 1 to 15 different brokers"),
        (many, "INVALID_ARGUMENT", "give 1 to 15 different brokers"),
        (["a", "a"], "INVALID_ARGUMENT", "give 1 to 15 different brokers"),
        (["a"], "INVALID_ARGUMENT", "min_in_sync needs 2 replicas, 1 are given"),
        (["a", "z"], "UNKNOWN_BROKER", "'z' is not registered"),
        (["a", "b", "d"], "INVALID_ARGUMENT", "'d' is not alive"),
        (["a", "b", "e"], "INVALID_ARGUMENT", "'e' is in mode draining and gets no replicas"),
        (["a", "b", "f"], "INVALID_ARGUMENT", "'f' has no disk space"),
        (["a", "g", "h"], "INVALID_ARGUMENT", "shares the machine 'shared'"),
    ):
        result = tables.try_to(*target)
        assert (result.code, result.value) == ("", [code])
        assert text in result.text, result.text
        assert tables.state.snapshot() == before
    assert tables.try_to("a", "b", version=tables.queue().version + 1).value == ["CONFLICT"]
    result = tables.done(Reassign([QueueMove(99, 0, -1, ["a"]), QueueMove(1, 9, -1, ["a"])], 0))
    assert result.value == ["UNKNOWN_QUEUE", "UNKNOWN_QUEUE"]
    assert "does not exist" in result.text
    assert tables.done(CancelReassign([(99, 0), (1, 0)], 0)).value == ["UNKNOWN_QUEUE", ""]
    assert tables.state.snapshot() == before


def test_moves_of_one_command_are_refused_one_by_one() -> None:
    tables = brokers(queues=2)
    topic = tables.queue().topic.id
    moves = [QueueMove(topic, 0, -1, ["z"]), QueueMove(topic, 1, -1, ["d", "b", "c"])]
    result = tables.done(Reassign(moves, 0))
    assert result.value == ["UNKNOWN_BROKER", ""]
    assert "'z'" in result.text
    assert tables.queue(1).standing.adding == ("d",)


def test_below_level_1_nothing_moves() -> None:
    tables = brokers()
    tables.be_older()
    before = tables.state.snapshot()
    tables.fence("d")
    for command in (
        Reassign([QueueMove(1, 0, -1, ["a"])], 0),
        CancelReassign([(1, 0)], 0),
        AlterTopic("t", None, None, 0, 2),
    ):
        assert "cluster upgrade finalize" in tables.apply(command).text
    del before


# ── another target, M5: cancel ──────────────────────────────────────────────────────────────────


def test_a_new_target_replaces_the_one_under_way() -> None:
    tables = brokers("abcdef")
    tables.move("d", "b", "c")
    tables.move("e", "b", "c")
    assert (tables.s.replicas, tables.s.adding) == (("e", "b", "c", "a"), ("e",))
    assert not tables.state.cluster.brokers["d"].queues
    tables.move("a", "b", "c")
    assert not tables.s.moving
    assert (tables.s.replicas, tables.s.leader) == (("a", "b", "c"), "a")


def test_one_in_sync_is_not_given_up_for_another_target_where_it_is_needed() -> None:
    tables = brokers("abcde")
    tables.move("d", "b", "c")
    tables.change_isr("a", "d")
    result = tables.try_to("e", "b", "c")
    assert result.value == ["INVALID_ARGUMENT"]
    assert "without d too few replicas would hold everything: wait until b, c" in result.text
    assert tables.cancel().value == ["INVALID_ARGUMENT"]
    tables.change_isr("a", "d", "b")
    tables.move("e", "b", "c")
    assert tables.s.isr == ("b", "a")


def test_a_cancelled_move_leaves_the_replicas_of_before() -> None:
    tables = brokers()
    tables.move("d", "b", "c")
    assert tables.cancel().value == [""]
    assert set(tables.s.replicas) == {"a", "b", "c"}
    assert (tables.s.leader, tables.s.moving) == ("a", False)
    assert not tables.state.cluster.brokers["d"].queues
    version = tables.state.cluster.version
    assert tables.cancel().value == [""], "there is nothing to cancel"
    assert tables.state.cluster.version == version


def test_a_leader_that_was_being_added_hands_over_when_the_move_is_cancelled() -> None:
    tables = brokers("abcde")
    tables.move("d", "e", "c")
    tables.change_isr("a", "b", "c", "d")
    tables.done(ElectLeader("t", 0, "d", 0))
    epoch = tables.queue().epoch
    assert tables.cancel().value == [""]
    assert tables.s.leader in ("a", "b", "c")
    assert (tables.queue().epoch, len(tables.s.isr)) == (epoch + 1, 3)


def test_no_cancellation_empties_the_isr_or_takes_the_last_leader() -> None:
    tables = brokers("ab", replicas=1)
    tables.create("u", replicas=1)
    tables.move("b")
    # It was in sync for a moment, and the source ceased to be.
    tables.state.cluster.place(
        tables.queue(), type(tables.s)(("b", "a"), "b", ("b",), (), (), (), (), ("b",), ("a",))
    )
    result = tables.cancel()
    assert result.value == ["INVALID_ARGUMENT"]
    assert "too few replicas would hold everything" in result.text


def test_a_damaged_replica_does_not_lead_for_one_that_a_cancellation_takes_away() -> None:
    moving = intern_replica_set(
        ("f", "a", "b", "c", "d", "e"), "f", "fa", "bcd", damaged="a", adding="f"
    )
    why = cancel_move(moving, 3, "abcdef")
    assert why == "without f no live and sound replica could lead: wait until one can"


def test_a_replica_that_is_added_back_is_in_an_epoch_of_its_own() -> None:
    tables = brokers()
    tables.move("d", "b", "c")
    first = tables.queue().epoch
    tables.cancel()
    assert tables.queue().epoch == first
    tables.move("d", "b", "c")
    assert tables.queue().epoch == first + 1


# ── M6: modes ───────────────────────────────────────────────────────────────────────────────────


def test_no_queue_is_placed_on_a_broker_that_is_not_active() -> None:
    tables = brokers()
    tables.done(SetBrokerMode("a", "maintenance", 0))
    tables.create("u", queues=6, replicas=3)
    for queue in tables.state.cluster.topics["u"].queues:
        assert set(queue.standing.replicas) == {"b", "c", "d"}
    refused = tables.apply(CreateTopic("v", 1, 4, TopicConfig(), 0))
    assert refused.code == "TOO_FEW_BROKERS"
    assert "4 active brokers, there are 3" in refused.text
    assert tables.state.cluster.topics["t"].replicas == 3


def test_a_leader_in_maintenance_hands_over_as_soon_as_another_is_in_sync() -> None:
    tables = brokers("abc")
    tables.change_isr("a")
    tables.done(SetBrokerMode("a", "maintenance", 0))
    assert tables.s.leader == "a"
    tables.change_isr("a", "b")
    assert (tables.s.leader, tables.s.isr) == ("b", ("a", "b"))
    refused = tables.apply(ElectLeader("t", 0, "a", 0))
    assert (refused.code, "is in mode maintenance" in refused.text) == ("INVALID_ARGUMENT", True)


def test_those_that_led_for_want_of_another_hand_over_to_one_that_is_active_again() -> None:
    tables = brokers("abc")
    for broker in "abc":
        tables.done(SetBrokerMode(broker, "maintenance", 0))
    leader = tables.s.leader
    other = next(broker for broker in "abc" if broker != leader)
    tables.done(SetBrokerMode(other, "active", 0))
    assert tables.s.leader == other


def test_a_broker_is_drained_once_it_holds_nothing() -> None:
    tables = brokers()
    tables.done(SetBrokerMode("a", "draining", 0))
    assert tables.apply(SetBrokerMode("a", "drained", 0)).code == "INVALID_ARGUMENT"
    tables.move("d", "b", "c")
    tables.change_isr("a", "b", "c", "d") if tables.s.leader == "a" else tables.change_isr(
        "b", "a", "c", "d"
    )
    tables.done(SetBrokerMode("a", "drained", 0))
    tables.fence("a")
    tables.done(RemoveBroker("a"))
    assert "a" not in tables.state.cluster.brokers


# ── the number of replicas of a topic ───────────────────────────────────────────────────────────


def test_a_broker_whose_draining_was_ended_does_not_become_drained() -> None:
    tables = brokers()
    tables.done(SetBrokerMode("d", "draining", 0))
    tables.done(SetBrokerMode("d", "active", 0))
    # The planner saw it empty, before it was made active again.
    assert tables.apply(SetBrokerMode("d", "drained", 0)).code == "INVALID_ARGUMENT"
    assert tables.state.cluster.modes == {}


def test_the_number_that_is_wanted_is_a_number_only() -> None:
    tables = brokers("abcd")
    tables.done(AlterTopic("t", None, None, 0, 4))
    assert tables.state.cluster.topics["t"].replicas == 4
    assert tables.s.replicas == ("a", "b", "c")
    view = tables.state.cluster.topic_view(tables.queue().topic)
    assert view.replicas == 4
    tables.done(AlterTopic("t", 2, None, 0, 2))
    assert len(tables.queue(1).standing.replicas) == 2, "new queues begin with it"
    version = tables.state.cluster.version
    tables.done(AlterTopic("t", None, None, 0, 2))
    assert tables.state.cluster.version == version


@pytest.mark.parametrize(
    ("replicas", "code", "text"),
    [
        (0, "INVALID_ARGUMENT", "give 1 to 15"),
        (16, "INVALID_ARGUMENT", "give 1 to 15"),
        (5, "TOO_FEW_BROKERS", "there are 4"),
        (1, "INVALID_ARGUMENT", "min_in_sync 2: give 1 to 1"),
    ],
)
def test_an_impossible_number_is_refused(replicas: int, code: str, text: str) -> None:
    tables = brokers("abcd", min_in_sync=2)
    before = tables.state.snapshot()
    result = tables.apply(AlterTopic("t", None, None, 0, replicas))
    assert (result.code, text in result.text) == (code, True), result.text
    assert tables.state.snapshot() == before


# ── a broker that does not come back ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("accept_loss", [False, True])
def test_a_broker_whose_queues_have_other_copies_is_removed(accept_loss: bool) -> None:
    tables = brokers("abc")
    tables.fence("a")
    result = tables.done(RemoveBroker("a", accept_loss))
    assert result.text == ""
    assert (tables.s.replicas, tables.s.isr) == (("b", "c"), ("b", "c"))
    assert tables.state.cluster.topics["t"].replicas == 3, "it is still wanted"


def test_a_queue_without_another_replica_begins_anew_if_that_is_accepted() -> None:
    tables = brokers("ab", replicas=1)
    tables.fence("a")
    epoch = tables.queue().epoch
    refused = tables.apply(RemoveBroker("a"))
    assert "logboom broker drain a" in refused.text
    assert (tables.s.replicas, tables.queue().epoch) == (("a",), epoch)
    result = tables.done(RemoveBroker("a", accept_loss=True))
    assert result.text.startswith("1 queues had no other replica and begin anew, empty; 0 queues")
    assert (tables.s.replicas, tables.s.leader) == (("b",), "b")
    assert tables.queue().epoch > epoch


def test_the_best_of_the_others_leads_where_none_is_in_sync() -> None:
    tables = brokers("abc", min_in_sync=1)
    tables.change_isr("a")
    tables.fence("a")
    assert tables.apply(RemoveBroker("a")).code == "INVALID_ARGUMENT"
    result = tables.done(RemoveBroker("a", accept_loss=True))
    assert "1 queues are led by a replica that was not in sync" in result.text
    assert (tables.s.leader, tables.s.isr, tables.s.replicas) == ("b", ("b",), ("b", "c"))


def test_one_that_is_being_added_leads_only_where_there_is_no_other() -> None:
    tables = brokers("abc", replicas=2, min_in_sync=1)
    tables.change_isr("a")
    tables.move("c", "b")
    assert (tables.s.replicas, tables.s.uncounted) == (("c", "b", "a"), ("c",))
    tables.fence("a")
    result = tables.done(RemoveBroker("a", accept_loss=True))
    assert "1 queues are led by a replica that was not in sync" in result.text
    assert (tables.s.leader, tables.s.isr) == ("b", ("b",)), "c may have nothing yet"


def test_a_sound_replica_stands_for_a_removed_one_before_a_suspect_one() -> None:
    before = intern_replica_set(("a", "b", "c"), None, "a", "bc", suspect="c")
    given_up = give_up(before, "a", "c", 2)
    assert given_up is not None
    after, may_lose = given_up
    assert (after.isr, after.eligible, may_lose) == (("b",), ("c",), False)


def test_an_eligible_replica_leads_without_a_loss() -> None:
    tables = brokers("abc")
    tables.change_isr("a", "b")
    tables.fence("b")
    tables.fence("a")
    assert (tables.s.isr, tables.s.eligible) == (("a",), ("b",))
    result = tables.done(RemoveBroker("a"))
    assert result.text == ""
    assert (tables.s.isr, tables.s.leader) == (("b",), None)
    tables.register("b")
    assert tables.s.leader == "b"


@pytest.mark.parametrize("doubt", ["suspect", "damaged"])
def test_a_copy_in_doubt_does_not_hold_everything_for_certain(doubt: str) -> None:
    tables = brokers("ab", replicas=2, min_in_sync=2)
    if doubt == "suspect":
        tables.register("b", suspect=True)
        assert (tables.s.isr, tables.s.eligible, tables.s.suspect) == (("a",), ("b",), ("b",))
    else:
        tables.report_damage("b")
        assert (tables.s.isr, tables.s.damaged) == (("a",), ("b",))
    tables.fence("a")
    refused = tables.apply(RemoveBroker("a"))
    assert refused.code == "INVALID_ARGUMENT"
    assert "alone holds messages of 1 queues" in refused.text
    tables.done(RemoveBroker("a", accept_loss=True))
    assert (tables.s.replicas, tables.s.leader) == (("b",), "b")
    assert tables.state.cluster.losses


def test_nobody_stays_eligible_who_is_not_needed_without_the_removed_broker() -> None:
    tables = brokers("abcd", replicas=4)
    tables.change_isr("a", "b")
    before = tables.s
    assert before.eligible == ("c", "d"), "three copies are needed"
    tables.fence("d")
    tables.done(RemoveBroker("d", accept_loss=True))
    after = tables.s
    assert (after.isr, after.eligible) == (("a", "b"), ()), (
        "two are enough, and commit what c lacks"
    )


def test_a_removed_destination_ends_the_move_and_what_was_to_go_stays() -> None:
    tables = brokers()
    tables.move("d", "b", "c")
    tables.fence("d")
    tables.done(RemoveBroker("d"))
    assert (tables.s.replicas, tables.s.moving) == (("b", "c", "a"), False)
    assert set(tables.s.isr) == {"a", "b", "c"}


def test_a_removed_replica_that_was_to_stay_leaves_as_many_copies() -> None:
    tables = brokers()
    tables.fence("b")
    tables.move("a", "b")
    assert tables.s.removing == ("c",)
    tables.done(RemoveBroker("b"))
    assert (tables.s.replicas, tables.s.moving) == (("a", "c"), False)


def test_a_broker_that_a_move_gives_up_as_it_is_fenced_leaves_all_its_queues() -> None:
    # The move ends with the election, which takes the replica away from under the fencing.
    tables = brokers("ab", replicas=2)
    tables.create("u", replicas=2)
    for topic in ("t", "u"):
        tables.done(ElectLeader(topic, 0, "a", 0))
        assert tables.change_isr("a", name=topic) == ""
    tables.move("b")
    tables.fence("a")
    assert [tables.queue(0, topic).standing.leader for topic in ("t", "u")] == ["b", "b"]
    assert tables.s.replicas == ("b",)


def test_nobody_goes_while_no_replica_is_sound() -> None:
    # Both were in sync, and both may have lost messages: their tails decide who leads.
    tables = brokers("abcd", replicas=2)
    tables.move("c", "d")
    assert tables.change_isr("a", "c") == ""
    tables.register("c", suspect=True)
    tables.register("a", suspect=True)
    assert tables.s.leader is None
    tables.fence("c")
    refused = tables.cancel()
    assert refused.value == ["INVALID_ARGUMENT"]
    assert "c" in tables.s.replicas


def test_without_a_live_broker_nothing_is_given_up() -> None:
    tables = brokers("ab", replicas=1)
    tables.fence("a")
    tables.fence("b")
    refused = tables.apply(RemoveBroker("a", accept_loss=True))
    assert refused.code == "TOO_FEW_BROKERS"
    assert "a" in tables.state.cluster.brokers


# ── what is committed stays ─────────────────────────────────────────────────────────────────────

BROKERS = "abcde"
steps = st.lists(
    st.tuples(st.integers(0, 19), st.integers(0, 4), st.integers(0, 1_000)), max_size=80
)


class Copies:
    """Who holds everything that is committed, if the HW rises as far and as soon as it may."""

    def __init__(self, tables: Moving) -> None:
        self.tables = tables
        self.holders = set(tables.s.isr)

    def follow(self, joined: set[str]) -> None:
        """A command was applied: these joined the ISR, and the HW may have risen."""
        s = self.tables.s
        self.holders |= joined
        self.holders &= set(s.replicas)
        if s.leader is not None:
            assert s.leader in self.holders, f"{s.leader} leads without what is committed"
        assert set(s.isr) <= self.holders
        assert set(s.eligible) <= self.holders, "eligible are those that hold everything"
        if s.leader is not None and len(s.isr) >= self.tables.queue().need:
            self.holders = set(s.isr)


def disturb(tables: Moving, kind: int, who: int, dice: int) -> set[str]:
    """One thing that may happen while a queue is moved; nobody loses a disk.

    Returns those that a leader has brought into the ISR: they have what it has.
    """
    broker = BROKERS[who]
    queue, s = tables.queue(), tables.s
    subset = [b for n, b in enumerate(BROKERS) if dice >> n & 1]
    turned = subset[dice % 3 :] + subset[: dice % 3]
    match kind:
        case 0 | 1 | 2:
            if broker not in tables.state.cluster.alive:
                tables.register(broker, zone=broker if dice % 2 else "")
        case 3:
            if broker in tables.state.cluster.alive:
                tables.fence(broker)
        case 4:
            if broker in tables.state.cluster.alive:
                tables.step_down(broker)
        case 5 | 6 | 7 | 8 | 9 if s.leader is not None:
            wanted = {s.leader, *subset} & set(s.replicas) & tables.state.cluster.alive
            if dice % 3:
                wanted |= set(s.isr)
            if tables.change_isr(*wanted) == "":
                return wanted
        case 10 | 11 | 12 | 13:
            tables.try_to(*turned, force=dice % 4 == 0)
        case 14:
            tables.cancel()
        case 15:
            modes = ("active", "maintenance", "draining", "active", "drained")
            tables.apply(SetBrokerMode(broker, modes[dice % 5], 0))
        case 16:
            if broker in tables.state.cluster.alive:
                tables.report_room(broker, full=dice % 3 == 0)
        case 17:
            tables.apply(AlterTopic("t", None, TopicConfig(min_in_sync=dice % 4), 0))
        case 18:
            tables.apply(AlterTopic("t", None, None, 0, 1 + dice % 4))
        case 19:
            tables.apply(ElectLeader("t", 0, broker if dice % 2 else None, 0))
        case _:
            pass
    assert tables.queue() is queue
    return set()


@settings(max_examples=examples(400), deadline=None)
@given(steps, st.integers(1, 4))
def test_no_move_loses_what_is_committed(
    script: Sequence[tuple[int, int, int]], replicas: int
) -> None:
    tables = brokers(BROKERS, replicas=replicas)
    copies = Copies(tables)
    for kind, who, dice in script:
        before, need, held = tables.s, tables.queue().need, set(copies.holders)
        copies.follow(disturb(tables, kind, who, dice))
        if 10 <= kind <= 14 and tables.s.moving:
            stay = held & set(tables.s.replicas)
            counted = {*before.isr, *before.eligible}
            assert len(stay & counted) >= min(need, len(counted)), "a copy was given up"


@settings(max_examples=examples(200), deadline=None)
@given(steps, st.integers(1, 3), st.integers(0, 1_000))
def test_every_move_ends_once_nothing_is_in_its_way(
    script: Sequence[tuple[int, int, int]], replicas: int, dice: int
) -> None:
    tables = brokers(BROKERS, replicas=replicas)
    for kind, who, number in script:
        disturb(tables, kind, who, number)
    for broker in BROKERS:
        if broker not in tables.state.cluster.alive:
            tables.register(broker)
        tables.report_room(broker, full=False)
    # A queue that one member of its ISR was left of waits for just that one.
    assert tables.s.leader is not None
    for broker in tables.s.replicas:
        if tables.s.moving:
            leader = tables.s.leader
            assert leader is not None
            assert tables.change_isr(*{leader, broker, *tables.s.isr}) == ""
    assert not tables.s.moving
    assert set(tables.s.isr) <= set(tables.s.replicas)


def test_topics_are_deleted_and_grow_while_they_are_moved() -> None:
    tables = brokers("abcd", queues=2)
    tables.move("d", "b", "c")
    tables.done(AlterTopic("t", 5, None, 0))
    assert tables.s.adding == ("d",)
    tables.done(DeleteTopic("t", 0))
    assert all(not broker.queues for broker in tables.state.cluster.brokers.values())
    assert all(not broker.preferred for broker in tables.state.cluster.brokers.values())
    assert tables.state.cluster.displaced == {}


def test_moves_are_part_of_the_state() -> None:
    tables = brokers()
    tables.move("d", "b", "c")
    snapshot = tables.state.snapshot()
    twin = Moving()
    twin.epochs = tables.epochs
    twin.state.restore(snapshot)
    assert twin.state.snapshot() == snapshot
    assert twin.s.key() == tables.s.key()
    assert twin.queue() in twin.state.cluster.brokers["d"].queues
    twin.change_isr("a", "b", "c", "d")
    assert twin.s.replicas == ("d", "b", "c")
    assert three_brokers().queue().standing.key() == (
        ("a", "b", "c"),
        "a",
        ("a", "b", "c"),
        *[()] * 4,
    )
