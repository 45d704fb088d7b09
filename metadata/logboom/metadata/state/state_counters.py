"""Counters of the replicated state, for STATS."""

from __future__ import annotations

from typing import TypeAlias

from logboom.metadata.state.state_machine import StateMachine

Figures: TypeAlias = dict[str, int | float | str]
"""Name → value; flat."""


def figures_of(state: StateMachine) -> Figures:
    """Return the sizes of the tables and the number of leader changes."""
    cluster = state.cluster
    return {
        "cluster_id": cluster.cluster_id,
        "version": cluster.version,
        "brokers": len(cluster.brokers),
        "brokers_alive": len(cluster.alive),
        "topics": len(cluster.topics),
        "queues": sum(len(topic.queues) for topic in cluster.topics.values()),
        "queues_displaced": len(cluster.displaced),
        "elections": cluster.elections,
        "groups": len(cluster.groups.by_name),
        "group_members": sum(len(group.members) for group in cluster.groups.by_name.values()),
        "transaction_apps": len(cluster.transactions.apps),
        "decisions_open": len(cluster.transactions.decisions),
        "proposers": len(state.dedup.windows),
    }
