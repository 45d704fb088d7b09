"""Which journal counts under the Raft id of a name server, as the log says it (R9).

The leader notes the id of a newcomer's journal before the newcomer becomes a member, so that the
journal is known wherever the member counts. The journals of other members are noted once they are
heard. The note of a member never changes: who comes back with another journal has lost its disk.
"""

from __future__ import annotations

from logboom.metadata.raft.log_commands import NoteNameServer, decode_entry
from logboom.metadata.raft.raft_node import RaftNode
from logboom.metadata.tables.cluster_state import ClusterState


def noted_journal(cluster: ClusterState, raft: RaftNode, name: str) -> str:
    """Return the id of the journal that counts under a member's Raft id; "" if it is unknown."""
    return cluster.journals.get(name, "") if name in raft.applied_members else ""


def is_foreign(cluster: ClusterState, raft: RaftNode) -> bool:
    """Return True if another journal than this node's counts under its Raft id."""
    noted = noted_journal(cluster, raft, raft.node_id)
    return bool(noted and raft.journal_id) and noted != raft.journal_id


def named_journal(cluster: ClusterState, raft: RaftNode, name: str) -> str:
    """Return the id of the journal that the log names for a member; "" if it names none.

    The log may do so beyond what is known to be committed: after a power failure of all, those who
    have just been added are needed to elect a leader.
    """
    if name not in raft.members:
        return ""
    noted = cluster.journals.get(name, "")
    if noted:
        return noted
    later = (decode_entry(command).command for command in raft.unapplied_commands())
    notes = (
        command.journal
        for command in later
        if isinstance(command, NoteNameServer) and command.name_server == name
    )
    return next(filter(None, notes), "")


def has_joined(cluster: ClusterState, raft: RaftNode) -> bool:
    """Return True if the log names this node's journal as a member's.

    Below features level 1 no journals are noted.
    """
    if cluster.cluster_id and not cluster.features:
        return raft.node_id in raft.members
    return bool(raft.journal_id) and named_journal(cluster, raft, raft.node_id) == raft.journal_id


def foreign_journal_text(name: str, peer: str = "") -> str:
    """Return why a name server whose journal does not count has to end, and how to go on."""
    knows = f"{peer} knows it" if peer else "the group knows it"
    return (
        f"this is not the data folder of {name}: it is new, but {knows} with another one; a name "
        "server that lost its disk never votes again under its old id (SAFETY R9): bring the old folder "
        f"back, or remove it with `logboom name-server remove {name}` and add it with an empty folder "
        "under a new id"
    )
