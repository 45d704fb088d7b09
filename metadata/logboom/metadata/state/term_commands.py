"""Commands that name servers make for themselves: terms, founding, membership (R9, R12, R13)."""

from __future__ import annotations

from logboom.metadata.access.access_changes import drop_node_user
from logboom.metadata.raft.log_commands import (
    ForgetNameServer,
    NoteListeners,
    NoteNameServer,
)
from logboom.metadata.tables.cluster_state import OPEN, ClusterState, NodeListeners
from logboom.metadata.tables.command_outcome import DONE, CommandOutcome, refused
from logboom.metadata.tables.name_rules import (
    applied_endpoint_fault,
    broker_id_fault,
    listeners_fault,
)
from logboom.wire.commands import NewTerm
from logboom.wire.features import SUBSCRIPTION_RIGHTS


def new_term(cluster: ClusterState, command: NewTerm) -> CommandOutcome:
    """Begin a Raft leader's term; fences of other terms are refused from here on (R13)."""
    if command.term < cluster.term:
        text = f"term {command.term} comes too late: the term is {cluster.term}"
        return refused("STALE_EPOCH", text, epoch=cluster.term)
    cluster.term = command.term
    cluster.raft_leader = command.leader
    if not cluster.cluster_id:
        cluster.cluster_id = command.cluster_id
        cluster.features = command.features
        version = cluster.bump()
        if cluster.features >= SUBSCRIPTION_RIGHTS:
            cluster.access.book.enforce_subscription_rules(version)
    return DONE


def note_name_server(cluster: ClusterState, command: NoteNameServer) -> CommandOutcome:
    """Note the endpoints of a name server that is about to join; idempotent."""
    fault = broker_id_fault(command.name_server)
    if fault is not None:
        return refused("INVALID_NAME", fault.replace("broker", "name server", 1))
    fault = applied_endpoint_fault(command.endpoint) or applied_endpoint_fault(
        command.raft_endpoint
    )
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    name = command.name_server
    if name in cluster.former_name_servers:
        text = f"name server {name!r} was removed once: join under an id never used before"
        return refused("INVALID_ARGUMENT", text)
    cluster.name_servers[name] = (command.endpoint, command.raft_endpoint)
    if command.journal:
        cluster.journals[name] = command.journal
    cluster.bump()
    return DONE


def note_listeners(cluster: ClusterState, command: NoteListeners) -> CommandOutcome:
    """Note the listeners that a name server has bound, and its journal; idempotent."""
    fault = listeners_fault(command.listeners) or listeners_fault(command.raft_listeners)
    if fault is not None:
        return refused("INVALID_ARGUMENT", fault)
    name, found = command.name_server, NodeListeners(command.listeners, command.raft_listeners)
    if name in cluster.former_name_servers:
        return DONE
    if command.journal and name not in cluster.journals:
        cluster.journals[name] = command.journal
        cluster.bump()
    if cluster.listeners.get(name, OPEN) == found:
        return DONE
    if found == OPEN:
        del cluster.listeners[name]
    else:
        cluster.listeners[name] = found
    cluster.bump()
    return DONE


def forget_name_server(cluster: ClusterState, command: ForgetNameServer) -> CommandOutcome:
    """Note that a name server has left the group; its user goes too."""
    cluster.name_servers.pop(command.name_server, None)
    cluster.listeners.pop(command.name_server, None)
    cluster.journals.pop(command.name_server, None)
    cluster.former_name_servers[command.name_server] = None
    cluster.bump()
    drop_node_user(cluster, command.name_server)
    return DONE
