"""Client connections to clusters, kept for the life of a process.

Spark's Python workers are long-lived and run many tasks. Each keeps one client per cluster. The key
contains the process id, because a forked worker must not use its parent's client.

A cluster is one text: nodes, or the path of a credentials file behind "@", or both. So a plan that
Spark sends to its executors has the path, and each process reads the file where it runs.
"""

from __future__ import annotations

import os
import threading
from typing import Final
from weakref import WeakKeyDictionary

from logboom.client import Client, Producer, connect
from logboom.wire.errors import ClientClosed

_LOCK: Final = threading.Lock()
_CLIENTS: Final[dict[tuple[int, str, float], Client]] = {}
_PRODUCERS: Final[WeakKeyDictionary[Client, Producer]] = WeakKeyDictionary()


def client(servers: str, timeout_s: float) -> Client:
    """Return this process's client for some nodes, and connect if there is none yet.

    Args:
        servers: nodes, comma-separated, and the path of a credentials file: "nodes", "@file" or
            "nodes@file".

    Raises:
        TimedOut: none of the nodes answered within `timeout_s`; the text names them.
        InvalidRequest: the nodes are invalid.
        StartError: the credentials file cannot be used on this machine.
        Unauthenticated: the cluster does not accept the credentials.
    """
    key = (os.getpid(), servers, timeout_s)
    with _LOCK:
        known = _CLIENTS.get(key)
        if known is not None and _lives(known):
            return known
        nodes, _, file = servers.partition("@")
        made = _CLIENTS[key] = connect(
            nodes, credentials=file or None, timeout_s=timeout_s, client_id="spark"
        )
        return made


def producer(servers: str, timeout_s: float) -> Producer:
    """Return this process's producer for some nodes, for batches that are already encoded.

    Raises:
        As `client`.
    """
    boom = client(servers, timeout_s)
    with _LOCK:
        known = _PRODUCERS.get(boom)
        if known is None:
            known = _PRODUCERS[boom] = boom.producer(delivery_timeout_s=timeout_s)
        return known


def _lives(known: Client) -> bool:
    try:
        known.wait_connected()
    except ClientClosed:
        return False
    return True
