"""Log matching: how an append fits into the log (see docs/SAFETY.md, R2, R3, R11).

PySyncObj truncates everything after `previous_index` whenever an append carries entries, even equal
ones, and could so remove entries that it has acknowledged. It therefore only ever sees appends
whose first entry it really lacks, or empty ones at the end of its log. The answer to the leader is
decided here and not by PySyncObj.
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
    """The part of an append that PySyncObj sees, and the answer to the leader."""

    previous_index: int
    previous_term: int
    entries: list[Entry]
    commit_index: int
    matched: int = 0
    """The log agrees with the leader's up to this index; 0 if the append was rejected."""
    wanted: int = 0
    """First entry to send again after a rejection; 0 if the append was accepted."""


def match_append(
    log: RaftLog, commit_index: int, applied: int, append: AppendEntries
) -> MatchedAppend:
    """Fit an append into the log: trimmed, kept whole, or rejected with a hint.

    Entries up to the first one in the log are committed, because the snapshot holds them. By the
    election rule they match any leader's, and are trimmed without comparing their terms.
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
    """Place an empty append at the log's end, which truncates nothing (R2, R6)."""
    _, index, term = log[-1]
    return MatchedAppend(index, term, [], commit_index, matched, wanted)


def _appended(log: RaftLog, entries: list[Entry], commit_index: int) -> MatchedAppend:
    previous = entries[0][1] - 1
    term = log.term_at(previous)
    # The loop in `match_append` matched `previous`, or began right after the log's first entry.
    assert term is not None, f"entry {previous} is not in the log"
    last = entries[-1][1]
    return MatchedAppend(previous, term, entries, min(commit_index, last), last)


def _rejected(log: RaftLog, commit_index: int, applied: int) -> MatchedAppend:
    """Ask for everything after the shared prefix at once, and not for one entry per heartbeat."""
    return at_the_end(log, commit_index, wanted=max(commit_index, applied) + 1)
