"""SAFETY R1-R13 as far as the raft node keeps them: a test named after each rule."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from logboom.metadata.raft.journal_store import JournalError, StoredJournal
from logboom.metadata.raft.raft_config import (
    RaftConfig,
    RaftDivergedError,
    RaftError,
    Refusal,
    SubmitOutcome,
    SubmitStatus,
)
from logboom.metadata.raft.raft_entries import pack_commands
from logboom.metadata.raft.raft_frames import (
    AppendEntries,
    AppendResponse,
    Frame,
    SnapshotChunk,
    Vote,
    VoteRequest,
    chunks,
    decode,
    encode,
)
from logboom.metadata.raft.raft_snapshot import RaftSnapshot, decode_snapshot, encode_snapshot
from tests.sim.world.raft_disk import PowerLossError
from tests.sim.world.raft_group import Group

SMALL = RaftConfig(compact_entries=10, snapshot_chunk_bytes=64)


def follower_of(term: int = 1, entries: int = 5, config: RaftConfig | None = None) -> Group:
    """Members a, b, c; b holds entries 2..entries of a's term, a is only imitated by frames."""
    group = Group("a", "b", "c", config=config)
    made = [command(index, term) for index in range(2, entries + 1)]
    group.say("a", "b", AppendEntries(term, 1.0, 1, 1, 0, made))
    return group


def command(index: int, term: int) -> tuple[bytes, int, int]:
    return pack_commands([b"%d" % index]), index, term


def last_index(group: Group, name: str) -> int:
    value = group[name].node.status()["last_index"]
    assert isinstance(value, int)
    return value


def chunked(snapshot: RaftSnapshot, term: int) -> list[SnapshotChunk]:
    return chunks(encode_snapshot(snapshot), 24, term, 1.0)


def say_all(group: Group, frames: list[SnapshotChunk]) -> Frame:
    answers: list[Frame] = []
    for frame in frames:
        answers = group.say("a", "b", frame)
    (answer,) = answers
    return answer


def test_r1_a_malformed_frame_is_refused_and_a_gap_is_healed_by_a_new_session() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    assert not group["b"].node.receive("a", pickle.dumps({"type": "append_entries"}))
    assert not group["b"].node.receive("a", b"")
    leader.submit(b"lost on the way")
    group.turn("a")
    group.wires["a", "b"].clear()
    group.connect("a", "b")
    group.settle()
    assert group["b"].items == [b"lost on the way"]


def test_r1_nothing_on_wire_or_disk_is_pickled() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    leader.submit(b"x")
    leader.node.add_member("d", leader.outcomes.append)
    group.turn("a")
    frames = group.wires["a", "b"]
    assert frames
    for frame in frames:
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(frame)
        assert encode(decode(frame)) == frame
    for entry, _, _ in leader.disk.durable.entries:
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(entry[1:] or b"\x01")


def test_r2_an_overlapping_append_cuts_nothing() -> None:
    group = follower_of(entries=8)
    syncs = group["b"].disk.syncs
    answers = group.say("a", "b", AppendEntries(1, 2.0, 8, 2, 1, [command(3, 1), command(4, 1)]))
    assert answers == [AppendResponse(1, 2.0, matched=4)]
    assert last_index(group, "b") == 8
    assert group["b"].node.status()["log_cuts"] == 0
    assert group["b"].disk.syncs == syncs, "nothing was journalled again"
    assert group["b"].node.commit_index == 4, "capped at what matched"


def test_r2_only_the_new_end_of_an_overlapping_append_is_added() -> None:
    group = follower_of(entries=4)
    answers = group.say(
        "a", "b", AppendEntries(1, 2.0, 0, 2, 1, [command(i, 1) for i in (3, 4, 5, 6)])
    )
    assert answers == [AppendResponse(1, 2.0, matched=6)]
    assert last_index(group, "b") == 6


def test_r2_a_conflict_is_cut_from_the_first_entry_that_differs() -> None:
    group = follower_of(entries=6)
    fresh = [command(3, 1), command(4, 1), command(5, 3)]
    answers = group.say("a", "b", AppendEntries(3, 2.0, 0, 2, 1, fresh))
    assert answers == [AppendResponse(3, 2.0, matched=5)]
    assert last_index(group, "b") == 5
    assert group["b"].disk.durable.entries[-1] == command(5, 3)


def test_r2_what_is_committed_is_never_cut() -> None:
    group = follower_of(entries=6)
    group.say("a", "b", AppendEntries(1, 2.0, 6, 6, 1, []))
    with pytest.raises(RaftDivergedError, match="entry 5 was to be cut, but 6 is committed"):
        group.say("a", "b", AppendEntries(3, 3.0, 6, 4, 1, [command(5, 3)]))
    with pytest.raises(RaftDivergedError):
        group["b"].node.tick(group.time)


def test_r3_a_follower_that_lacks_entries_gets_them_in_one_round_trip() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    group.isolate("b")
    for number in range(50):
        leader.submit(b"%d" % number)
        group.step()
    group.rejoin("b")
    before = leader.node.status()["hints_heard"]
    group.settle(0.3)
    assert len(group["b"].items) == 50
    hints = leader.node.status()["hints_heard"]
    assert isinstance(hints, int)
    assert isinstance(before, int)
    assert hints - before <= 1


def test_r4_what_a_member_voted_and_holds_survives_a_power_loss() -> None:
    group = Group("a", "b", "c")
    assert group.say("a", "b", VoteRequest(4, 1, 0)) == [Vote(4)]
    group.crash("b")
    assert group["b"].node.term == 4
    assert group.say("c", "b", VoteRequest(4, 9, 3)) == [], "one vote in a term"


def test_r5_a_command_is_committed_by_one_exchange_without_a_heartbeat() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    leader.submit(b"one", b"two", b"three")
    group.turn("a")
    group.deliver("a", "b")
    group.turn("b")
    group.deliver("b", "a")
    group.turn("a")
    assert [outcome.result for outcome in leader.outcomes] == [
        b"done one",
        b"done two",
        b"done three",
    ]
    assert len({outcome.index for outcome in leader.outcomes}) == 1, "they share one entry"


def test_r6_an_older_snapshot_is_acknowledged_and_not_installed() -> None:
    group = follower_of(entries=6)
    group.say("a", "b", AppendEntries(1, 2.0, 6, 6, 1, []))
    group.turn("b")
    assert group["b"].node.applied_index == 6
    state = RaftSnapshot(command(2, 1), command(3, 1), ["a", "b", "c"], b"\x90")
    assert say_all(group, chunked(state, 1)) == AppendResponse(1, 1.0, matched=3)
    assert group["b"].restores == 0
    assert last_index(group, "b") == 6


def test_r6_a_snapshot_that_the_log_already_reaches_keeps_the_log() -> None:
    group = follower_of(entries=6)
    state = RaftSnapshot(command(3, 1), command(4, 1), ["a", "b", "c"], b"\x90")
    assert say_all(group, chunked(state, 1)) == AppendResponse(1, 1.0, matched=4)
    assert group["b"].restores == 0
    assert group["b"].node.commit_index == 4
    assert last_index(group, "b") == 6


def test_r6_a_newer_snapshot_replaces_log_and_state_at_once() -> None:
    group = follower_of(entries=6)
    state = RaftSnapshot(command(40, 2), command(41, 2), ["a", "b", "c"], b"\x91\xc4\x01x")
    frames = chunked(state, 2)
    assert len(frames) > 1
    assert say_all(group, frames) == AppendResponse(2, 1.0, matched=41)
    assert group["b"].items == [b"x"]
    assert (group["b"].node.applied_index, group["b"].node.commit_index) == (41, 41)
    group.crash("b")
    assert group["b"].items == [b"x"]
    assert group["b"].disk.durable.entries == [command(40, 2), command(41, 2)]


def test_r6_a_damaged_or_torn_snapshot_is_dropped_and_asked_for_again() -> None:
    group = follower_of(entries=6)
    state = RaftSnapshot(command(40, 2), command(41, 2), ["a", "b", "c"], b"\x90")
    frames = chunked(state, 2)
    data = bytearray(frames[-1].data)
    data[-1] ^= 1
    damaged = [*frames[:-1], SnapshotChunk(2, 1.0, len(frames) - 1, len(frames), bytes(data))]
    group.time += 1
    assert say_all(group, damaged) == AppendResponse(2, 1.0, wanted=2)
    assert group["b"].disk.snapshot is None
    group.say("a", "b", frames[0])
    group.connect("a", "b")
    assert say_all(group, frames[1:]) == AppendResponse(2, 1.0), (
        "its first chunk was of another session"
    )
    assert say_all(group, frames) == AppendResponse(2, 1.0, matched=41)


def _submit_until_power_fails(group: Group, count: int) -> None:
    member = group["a"]
    for number in range(count):
        member.submit(b"%d" % number)
        group.settle(0.03)


@pytest.mark.parametrize("operation", range(60))
def test_r6_a_power_loss_at_any_disk_operation_loses_nothing_acknowledged(operation: int) -> None:
    """A single member, so that nobody else can make good what its disk forgets."""
    group = Group("a", config=SMALL)
    member = group.elect("a")
    member.disk.fail_in = operation
    with pytest.raises(PowerLossError):
        _submit_until_power_fails(group, 40)
    group.crash("a")
    group.elect("a")
    acknowledged = [b"%d" % number for number in range(len(member.outcomes))]
    assert all(outcome.applied for outcome in member.outcomes)
    assert member.items[: len(acknowledged)] == acknowledged


def test_r6_the_last_test_met_compactions_on_its_way() -> None:
    group = Group("a", config=SMALL)
    member = group.elect("a")
    syncs = member.disk.syncs
    _submit_until_power_fails(group, 26)
    taken = member.node.status()["snapshots_taken"]
    assert isinstance(taken, int)
    # Two disk operations a sync, two a snapshot: the sixty of the last test reach past them.
    assert taken >= 2
    assert 2 * (member.disk.syncs - syncs) + 2 * taken <= 60


def compacted(kept: int) -> tuple[RaftSnapshot, list[tuple[bytes, int, int]]]:
    """A snapshot of entries up to 20, and a journal as it was before the trim."""
    entries = [command(index, 1) for index in range(1, 21 + kept)]
    return RaftSnapshot(entries[18], entries[19], ["a", "b", "c"], b"\x90"), entries


def test_r7_a_kill_between_snapshot_and_trim_keeps_what_follows_the_snapshot() -> None:
    group = Group("a", "b", "c")
    snapshot, entries = compacted(kept=5)
    disk = group["b"].disk
    disk.durable = StoredJournal(list(entries), term=1, commit_index=22)
    disk.snapshot = encode_snapshot(snapshot)
    group.crash("b")
    group.turn("b")
    assert disk.durable.entries == entries[18:]
    assert all(type(entry) is tuple for entry in disk.durable.entries)
    assert group["b"].items == [b"21", b"22"], "the committed ones after the snapshot"


def test_r7_a_snapshot_beyond_the_journal_replaces_it() -> None:
    group = Group("a", "b", "c")
    snapshot, entries = compacted(kept=0)
    disk = group["b"].disk
    disk.durable = StoredJournal(entries[:7], term=1, commit_index=5)
    disk.snapshot = encode_snapshot(snapshot)
    group.crash("b")
    group.turn("b")
    assert disk.durable.entries == entries[18:]
    assert group["b"].node.applied_index == 20


def test_r8_nothing_leaves_before_the_sync() -> None:
    group = follower_of(entries=3)
    node = group["b"].node
    assert node.receive("a", encode(AppendEntries(1, 2.0, 1, 3, 1, [command(4, 1)])))
    assert node.needs_sync
    with pytest.raises(RaftError, match=r"sync\(\) comes before take_outbox\(\)"):
        node.take_outbox()
    node.sync()
    assert [peer for peer, _ in node.take_outbox()] == ["a"]
    assert group["b"].disk.durable.entries[-1] == command(4, 1)


def test_r8_a_single_member_answers_only_what_is_on_its_disk() -> None:
    group = Group("a")
    member = group.elect("a")
    member.submit(b"x")
    member.node.tick(group.time)
    assert member.outcomes == []
    member.disk.fail_in = 0
    with pytest.raises(PowerLossError):
        member.node.tick(group.time)
    assert member.outcomes == []
    group.crash("a")
    assert group.elect("a").items == []


def test_r9_a_damaged_journal_or_snapshot_stops_the_node() -> None:
    group = Group("a", "b", "c")
    snapshot, entries = compacted(kept=2)
    disk = group["b"].disk
    good = encode_snapshot(snapshot)
    cases: list[tuple[bytes | None, StoredJournal, str]] = [
        (good[:-1], StoredJournal(entries), "snapshot is damaged"),
        (None, StoredJournal(entries[5:]), "the snapshot before it is missing"),
        (good, StoredJournal(entries[19:]), "after the snapshot's 20"),
        (good, StoredJournal(entries, commit_index=23), "ends at entry 22, but entry 23"),
        (None, StoredJournal(entries[:3] + entries[4:]), "the journal is damaged: entry 5"),
        (
            good,
            StoredJournal([*entries[:19], command(20, 2)], commit_index=20),
            "disagree about committed entry 20",
        ),
    ]
    for saved, stored, what in cases:
        disk.snapshot, disk.durable = saved, stored
        with pytest.raises(JournalError, match=what):
            group.open("b")


def test_r10_an_answer_of_another_term_is_dropped() -> None:
    group = Group("a", "b", "c", "d", "e")
    leader = group.elect("a")
    term, end = leader.node.term, last_index(group, "a")
    leader.submit(b"x")
    group.turn("a")
    for peer in ("b", "c"):
        group.say(peer, "a", AppendResponse(term - 1, group.time, matched=end + 1))
    group.turn("a")
    assert leader.node.commit_index == end
    for peer in ("b", "c"):
        group.say(peer, "a", AppendResponse(term, group.time, matched=end + 1))
    group.turn("a")
    assert leader.node.commit_index == end + 1


def test_r10_a_vote_counts_once_per_member() -> None:
    group = Group("a", "b", "c", "d", "e")
    node = group["a"].node
    for _ in range(200):
        group.time += 0.01
        group.turn("a")
        for peer in ("b", "c", "d", "e"):
            group.deliver("a", peer)
            group[peer].node.sync()
            for to, frame in group[peer].node.take_outbox():
                if to == "a" and not isinstance(decode(frame), Vote):
                    group["a"].node.receive(peer, frame)
        if node.status()["role"] == "candidate":
            break
    assert node.status()["role"] == "candidate"
    for _ in range(5):
        group.say("b", "a", Vote(node.term))
    assert not node.is_leader
    group.say("c", "a", Vote(node.term))
    assert node.is_leader


def test_r10_a_new_session_empties_the_outbox_and_old_frames_are_dropped() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    leader.submit(b"x")
    leader.node.tick(group.time)
    leader.node.sync()
    leader.node.peer_up("b", 99)
    assert {peer for peer, _ in leader.node.take_outbox()} == {"c"}
    end = last_index(group, "a")
    old = encode(AppendResponse(leader.node.term, group.time, matched=end))
    assert leader.node.receive("b", old, session=98)
    group.turn("a")
    assert leader.node.commit_index == end - 1
    assert leader.node.receive("b", old, session=99)
    group.turn("a")
    assert leader.node.commit_index == end


def test_r11_a_hint_names_what_is_surely_missing_at_most_once_a_heartbeat() -> None:
    group = follower_of(entries=6)
    group.say("a", "b", AppendEntries(1, 2.0, 4, 6, 1, []))
    ahead = AppendEntries(1, 3.0, 4, 30, 1, [command(31, 1)])
    assert group.say("a", "b", ahead) == [AppendResponse(1, 3.0, wanted=5)]
    assert group.say("a", "b", ahead) == [AppendResponse(1, 3.0)], "alive, but no second hint"
    group.time += 1.01 * group.config.heartbeat_s
    assert group.say("a", "b", ahead) == [AppendResponse(1, 3.0, wanted=5)]


def test_r11_the_commit_index_survives_a_restart() -> None:
    group = follower_of(entries=6)
    group.say("a", "b", AppendEntries(1, 2.0, 5, 6, 1, [command(7, 1)]))
    group.turn("b")
    group.crash("b")
    assert group["b"].node.commit_index == 5
    group.turn("b")
    assert group["b"].items == [b"2", b"3", b"4", b"5"]


def test_r11_a_command_too_long_is_refused_and_a_full_turn_is_split() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    limit = group.config.max_command_bytes
    leader.submit(bytes(limit + 1))
    leader.submit(bytes(limit), *[b"%d" % n + bytes(9_000) for n in range(10)])
    group.settle(0.2)
    refused, *applied = leader.outcomes
    assert refused == SubmitOutcome(SubmitStatus.REFUSED, refusal=Refusal.TOO_LARGE)
    assert all(outcome.applied for outcome in applied)
    assert len({outcome.index for outcome in applied}) == 3
    assert len(group["c"].items) == 11
    longest = max(len(entry) for entry, _, _ in leader.disk.durable.entries)
    assert longest < group.config.append_batch_bytes


def test_r11_an_entry_in_pieces_is_no_frame_of_ours() -> None:
    assert not Group("a", "b", "c")["b"].node.receive(
        "a", encode(AppendEntries(1, 1.0, 1, 1, 0, [])).replace(b"append", b"transm")
    )


def test_r12_one_membership_change_at_a_time() -> None:
    group = Group("a", "b", "c", "d", "e", founders=("a", "b", "c"))
    leader = group.elect("a")
    leader.node.add_member("d", leader.outcomes.append)
    leader.node.add_member("e", leader.outcomes.append)
    leader.node.add_member("b", leader.outcomes.append)
    leader.node.remove_member("a", leader.outcomes.append)
    group.settle(0.5)
    by_status = sorted(leader.outcomes, key=lambda outcome: str(outcome.refusal))
    assert [outcome.refusal for outcome in by_status] == [
        None,
        Refusal.CHANGE_PENDING,
        Refusal.CHANGE_PENDING,
        Refusal.IS_LEADER,
    ]
    assert leader.node.members == {"a", "b", "c", "d"}
    assert all(group[name].node.members == leader.node.members for name in "bcd")
    leader.node.add_member("b", leader.outcomes.append)
    group.settle(0.1)
    assert leader.outcomes[-1].refusal is Refusal.NOTHING_TO_CHANGE


def test_r12_who_joins_counts_as_the_others_do_whoever_it_was_told_of() -> None:
    """It is told who answers, and one of the members may be away: it must not count a smaller group."""
    group = Group("a", "b", "c", "d", founders=("a", "b", "c"), told={"d": ("a", "b")})
    leader = group.elect("a")
    group.isolate("c")
    leader.node.add_member("d", leader.outcomes.append)
    group.settle(0.5)
    everybody = {"a", "b", "c", "d"}
    assert group["d"].node.members == everybody
    group.crash("d")
    assert group["d"].node.members == everybody
    group.settle(0.5)
    leader.node.remove_member("c", leader.outcomes.append)
    group.settle(0.5)
    assert [group[name].node.members for name in "abd"] == [everybody - {"c"}] * 3


def test_r12_the_newest_membership_in_the_log_counts_after_a_restart_and_a_snapshot() -> None:
    group = Group("a", "b", "c", "d", config=SMALL, founders=("a", "b", "c"))
    leader = group.elect("a")
    leader.node.add_member("d", leader.outcomes.append)
    group.settle(0.3)
    group.crash("b")
    assert group["b"].node.members == {"a", "b", "c", "d"}, "before anything is applied"
    for number in range(40):
        leader.submit(b"%d" % number)
        group.step()
    group.settle(0.5)
    saved = group["b"].disk.snapshot
    assert saved is not None
    assert decode_snapshot(saved).members == ["a", "b", "c", "d"]
    group.crash("b")
    assert group["b"].node.members == {"a", "b", "c", "d"}


def test_r12_what_counts_is_taken_from_members_only() -> None:
    group = Group("a", "b", "c", "x", founders=("a", "b", "c"))
    leader = group.elect("a")
    group.isolate("b")
    group.isolate("c")
    leader.submit(b"x")
    group.turn("a")
    end = last_index(group, "a")
    group.say("x", "a", AppendResponse(leader.node.term, group.time, matched=end))
    group.turn("a")
    assert leader.outcomes == []
    assert leader.node.commit_index == end - 1


def test_r12_a_leader_that_a_lagging_member_does_not_know_yet_is_followed() -> None:
    """Else a member that missed an addition would drop the new leader's word for ever."""
    group = Group("a", "b", "c", "d", founders=("a", "b", "c"))
    group.elect("a")
    group.isolate("c")
    group["a"].node.add_member("d", group["a"].outcomes.append)
    group.settle(0.5)
    group.isolate("a")
    group.rejoin("c")
    group.cut("a", "c")
    for _ in range(600):
        group.step()
        if group["d"].node.is_leader or group["b"].node.is_leader:
            break
    group.settle(1)
    assert group["c"].node.members == {"a", "b", "c", "d"}
    assert group["c"].node.leader in {"b", "d"}


def test_r12_a_node_that_is_no_member_never_stands() -> None:
    group = Group("a", "b", "x", founders=("a", "b"))
    for _ in range(400):
        group.time += 0.01
        group.turn("x")
        group.deliver("x", "a")
    assert group["x"].node.status()["elections_begun"] == 0
    assert group["a"].node.term == 0


def test_r13_only_the_leader_submits() -> None:
    group = Group("a", "b", "c")
    group.elect("a")
    group["b"].submit(b"x")
    group.settle(0.2)
    assert group["b"].outcomes == [SubmitOutcome(SubmitStatus.REFUSED, refusal=Refusal.NOT_LEADER)]
    assert group["a"].items == []


def test_r13_what_was_submitted_in_a_lost_term_is_refused_and_what_waited_is_unknown() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    leader.submit(b"waits")
    group.turn("a")
    leader.submit(b"not shipped")
    assert leader.node.receive("b", encode(AppendEntries(9, 1.0, 1, 1, 0, [])))
    group.turn("a")
    assert [outcome.status for outcome in leader.outcomes] == [
        SubmitStatus.UNKNOWN,
        SubmitStatus.REFUSED,
    ]


def test_r13_a_leader_that_was_away_grants_nothing_on_old_answers() -> None:
    group = Group("a", "b", "c")
    leader = group.elect("a")
    assert leader.node.leads_at(group.time)
    group.turn("a")
    for peer in ("b", "c"):
        group.deliver("a", peer)
        group[peer].node.sync()
        for to, frame in group[peer].node.take_outbox():
            group.wires[peer, to].append(frame)
    group.time += 5.0  # stopped here; the answers wait in its sockets
    for peer in ("b", "c"):
        group.deliver(peer, "a")
    assert not leader.node.leads_at(group.time)
    group.turn("a")
    assert not leader.node.is_leader


def test_r13_apply_is_told_the_term_of_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group("a", "b", "c")
    seen: list[tuple[int, int]] = []
    leader = group.elect("a")
    inner = leader.apply

    def apply(body: bytes) -> bytes:
        seen.append((leader.node.applying_index, leader.node.applying_term))
        return inner(body)

    monkeypatch.setattr(leader, "apply", apply)
    leader.submit(b"x")
    group.settle(0.2)
    (outcome,) = leader.outcomes
    assert seen == [(outcome.index, outcome.term)] == [(outcome.index, leader.node.term)]


def test_a_configuration_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="election_min_s > 3"):
        replace(RaftConfig(), heartbeat_s=0.2)
    with pytest.raises(ValueError, match="append_batch_bytes > max_command_bytes"):
        replace(RaftConfig(), append_batch_bytes=60 * 1024)
