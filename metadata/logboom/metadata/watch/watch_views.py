"""The replicated tables as WATCH sends them: in full, or the changes since a version."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from logboom.metadata.config import NameServerMember
from logboom.metadata.groups.group_views import WHOLE, groups_since
from logboom.metadata.tables.cluster_state import OPEN, ClusterState
from logboom.metadata.tables.transaction_table import decision_view
from logboom.wire.access.access_rules import node_user
from logboom.wire.listeners import dialled_endpoint
from logboom.wire.sight import Sight, shown_group
from logboom.wire.transactions import DecisionView
from logboom.wire.view import NameServerView, SettingView, View


def name_servers(
    cluster: ClusterState, founders: Mapping[str, NameServerMember]
) -> dict[str, NameServerMember]:
    """Return all name servers by id: those configured and those added, except those removed."""
    known = dict(founders)
    for name, (endpoint, raft_endpoint) in cluster.name_servers.items():
        known[name] = NameServerMember(name, endpoint, raft_endpoint)
    return {
        name: member for name, member in known.items() if name not in removed_name_servers(cluster)
    }


def name_server_view(cluster: ClusterState, member: NameServerMember) -> NameServerView:
    """Return the view of a name server that nodes are shown."""
    main = cluster.listeners.get(member.id, OPEN).main
    keys = cluster.access.book.public_keys_of(node_user(member.id))
    return NameServerView(member.id, main[0].endpoint if main else member.endpoint, main, keys)


def raft_endpoint(cluster: ClusterState, member: NameServerMember, *, encrypt: bool) -> str:
    """Return where to dial the Raft listener of a name server; `encrypt`: both sides have keys."""
    raft = cluster.listeners.get(member.id, OPEN).raft
    return dialled_endpoint(member.raft_endpoint, raft, encrypt=encrypt)


def removed_name_servers(cluster: ClusterState) -> Collection[str]:
    """Return the ids of name servers that were removed."""
    return cluster.former_name_servers


def view_since(
    cluster: ClusterState,
    version: int,
    topics: Collection[str] | None,
    members: list[NameServerView],
    raft_leader: str | None,
    groups: Collection[str] | None = (),
    members_at: str = "",
    *,
    decisions: bool = False,
    access: bool = False,
    sight: Sight | None = None,
) -> View:
    """Build the view of all changes after `version`, or a full one if that is too old (or -1).

    `topics` and `groups` restrict the view to these names; None means all. Brokers and name servers
    are always included. For `members_at`, `decisions` and `access` see `Watch`. `sight` is
    what the user who asks may see; None: everything. If that changed, the view is full.
    """
    floor = max(cluster.topic_changes.floor, cluster.broker_changes.floor)
    if groups is None or groups:
        floor = max(floor, cluster.groups.changes.floor)
    if decisions:
        floor = max(floor, cluster.transactions.changes.floor)
    if access:
        floor = max(floor, cluster.access.floor)
    full = version < floor or version < 0 or (sight is not None and sight.changed_after(version))
    if full:
        # Sorted, because the order of a set differs between processes.
        names = list(cluster.topics) if topics is None else sorted(cluster.topics.keys() & topics)
        brokers = list(cluster.brokers)
        deleted: list[str] = []
        deleted_brokers: list[str] = []
    else:
        names = _wanted(cluster.topic_changes.changed_since(version), topics)
        brokers = cluster.broker_changes.changed_since(version)
        deleted = _wanted(cluster.topic_changes.gone_since(version), topics)
        deleted_brokers = cluster.broker_changes.gone_since(version)
    since = WHOLE if full else version
    changed_groups, deleted_groups = groups_since(cluster, since, groups, members_at)
    if sight is not None:
        # A name that the user could never see is not told when it goes, either.
        names = list(filter(sight.topic, names))
        deleted = list(filter(sight.topic, deleted))
        deleted_groups = list(filter(sight.group, deleted_groups))
        seen = [group for group in changed_groups if sight.group(group.name)]
        changed_groups = [shown_group(group, sight, cluster.name_of_topic) for group in seen]
    decided, ended = _decisions(cluster, since) if decisions else ([], [])
    return View(
        version=cluster.version,
        full=full,
        cluster_id=cluster.cluster_id,
        brokers=[cluster.broker_view(cluster.brokers[broker]) for broker in brokers],
        topics=[cluster.topic_view(cluster.topics[name]) for name in names],
        deleted=deleted,
        deleted_brokers=deleted_brokers,
        name_servers=members,
        raft_leader=raft_leader,
        groups=changed_groups,
        deleted_groups=deleted_groups,
        decisions=decided,
        ended_decisions=ended,
        access=cluster.access.view_since(version, full=full) if access else None,
        settings=_settings(cluster, since, sight),
        features=cluster.features,
        next_topic_id=cluster.next_topic_id,
        lost_topic_ids=list(cluster.lost_topic_ids),
        recoveries=cluster.recoveries,
    )


def _settings(cluster: ClusterState, version: int, sight: Sight | None) -> list[SettingView] | None:
    """Return all settings if one has changed after `version` and the user may see them."""
    if cluster.settings_version <= version or (sight is not None and not sight.cluster()):
        return None
    return cluster.setting_views()


def _decisions(cluster: ClusterState, version: int) -> tuple[list[DecisionView], list[int]]:
    """Return the open decisions after `version` (`WHOLE`: all) in order, and those that ended.

    A report of one queue among several is not a change: a broker that learns of it late only
    repeats its own report.
    """
    table = cluster.transactions
    if version == WHOLE:
        return [decision_view(decision) for decision in table.decisions.values()], []
    made = reversed(table.changes.changed_since(version))
    return [decision_view(table.decisions[n]) for n in made], table.changes.gone_since(version)


def _wanted(names: list[str], topics: Collection[str] | None) -> list[str]:
    if topics is None:
        return names
    return [name for name in names if name in topics]
