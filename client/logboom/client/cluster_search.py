"""Where the cluster is and who asks: from the arguments of `connect`, or a credentials file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeAlias

from logboom.wire.credentials import Credentials
from logboom.wire.credentials_file import read_credentials
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.sockets import check_endpoint

CREDENTIALS_VARIABLE: Final = "LOGBOOM_CREDENTIALS"
SUFFIX: Final = ".toml"
"""End of an argument that is a credentials file, and no node."""

CredentialsSource: TypeAlias = str | os.PathLike[str] | Credentials | None


def find_cluster(
    endpoints: str | os.PathLike[str] | Sequence[str],
    credentials: CredentialsSource = None,
    default_file: str = "",
) -> tuple[tuple[str, ...], Credentials | None]:
    """Return the nodes to ask first, and the credentials to show them; None: they are open.

    Args:
        default_file: the credentials file of somebody who names neither nodes nor credentials.

    Raises:
        InvalidRequest: there are no nodes, one is invalid, or there are two credentials files.
        StartError: the credentials file cannot be used.
    """
    nodes = endpoints
    if isinstance(nodes, os.PathLike) or (isinstance(nodes, str) and _is_file(nodes)):
        if credentials is not None:
            raise InvalidRequest("two credentials files: give the nodes as host:port, or one file")
        nodes, credentials = "", os.fspath(nodes).strip()
    if not nodes and credentials is None:
        credentials = default_file or None
    known = credentials
    if known is not None and not isinstance(known, Credentials):
        known = read_credentials(os.fspath(known))
    if nodes:
        return parse_endpoints(nodes), known
    if known is None:
        raise InvalidRequest(
            "give at least one endpoint, e.g. 127.0.0.1:7711, or a credentials file, e.g. alice.toml "
            f"(or set {CREDENTIALS_VARIABLE})"
        )
    if not known.endpoints:
        raise InvalidRequest(
            f"the credentials of {known.user} name no nodes: add [[servers]], as docs/SECURITY.md, "
            "Users and keys, shows them"
        )
    return known.endpoints, known


def _is_file(text: str) -> bool:
    return text.strip().endswith(SUFFIX)


def parse_endpoints(endpoints: str | Sequence[str]) -> tuple[str, ...]:
    """Split and check endpoints.

    Raises:
        InvalidRequest: an endpoint is invalid, or there is none.
    """
    parts = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    try:
        found = tuple(check_endpoint(part.strip()) for part in parts if part.strip())
    except StartError as error:
        raise InvalidRequest(error.text) from None
    if not found:
        raise InvalidRequest("give at least one endpoint, e.g. 127.0.0.1:7711")
    return found
