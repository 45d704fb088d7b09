"""The name servers, the releases of all nodes, and the end of an upgrade; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from logboom.client.results import NodeStats
from logboom.console.pages.brokers_page import PageNotice
from logboom.console.widgets.data_table import Row, TableColumn, TableModel, Tone, build_table
from logboom.console.widgets.page_query import PageQuery, path_of
from logboom.wire.features import BRINGS
from logboom.wire.messages import VersionsDescribed
from logboom.wire.restart_check import majority_remains
from logboom.wire.view import NameServerView

LAG_ENTRIES: Final = 1_000
"""Raft entries behind from which on a name server is marked."""


@dataclass(frozen=True, slots=True)
class UpgradeModel:
    """The features level, and what a higher one needs."""

    level: int
    offered: int
    brings: tuple[str, ...]
    """What the levels up to the offered one bring."""
    hinders: tuple[str, ...]
    may_finalize: bool
    nodes: TableModel


@dataclass(frozen=True, slots=True)
class NameServersModel:
    """The name servers."""

    leader: str
    """"" if there is none."""
    notices: tuple[PageNotice, ...]
    servers: TableModel
    upgrade: UpgradeModel | None
    """None: not told to this user, or by a leader of an older release."""


def _role_tone(row: Row) -> Tone:
    return "ok" if row["role"] == "leader" else ""


def _state_tone(row: Row) -> Tone:
    return "ok" if row["state"] == "up" else "failed"


def _lag_tone(row: Row) -> Tone:
    lag = row["lag"]
    return "warning" if lag is not None and lag >= LAG_ENTRIES else ""


SERVER_COLUMNS: Final = (
    TableColumn(
        "name_server",
        "Name server",
        "code",
        href=lambda row: path_of("settings", row["name_server"]),
    ),
    TableColumn("state", "State", "badge", tone=_state_tone),
    TableColumn("role", "Role", "badge", tone=_role_tone),
    TableColumn("endpoint", "Endpoint", "code", wide_only=True),
    TableColumn("version", "Version", wide_only=True),
    TableColumn("term", "Term", "count"),
    TableColumn("commit", "Committed", "count", wide_only=True),
    TableColumn("applied", "Applied", "count"),
    TableColumn("lag", "Behind", "count", tone=_lag_tone, hint="Entries that it has not applied"),
    TableColumn("restart", "May be stopped", hint="Whether the others would be a majority"),
)
NODE_COLUMNS: Final = (
    TableColumn("node", "Node", "code"),
    TableColumn("role", "Role"),
    TableColumn("software", "Version"),
    TableColumn("reads_level", "Reads level", "count"),
    TableColumn("hinders", "Hinders", tone=lambda row: "warning" if row["hinders"] else ""),
)


def build_name_servers(
    servers: Sequence[NameServerView],
    stats: Sequence[NodeStats],
    leader: str | None,
    versions: VersionsDescribed | None,
    query: PageQuery,
) -> NameServersModel:
    """Return the page that a URL asks for."""
    told = {each.node: each for each in stats}
    commit = max((_figure(each, "raft_commit_index") or 0 for each in stats), default=0)
    members = [each.id for each in servers]
    in_touch = [
        each
        for each in members
        if each in told and not told[each].error and _figure(told[each], "in_touch")
    ]
    software = {} if versions is None else {each.id: each.software for each in versions.nodes}
    rows = [
        _server_row(
            each,
            told.get(each.id),
            commit,
            software.get(each.id, ""),
            may_stop=leader is not None and majority_remains(members, in_touch, each.id),
            leader=leader,
        )
        for each in servers
    ]
    return NameServersModel(
        leader=leader or "",
        notices=tuple(_notices(rows, leader, len(in_touch))),
        servers=build_table(SERVER_COLUMNS, rows, query, sort="name_server"),
        upgrade=None if versions is None else build_upgrade(versions, query),
    )


def _figure(node: NodeStats, name: str) -> int | None:
    value = node.counters.get(name)
    return value if isinstance(value, int) else None


def _server_row(
    server: NameServerView,
    stats: NodeStats | None,
    commit: int,
    version: str,
    *,
    may_stop: bool,
    leader: str | None,
) -> dict[str, Any]:
    is_up = stats is not None and not stats.error
    applied = _figure(stats, "raft_applied_index") if stats is not None and is_up else None
    role = stats.counters.get("raft_role") if stats is not None and is_up else None
    return {
        "name_server": server.id,
        "state": "up" if is_up else "down",
        "role": "leader" if server.id == leader else role,
        "endpoint": server.endpoint,
        "version": version,
        "term": _figure(stats, "raft_term") if stats is not None and is_up else None,
        "commit": _figure(stats, "raft_commit_index") if stats is not None and is_up else None,
        "applied": applied,
        "lag": None if applied is None else max(0, commit - applied),
        "restart": ("yes" if may_stop else "no: no majority would remain") if is_up else None,
        "error": "" if stats is None else stats.error,
    }


def _notices(rows: Sequence[Row], leader: str | None, serving: int) -> list[PageNotice]:
    found: list[PageNotice] = []
    if leader is None:
        text = "The name servers have no leader: nothing can be changed, and no queue gets a new leader"
        found.append(PageNotice(text, "failed"))
    found += [
        PageNotice(
            f"{row['name_server']} does not answer: {row['error'] or 'it is down'}", "failed"
        )
        for row in rows
        if row["state"] == "down"
    ]
    if len(rows) > 1 and 2 * (serving - 1) <= len(rows) and serving:
        text = "One more name server that fails would stop all changes"
        found.append(PageNotice(text, "warning"))
    if len(rows) == 1:
        text = "There is one name server: add two more, so that the cluster goes on without one"
        found.append(PageNotice(text, "info"))
    return found


def build_upgrade(versions: VersionsDescribed, query: PageQuery) -> UpgradeModel:
    """Return what there is to say of the features level."""
    offers = versions.offered > versions.features
    hinders = tuple(node.hinders for node in versions.nodes if node.hinders) if offers else ()
    rows = [
        {
            "node": node.id,
            "role": node.role,
            "software": node.software or ("an older release" if node.features >= 0 else None),
            "reads_level": node.features if node.features >= 0 else None,
            "hinders": node.hinders if offers else "",
        }
        for node in versions.nodes
    ]
    return UpgradeModel(
        level=versions.features,
        offered=versions.offered,
        brings=tuple(
            BRINGS[level]
            for level in range(versions.features + 1, versions.offered + 1)
            if level in BRINGS
        ),
        hinders=hinders,
        may_finalize=offers and not hinders,
        nodes=build_table(NODE_COLUMNS, rows, query, name="nodes", title="Releases"),
    )
