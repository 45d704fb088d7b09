"""The Raft leader's duty to note the listeners that each name server has bound, and its journal.

A name server tells them on its Raft links, so that what the state says was true of a running
process. Others dial it by its listeners, and clients are told them. Another journal than the one that
was noted never counts under the same Raft id (R9).
"""

from __future__ import annotations

from collections.abc import Mapping

from logboom.metadata.proposal_checks import announced_fault
from logboom.metadata.raft.log_commands import NoteListeners
from logboom.metadata.raft.raft_links import Announced
from logboom.metadata.tables.cluster_state import OPEN, ClusterState


class ListenerNotes:
    """The notes that are to be made, and those that are under way."""

    def __init__(self) -> None:
        self._under_way: set[str] = set()

    def take(
        self,
        cluster: ClusterState,
        announced: Mapping[str, Announced],
        journals: Mapping[str, str],
    ) -> list[NoteListeners]:
        """Return the notes that are due, given what name servers have announced, by id."""
        new = {
            name: journal
            for name, journal in journals.items()
            # An older name server would not know of it (M7).
            if cluster.features and name not in cluster.journals
        }
        due = [
            NoteListeners(name, *found, new.get(name, ""))
            for name, found in announced.items()
            if (cluster.listeners.get(name, OPEN) != found or new.get(name))
            and name not in self._under_way
            and name not in cluster.former_name_servers
            and announced_fault(each.endpoint for views in found for each in views) is None
        ]
        self._under_way.update(note.name_server for note in due)
        return due

    def ended(self, name: str) -> None:
        """Note that a command was applied, or was not: then it is due again."""
        self._under_way.discard(name)
