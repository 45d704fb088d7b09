"""Commands connect here: at once where nodes listen, and with a clear line where none does."""

from __future__ import annotations

import socket
from typing import Final

from logboom.cli.options import servers_or_default
from logboom.client import Client, connect
from logboom.client.client import parse_endpoints
from logboom.wire.errors import Unavailable

PROBE_S: Final = 0.5
"""How long one endpoint gets to refuse a connection."""


def open_client(servers: str | None, *, create_topics: bool = False) -> Client:
    """Connect to the nodes asked for, or to those at hand.

    `create_topics`: a topic that is not there is created on first use.

    Raises:
        Unavailable: all of them refuse connections: waiting for an answer would be in vain.
        LogboomError: as `connect` does.
    """
    ends = parse_endpoints(servers_or_default(servers))
    if all(map(_refuses, ends)):
        text = f"nothing listens at {', '.join(ends)}"
        raise Unavailable(f"{text}: start a cluster with `logboom cluster up`, or say --servers")
    return connect(ends, create_topics=create_topics)


def _refuses(endpoint: str) -> bool:
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PROBE_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        # Silent or unknown for now: `connect` finds out, and says it better.
        return False
