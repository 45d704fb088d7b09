"""Counters of the replicated state, for STATS."""

from __future__ import annotations

from logboom.metadata.state.state_machine import StateMachine
from logboom.wire.access.access_book import AccessBook
from logboom.wire.stats import FigureTable


def figures_of(state: StateMachine) -> FigureTable:
    """Return the sizes of the tables and the number of leader changes."""
    cluster = state.cluster
    return {
        "cluster_id": cluster.cluster_id,
        "version": cluster.version,
        "brokers": len(cluster.brokers),
        "brokers_alive": len(cluster.alive),
        "brokers.alive": len(cluster.alive),
        "brokers.fenced": len(cluster.brokers) - len(cluster.alive),
        "topics": len(cluster.topics),
        "queues": sum(len(topic.queues) for topic in cluster.topics.values()),
        "queues_displaced": len(cluster.displaced),
        "queues_leaderless": len(cluster.leaderless),
        "elections": cluster.elections,
        "unclean_elections": cluster.unclean_elections,
        "groups": len(cluster.groups.by_name),
        "group_members": sum(len(group.members) for group in cluster.groups.by_name.values()),
        "transaction_apps": len(cluster.transactions.apps),
        "decisions_open": len(cluster.transactions.decisions),
        "proposers": len(state.dedup.windows),
    }


def next_key_end_ms(book: AccessBook) -> int:
    """Return when the next key of a user ends, by the clock of the Raft log; 0: none is to end."""
    ends = (
        key.log_end_ms
        for user in book.users.values()
        for key in user.keys
        if key.log_end_ms and not key.ended
    )
    return min(ends, default=0)
