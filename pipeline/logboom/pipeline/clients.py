"""Connections to clusters, kept for the life of a process.

Spark's Python workers live long and run many tasks; each keeps one client for each cluster. The key
holds the process id, since a forked worker must not use its parent's.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from logboom.client import Client, connect
from logboom.wire.errors import ClientClosed

_LOCK: Final = threading.Lock()
_CLIENTS: Final[dict[tuple[int, str, float], Client]] = {}


def client(servers: str, timeout_s: float) -> Client:
    """The client of this process for some nodes; connects if there is none yet.

    Raises:
        TimedOut: none of the nodes answered within `timeout_s`; names them.
        InvalidRequest: these are no nodes.
    """
    key = (os.getpid(), servers, timeout_s)
    with _LOCK:
        known = _CLIENTS.get(key)
        if known is not None and _lives(known):
            return known
        made = _CLIENTS[key] = connect(servers, timeout_s=timeout_s, client_id="spark")
        return made


def close_clients() -> None:
    """Hang up all of this process."""
    with _LOCK:
        mine = [key for key in _CLIENTS if key[0] == os.getpid()]
        for key in mine:
            _CLIENTS.pop(key).close()


def _lives(known: Client) -> bool:
    try:
        known.wait_connected()
    except ClientClosed:
        return False
    return True
