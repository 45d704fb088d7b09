"""Name servers, the releases of all nodes, and the end of an upgrade."""

from __future__ import annotations

from logboom.console.pages.name_servers_page import NameServersModel, build_name_servers
from logboom.console.routes.broker_routes import node_versions
from logboom.console.site import (
    ActionDone,
    ActionPreview,
    ConsoleAction,
    FormField,
    NavigationEntry,
    PageRequest,
    PageRoute,
    Subject,
)
from logboom.console.widgets.page_query import FormValues
from logboom.wire.errors import InvalidRequest
from logboom.wire.features import BRINGS


async def load_name_servers(request: PageRequest) -> NameServersModel:
    """Ask for the list."""
    admin, cached = request.cluster.boom.admin, request.cluster.cached
    return build_name_servers(
        await cached("name-servers", admin.name_servers),
        await cached("stats", admin.stats),
        await cached("raft-leader", admin.raft_leader),
        await node_versions(request),
        request.query,
    )


async def preview_upgrade(request: PageRequest, values: FormValues) -> ActionPreview:
    """Say what the level brings, and what hinders it."""
    versions = await request.cluster.boom.admin.versions()
    level = values.number("level")
    brings = "; ".join(
        BRINGS[each] for each in range(versions.features + 1, level + 1) if each in BRINGS
    )
    hinders = [node.hinders for node in versions.nodes if node.hinders]
    return ActionPreview(
        (
            ("Level now", str(versions.features)),
            ("Then", str(level)),
            ("Brings", brings or "nothing"),
        ),
        warning="; ".join(hinders)
        or "Older releases can never join this cluster again, and no node can go back to one",
    )


async def finalize_upgrade(request: PageRequest, values: FormValues) -> ActionDone:
    """Let the cluster use what its new release brings."""
    admin = request.cluster.boom.admin
    level = values.number("level")
    versions = await admin.versions()
    hinders = [node.hinders for node in versions.nodes if node.hinders]
    if versions.offered <= versions.features:
        return ActionDone(f"The cluster is at features level {versions.features} already.")
    if hinders:
        raise InvalidRequest("; ".join(hinders))
    await admin.finalize_upgrade(level)
    return ActionDone(f"The cluster is at features level {level}.")


FINALIZE = ConsoleAction(
    name="upgrade.finalize",
    title="End an upgrade",
    button="Raise the level",
    fields=(FormField("level", kind="hidden", required=True),),
    command=lambda values: ("cluster", "upgrade", "finalize", "--yes"),
    question=lambda values: f"Raise the features level to {values.number('level')}, for good?",
    preview=preview_upgrade,
    run=finalize_upgrade,
    danger=True,
)
SUBJECT = Subject(
    pages=(PageRoute("/name-servers", load_name_servers, "name_servers.html"),),
    actions=(FINALIZE,),
    navigation=(NavigationEntry("Name servers", "/name-servers", 74),),
)
