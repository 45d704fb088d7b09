"""Where an append meets the log (SAFETY R2, R3, R11): pure, and the heart of the wrap.

PySyncObj cuts everything after `previous_index` whenever an append carries entries, even equal
ones. So it is only ever shown appends whose first entry it really lacks, or empty ones at the end
of its log; what the leader is told is decided here and not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logboom.metadata.raft.journal_store import Entry
    from logboom.metadata.raft.raft_frames import AppendEntries
    from logboom.metadata.raft.raft_log import RaftLog


@dataclass(frozen=True, slots=True)
class MatchedAppend:
    """What PySyncObj is shown of an append, and what the leader is answered."""

    previous_index: int
    previous_term: int
    entries: list[Entry]
    commit_index: int
    matched: int = 0
    """The log agrees with the leader's up to here; 0: it was rejected."""
    wanted: int = 0
    """First entry to send again after a rejection; 0: accepted."""


def match_append(
    log: RaftLog, commit_index: int, applied: int, append: AppendEntries
) -> MatchedAppend:
    """Fit an append into the log: trimmed, kept whole, or rejected with a hint.

    Entries up to the log's first are committed (the snapshot holds them), so they match any
    leader's by the election rule and are trimmed without a look at their terms.
    """
    previous, entries = append.previous_index, append.entries
    if previous < log.first_index:
        trimmed = min(len(entries), log.first_index - previous)
        matched = previous + trimmed
        entries = entries[trimmed:]
    elif log.term_at(previous) == append.previous_term:
        matched = previous
    else:
        return _rejected(log, commit_index, applied)
    for position, entry in enumerate(entries):
        if log.term_at(entry[1]) != entry[2]:
            return _appended(log, entries[position:], append.commit_index)
        matched = entry[1]
    return at_the_end(log, min(append.commit_index, matched), matched)


def at_the_end(log: RaftLog, commit_index: int, matched: int = 0, wanted: int = 0) -> MatchedAppend:
    """An empty append at the log's end: it proves the leader alive and cuts nothing (R2, R6)."""
    _, index, term = log[-1]
    return MatchedAppend(index, term, [], commit_index, matched, wanted)


def _appended(log: RaftLog, entries: list[Entry], commit_index: int) -> MatchedAppend:
    previous = entries[0][1] - 1
    term = log.term_at(previous)
    # The loop in `match_append` matched `previous` or began right behind the log's first entry.
    assert term is not None, f"entry {previous} is not in the log"
    last = entries[-1][1]
    return MatchedAppend(previous, term, entries, min(commit_index, last), last)


def _rejected(log: RaftLog, commit_index: int, applied: int) -> MatchedAppend:
    """Ask for everything after what is surely shared, at once and not one entry a heartbeat."""
    return at_the_end(log, commit_index, wanted=max(commit_index, applied) + 1)
