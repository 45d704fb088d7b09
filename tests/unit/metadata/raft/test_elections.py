"""Elections, hand-over and the wrap itself: what the group does when nobody breaks a rule."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pysyncobj.syncobj
import pytest

from logboom.metadata.raft.engine import REPLACED, engine_class
from logboom.metadata.raft.journal_store import StoredJournal
from logboom.metadata.raft.raft_config import RaftError
from logboom.metadata.raft.state_hashes import StateHashes
from tests.sim.world.raft_group import STEP_S, Group


def steps_until_one_leads(group: Group, among: str) -> float:
    """Seconds of virtual time until one of these members leads."""
    began = group.time
    for _ in range(1000):
        group.step()
        if any(group[name].node.is_leader for name in among):
            return group.time - began
    raise AssertionError("nobody was elected")


def test_a_new_group_has_a_leader_within_a_second() -> None:
    assert steps_until_one_leads(Group("a", "b", "c"), "abc") < 1.0


def test_a_single_member_leads_at_once() -> None:
    group = Group("a")
    group.elect("a").submit(b"x")
    while not group["a"].outcomes:
        group.turn("a")
        assert group["a"].node.deadline <= group.time or group["a"].outcomes
    assert group["a"].outcomes[0].applied


def test_a_dead_leader_is_replaced_within_two_seconds_and_goes_on_with_what_was_committed() -> None:
    group = Group("a", "b", "c")
    group.elect("a").submit(b"kept")
    group.settle(0.3)
    group.isolate("a")
    assert steps_until_one_leads(group, "bc") < 2.0
    group.settle(1.5)
    assert not group["a"].node.is_leader, "without a majority it steps down"
    group.rejoin("a")
    group.settle(1)
    assert [group[name].items for name in "abc"] == [[b"kept"]] * 3


def test_a_turn_that_concerns_nobody_needs_no_tick_and_any_other_does() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    group.turn("a")
    now = group.time
    assert not leader.node.due(now)
    assert not leader.node.due(leader.node.deadline - 0.001)
    assert leader.node.due(leader.node.deadline)
    leader.submit(b"x")
    assert leader.node.due(now)
    group.turn("a")
    assert not leader.node.due(now)
    group.turn("b")
    assert not group["b"].node.due(now)
    group.deliver("a", "b")
    assert group["b"].node.due(now), "it is to apply and answer"
    group.turn("b")
    group.deliver("b", "a")
    assert leader.node.due(now), "it is to commit"
    group.turn("a")
    assert leader.items == [b"x"]
    group["c"].submit(b"y")
    assert group["c"].node.due(now), "the refusal is to be given out"
    group.turn("b")
    group.cut("a", "b")
    assert leader.node.due(now)
    assert group["b"].node.due(now)


def test_a_leader_whom_nobody_answers_steps_down_on_the_dot_though_it_ticks_only_when_due() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    group.isolate("a")
    began = group.time
    ticks = 0
    while leader.node.is_leader:
        group.time = max(group.time + 0.000_1, leader.node.deadline)
        assert leader.node.due(group.time)
        group.turn("a")
        ticks += 1
    assert group.time - began <= group.config.leader_fallback_s
    assert ticks < 30


def test_a_member_that_comes_back_does_not_depose_the_leader() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    term = leader.node.term
    group.cut("a", "b")  # b still hears c, which still hears the leader
    group.settle(5)
    group.connect("a", "b")
    group.settle(2)
    assert (group.leader().name, leader.node.term) == ("a", term)


def test_a_leader_whose_term_is_behind_a_member_catches_up() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    group["b"].disk.durable.term += 5
    group.crash("b")
    group.settle(3)
    assert group.leader().node.term > 5
    group.leader().submit(b"x")
    group.settle(0.5)
    assert [group[name].items for name in "abc"] == [[b"x"]] * 3
    assert leader.node.status()["role"] in {"leader", "follower"}


def test_leadership_is_handed_over_on_request() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    assert leader.node.transfer_leadership()
    group.settle(0.2)
    assert group.leader().name in "bc"
    assert not leader.node.transfer_leadership()


def test_the_deadline_is_never_missed_by_sleeping_until_it() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    group.turn("a")
    due = leader.node.deadline
    assert 0 < due - group.time <= group.config.heartbeat_s + STEP_S
    group.time = due
    group.turn("a")
    assert group.wires["a", "b"], "the heartbeat left"
    follower = group["b"].node
    assert group.time < follower.deadline <= group.time + group.config.election_max_s + STEP_S


def test_a_disk_that_fails_ends_the_node() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    failed = RaftError("the journal cannot be written: EIO")

    def sync() -> None:
        raise failed

    leader.disk.sync = sync  # type: ignore[method-assign]  # a disk that fails
    leader.submit(b"x")
    leader.node.tick(group.time)
    with pytest.raises(RaftError, match="EIO"):
        leader.node.sync()
    with pytest.raises(RaftError, match="EIO"):
        leader.node.tick(group.time)
    assert leader.outcomes == []


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_node_has_no_thread_no_file_and_leaves_the_shared_module_alone() -> None:
    before = dict(vars(pysyncobj.syncobj))
    threads, files = threading.active_count(), open_files()
    group = Group("a", "b", "c")
    group.elect("a").submit(b"x")
    group.settle(0.5)
    assert threading.active_count() == threads
    assert open_files() == files
    assert vars(pysyncobj.syncobj) == before


def test_another_version_of_pysyncobj_is_noticed() -> None:
    class Renamed:
        class SyncObj:
            """Lacks what we replace."""

        class Node:
            """Same."""

    first = next(iter(REPLACED))
    with pytest.raises(AssertionError, match=f"PySyncObj has no {first}"):
        engine_class(Renamed)  # type: ignore[arg-type]  # stands for another version's module


def test_two_leaders_of_one_term_stop_the_node() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    frames = group.wires["a", "b"]
    leader.submit(b"x")
    group.turn("a")
    with pytest.raises(RaftError, match="claims to lead in term"):
        leader.node.receive("b", frames[-1])


def test_an_entry_of_an_unknown_kind_stops_the_node() -> None:
    group = Group("a", "b", "c")
    disk = group["b"].disk
    group.turn("b")
    disk.durable = StoredJournal([*disk.durable.entries, (b"\x09new", 2, 1)], 1, None, 2)
    group.crash("b")
    with pytest.raises(RaftError, match="of a kind unknown to this program"):
        group.turn("b")


def test_a_state_that_fails_on_a_command_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")

    def apply(_command: bytes) -> bytes:
        raise KeyError("topic")

    monkeypatch.setattr(leader, "apply", apply)
    leader.submit(b"x")
    with pytest.raises(RaftError, match="the state failed on entry 3: KeyError"):
        group.settle(0.2)
    with pytest.raises(RaftError, match="the state failed on entry 3"):
        leader.node.tick(group.time)
    assert leader.outcomes == []


def test_states_that_differ_raise_the_alarm(caplog: pytest.LogCaptureFixture) -> None:
    hashes = StateHashes("b")
    hashes.hear(8, b"of the leader")
    with caplog.at_level(logging.ERROR):
        hashes.take(8, b"another state")
    assert (hashes.compared, hashes.mismatches) == (1, 1)
    assert "state_diverged index=8" in caplog.text
    assert "the state after entry 8 differs" in caplog.text
    same = StateHashes("c")
    same.take(8, b"another state")
    hashes.hear(*same.newest)
    assert hashes.mismatches == 1, "each index is compared once"
