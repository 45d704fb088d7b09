"""`logboom quota`: limits of users."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from cyclopts import App, Parameter

from logboom.cli.access_tables import QUOTA_COLUMNS, quota_row
from logboom.cli.connection import open_operator_client
from logboom.cli.output import note, show, show_json
from logboom.cli.parameters import OperatorServers, Output, UserName
from logboom.client.written_values import size_bytes
from logboom.wire.errors import InvalidRequest

app = App(name="quota", help="Limits of users: set, show, and the default for those without.")

Produce: TypeAlias = Annotated[
    str | None, Parameter(help="Bytes per second to each broker: 512k, 10m.")
]
Fetch: TypeAlias = Annotated[
    str | None, Parameter(help="Bytes per second from each broker: 512k, 10m.")
]
Requests: TypeAlias = Annotated[int | None, Parameter(help="Requests per second to each broker.")]
Connections: TypeAlias = Annotated[int | None, Parameter(help="Connections to each node.")]
Topics: TypeAlias = Annotated[int | None, Parameter(help="Topics that the user created.")]
QueueTotal: TypeAlias = Annotated[int | None, Parameter(help="Queues of these topics.")]
Stored: TypeAlias = Annotated[
    str | None, Parameter(help="Bytes of these topics on each broker: 500m, 10g.")
]


@app.command(name="set")
def set_quota(
    user: UserName,
    *,
    produce: Produce = None,
    fetch: Fetch = None,
    requests: Requests = None,
    connections: Connections = None,
    topics: Topics = None,
    queues: QueueTotal = None,
    stored: Stored = None,
    servers: OperatorServers = None,
) -> None:
    """Set limits of a user; those that are not named stay. 0 stands for the default's limit.

    Who is above a limit per second is answered later, and loses nothing.

    For example:

        logboom quota set alice --produce 10m --fetch 50m --connections 20
    """
    limits = _limits(produce, fetch, requests, connections, topics, queues, stored)
    if not limits:
        raise InvalidRequest("nothing to set: give --produce, --fetch or another limit")
    with open_operator_client(servers) as boom:
        boom.admin.set_quota(user, **limits)
    note(f"set limits of {user}")


@app.command
def default(
    *,
    produce: Produce = None,
    fetch: Fetch = None,
    requests: Requests = None,
    connections: Connections = None,
    topics: Topics = None,
    queues: QueueTotal = None,
    stored: Stored = None,
    servers: OperatorServers = None,
) -> None:
    """Set limits for each user without a limit of its own; 0 for no limit.

    For example:

        logboom quota default --produce 20m --connections 100
    """
    limits = _limits(produce, fetch, requests, connections, topics, queues, stored)
    if not limits:
        raise InvalidRequest("nothing to set: give --produce, --fetch or another limit")
    with open_operator_client(servers) as boom:
        boom.admin.set_default_quota(**limits)
    note("set the default limits")


@app.command(name="show")
def show_quotas(
    user: Annotated[str, Parameter(help="Only this user.")] = "",
    *,
    servers: OperatorServers = None,
    output: Output = "table",
) -> None:
    """Show the default limits, and the users with limits of their own; - stands for the default.

    For example:

        logboom quota show
        logboom quota show alice -o json
    """
    with open_operator_client(servers) as boom:
        if user:
            found = {user: boom.admin.describe_user(user).quota}
        else:
            found = {"(default)": boom.admin.default_quota()}
            own = [each for each in boom.admin.users() if any(msgspec.structs.astuple(each.quota))]
            found |= {each.name: each.quota for each in own}
    if output == "json":
        show_json([{"user": name, **msgspec.structs.asdict(q)} for name, q in found.items()])
        return
    show([quota_row(name, quota) for name, quota in found.items()], QUOTA_COLUMNS, output)


def _limits(
    produce: str | None,
    fetch: str | None,
    requests: int | None,
    connections: int | None,
    topics: int | None,
    queues: int | None,
    stored: str | None,
) -> dict[str, int]:
    """Return the limits that were named, by the fields of a quota."""
    named = {
        "produce_bytes_per_s": None if produce is None else _bytes(produce),
        "fetch_bytes_per_s": None if fetch is None else _bytes(fetch),
        "requests_per_s": requests,
        "connections": connections,
        "topics": topics,
        "queues": queues,
        "stored_bytes": None if stored is None else _bytes(stored),
    }
    return {name: value for name, value in named.items() if value is not None}


def _bytes(text: str) -> int:
    found = size_bytes(text)
    if found < 0:
        raise InvalidRequest(f"{text!r} is not a limit: write 512k, 10m, 2g, or 0 for none here")
    return found
