"""`logboom quota`: limits of users."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """The limits that the command line names; each field is an option."""

    produce: Annotated[
        str | None, Parameter(help="Bytes per second to each broker: 512k, 10m.")
    ] = None
    fetch: Annotated[
        str | None, Parameter(help="Bytes per second from each broker: 512k, 10m.")
    ] = None
    requests: Annotated[int | None, Parameter(help="Requests per second to each broker.")] = None
    connections: Annotated[int | None, Parameter(help="Connections to each node.")] = None
    topics: Annotated[int | None, Parameter(help="Topics that the user created.")] = None
    queues: Annotated[int | None, Parameter(help="Queues of these topics.")] = None
    stored: Annotated[
        str | None, Parameter(help="Bytes of these topics on each broker: 500m, 10g.")
    ] = None


Limits: TypeAlias = Annotated[LimitOptions | None, Parameter(name="*")]
"""A parameter that is these options."""


@app.command(name="set")
def set_quota(
    user: UserName,
    *,
    limits: Limits = None,
    servers: OperatorServers = None,
) -> None:
    """Set limits of a user; those that are not named stay. 0 stands for the default's limit.

    Who is above a limit per second is answered later, and loses nothing.

    For example:

        logboom quota set alice --produce 10m --fetch 50m --connections 20
    """
    named = _named(limits)
    with open_operator_client(servers) as boom:
        boom.admin.set_quota(user, **named)
    note(f"set limits of {user}")


@app.command
def default(
    *,
    limits: Limits = None,
    servers: OperatorServers = None,
) -> None:
    """Set limits for each user without a limit of its own; 0 for no limit.

    For example:

        logboom quota default --produce 20m --connections 100
    """
    named = _named(limits)
    with open_operator_client(servers) as boom:
        boom.admin.set_default_quota(**named)
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


def _named(limits: LimitOptions | None) -> dict[str, int]:
    """Return the limits that were named, by the fields of a quota.

    Raises:
        InvalidRequest: none was named, or one is no size.
    """
    if limits is None:
        raise InvalidRequest("nothing to set: give --produce, --fetch or another limit")
    named = {
        "produce_bytes_per_s": None if limits.produce is None else _bytes(limits.produce),
        "fetch_bytes_per_s": None if limits.fetch is None else _bytes(limits.fetch),
        "requests_per_s": limits.requests,
        "connections": limits.connections,
        "topics": limits.topics,
        "queues": limits.queues,
        "stored_bytes": None if limits.stored is None else _bytes(limits.stored),
    }
    return {name: value for name, value in named.items() if value is not None}


def _bytes(text: str) -> int:
    found = size_bytes(text)
    if found < 0:
        raise InvalidRequest(f"{text!r} is not a limit: write 512k, 10m, 2g, or 0 for none here")
    return found
