"""Where an append meets the log: every overlap of two histories that raft allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logboom.metadata.raft.journal_store import Entry, StoredJournal
from logboom.metadata.raft.log_matching import at_the_end, match_append
from logboom.metadata.raft.raft_config import RaftDivergedError
from logboom.metadata.raft.raft_frames import AppendEntries
from logboom.metadata.raft.raft_log import RaftLog
from tests.sim.world.raft_disk import SimulatedDisk


def entries_of(terms: list[int], start: int = 2) -> list[Entry]:
    """Entries after the first, whose terms never fall."""
    return [(b"\x00\x90" + b"%d" % term, start + at, term) for at, term in enumerate(sorted(terms))]


def log_of(entries: list[Entry]) -> RaftLog:
    first: Entry = (b"\x01", 1, 0)
    return RaftLog(SimulatedDisk(), StoredJournal([first, *entries]), None, ["a"])


@st.composite
def meetings(draw: st.DrawFn) -> tuple[list[Entry], list[Entry], int, int, int]:
    """(leader's log, follower's log, shared end, first entry sent, how many are sent).

    Beyond the shared end the terms differ at every index, as raft's log matching demands.
    """
    shared = draw(st.lists(st.integers(1, 3), max_size=8))
    end = 1 + len(shared)
    leaders = draw(st.lists(st.integers(6, 8), max_size=8))
    followers = draw(st.lists(st.integers(4, 5), max_size=8))
    leader = entries_of(shared) + entries_of(leaders, end + 1)
    follower = entries_of(shared) + entries_of(followers, end + 1)
    first = draw(st.integers(2, len(leader) + 2))
    return leader, follower, end, first, draw(st.integers(0, 10))


@given(meetings(), st.integers(0, 30))
def test_the_log_comes_to_agree_and_loses_nothing_that_matched(
    meeting: tuple[list[Entry], list[Entry], int, int, int], commit_index: int
) -> None:
    leader, follower, shared_end, first, count = meeting
    log, whole = log_of(follower), [(b"\x01", 1, 0), *leader]
    sent = leader[first - 2 : first - 2 + count]
    append = AppendEntries(9, 1.0, commit_index, first - 1, whole[first - 2][2], sent)
    placed = match_append(log, 1, 1, append)
    if placed.wanted:
        assert first - 1 > shared_end, "rejected only when what came before is not shared"
        assert (placed.wanted, placed.entries) == (2, [])
        assert placed.previous_index == log.last_index
        return
    matched = first - 1 + len(sent)
    assert placed.matched == matched
    assert placed.commit_index <= matched
    # What PySyncObj does with it: cut after `previous_index`, then add.
    kept = [entry for entry in log[:] if entry[1] <= placed.previous_index]
    after = kept + placed.entries
    assert after[:matched] == whole[:matched]
    if matched <= shared_end:
        assert after == log[:], "all matched: nothing is cut"
    assert placed.previous_index >= min(shared_end, log.last_index)


@given(st.integers(1, 12), st.integers(0, 12))
def test_what_the_snapshot_holds_is_trimmed_and_acknowledged(previous: int, count: int) -> None:
    whole = [(b"\x01", 1, 0), *entries_of([1] * 20)]
    log = log_of(whole[1:15])
    log.deleteEntriesTo(9)  # begins at 10
    sent = whole[previous : previous + count]
    placed = match_append(
        log, 11, 11, AppendEntries(1, 1.0, 30, previous, whole[previous - 1][2], sent)
    )
    assert placed.wanted == 0
    assert placed.matched == previous + len(sent)
    assert all(entry[1] > 15 for entry in placed.entries)
    assert placed.previous_index >= 10


def test_an_empty_append_at_the_end_names_the_last_entry() -> None:
    log = log_of(entries_of([1, 1, 2]))
    placed = at_the_end(log, 3, matched=3)
    assert (placed.previous_index, placed.previous_term, placed.entries) == (4, 2, [])


def test_an_entry_that_is_committed_is_never_cut_and_the_next_may_be() -> None:
    log = log_of(entries_of([1, 1, 1, 1]))
    log.setRaftCommitIndex(3)
    for position in (0, 1, 2):
        with pytest.raises(RaftDivergedError, match="but 3 is committed"):
            log.deleteEntriesFrom(position)
        assert log.last_index == 5
    log.deleteEntriesFrom(3)
    assert log.last_index == 3
