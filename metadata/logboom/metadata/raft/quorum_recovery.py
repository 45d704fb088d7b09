"""Recovery of a Raft group that lost its majority, from one survivor's journal.

The node of that journal is stopped. The newest membership entry of a log counts as soon as it is
there (see docs/SAFETY.md, R12), so a survivor whose journal gets an entry that names it alone is
the whole group at its next start: it elects itself and commits everything in its journal. Entries
that only the lost members held are gone, acknowledged or not, and entries that were never committed
may become so. Only an operator may therefore do this. The command that follows lets everything that
counts up continue above what the lost entries can have reached (R15).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from logboom.metadata.raft.journal_store import JournalStore
from logboom.metadata.raft.log_commands import (
    AnyLogCommand,
    ForgetNameServer,
    GoOnAlone,
    encode_entry,
    entry_of,
)
from logboom.metadata.raft.raft_entries import MembershipChange, pack_change, pack_commands
from logboom.metadata.raft.raft_log import RaftLog
from logboom.metadata.raft.raft_snapshot import own_snapshot

TERMS: Final = 1 << 20
"""Terms that a recovery passes over: the lost members may have had newer ones."""


@dataclass(frozen=True, slots=True, order=True)
class Survivor:
    """The extent of a stopped name server's journal; the greatest survivor holds the most."""

    last_term: int
    last_index: int
    name: str
    members: tuple[str, ...]
    """Raft ids of the group, as far as it knows, sorted."""


def examine(name: str, founders: Collection[str], disk: JournalStore) -> Survivor:
    """Read how far a journal goes.

    Raises:
        JournalError: journal or snapshot is damaged.
    """
    return _survivor(name, _open(founders, disk))


def go_on_alone(name: str, founders: Collection[str], disk: JournalStore) -> list[str]:
    """Make `name` the whole group, durably; return the ids that are removed for good.

    Raises:
        JournalError: journal or snapshot is damaged, or the journal cannot be written.
    """
    log = _open(founders, disk)
    gone = sorted((log.members | set(founders)) - {name})
    term = log.getCurrentTerm() + TERMS
    log.setCurrentTerm(term, None)
    log.add(pack_change(MembershipChange("found", (name,))), log.last_index + 1, term)
    wanted: list[AnyLogCommand] = [*(ForgetNameServer(other) for other in gone), GoOnAlone()]
    commands = [encode_entry(entry_of("", 0, 0, each)) for each in wanted]
    log.add(pack_commands(commands), log.last_index + 1, term)
    disk.sync()
    return gone


def _open(founders: Collection[str], disk: JournalStore) -> RaftLog:
    stored, saved = disk.load(), disk.load_snapshot()
    snapshot = own_snapshot(saved) if saved is not None else None
    return RaftLog(disk, stored, snapshot, founders)


def _survivor(name: str, log: RaftLog) -> Survivor:
    return Survivor(log[-1][2], log.last_index, name, tuple(sorted(log.members)))
