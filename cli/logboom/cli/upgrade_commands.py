"""`logboom cluster upgrade`: the releases of all nodes, and the end of an upgrade."""

from __future__ import annotations

from typing import Any, Final

from cyclopts import App

from logboom.cli.confirmation import confirmed
from logboom.cli.connection import open_client, open_operator_client
from logboom.cli.output import note, show
from logboom.cli.parameters import Confirmed, OperatorServers, Output, Servers
from logboom.client import Client
from logboom.wire.errors import InvalidRequest
from logboom.wire.features import BRINGS
from logboom.wire.messages import NodeVersion, VersionsDescribed

app = App(name="upgrade", help="The release of each node, and the end of an upgrade.")

OLDER: Final = "an older release"
TOO_OLD: Final = "the raft leader is of a release that does not know the question: upgrade the name servers first"
UNKNOWN_LEVEL: Final = "what this command is too old to name"


@app.command
def status(*, servers: Servers = None, output: Output = "table") -> None:
    """Show the release of each node, and what `finalize` would change or what hinders it.

    For example:

        logboom cluster upgrade status
        logboom cluster upgrade status -o json
    """
    with open_client(servers) as boom:
        versions = _versions(boom)
    rows = [_row(node, versions) for node in versions.nodes]
    show(rows, ["node", "role", "software", "reads_level", "hinders"], output)
    note(_summary(versions))


@app.command
def finalize(*, yes: Confirmed = False, servers: OperatorServers = None) -> None:
    """Let the cluster use what its new release brings. Older nodes can never join it again.

    Upgrade all nodes first: name servers, then brokers. Until this is called, each of them can go back
    to the release before.

        logboom cluster upgrade finalize --yes
    """
    with open_operator_client(servers) as boom:
        versions = _versions(boom)
        if versions.offered <= versions.features:
            note(_summary(versions))
            return
        hinders = [node.hinders for node in versions.nodes if node.hinders]
        if hinders:
            raise InvalidRequest("; ".join(hinders))
        note(_summary(versions))
        refusal = "the release before could never run here again: say --yes to finalize the upgrade"
        question = f"Raise the features level to {versions.offered}, for good?"
        if not (yes or confirmed(question, refusal, "nothing was changed")):
            return
        boom.admin.finalize_upgrade(versions.offered)
    note(f"the cluster is at features level {versions.offered}")


def _versions(boom: Client) -> VersionsDescribed:
    try:
        return boom.admin.versions()
    except InvalidRequest:
        raise InvalidRequest(TOO_OLD) from None


def _row(node: NodeVersion, versions: VersionsDescribed) -> dict[str, Any]:
    return {
        "node": node.id,
        "role": node.role,
        "software": node.software or (OLDER if node.features >= 0 else None),
        "reads_level": node.features if node.features >= 0 else None,
        "hinders": node.hinders if versions.offered > versions.features else None,
        "level": versions.features,
    }


def _summary(versions: VersionsDescribed) -> str:
    level = versions.features
    if versions.offered <= level:
        return f"the cluster is at features level {level}: there is nothing to finalize"
    # Nodes of a later release offer levels that this command does not know.
    known = (BRINGS.get(each, UNKNOWN_LEVEL) for each in range(level + 1, versions.offered + 1))
    brings = "; ".join(known)
    text = f"the cluster is at features level {level}; level {versions.offered} brings: {brings}. "
    if any(node.hinders for node in versions.nodes):
        return f"{text}It needs all nodes: see what hinders it"
    return (
        f"{text}`logboom cluster upgrade finalize` raises the level, for good: older releases cannot "
        "read what is written then"
    )
