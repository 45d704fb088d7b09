"""Client connections to clusters, kept for the life of a process.

Spark's Python workers are long-lived and run many tasks. Each keeps one client per cluster. The key
contains the process id, because a forked worker must not use its parent's client.

A cluster is one text: nodes, or the path of a credentials file behind "@", or both. So a plan that
Spark sends to its executors has the path, and each process reads the file where it runs. The file is
read again when it has changed and when what it said is refused, so a job goes on when its key is
replaced. The older client is closed then: whoever uses one asks for it once for each piece of work.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from logboom.client import Client, Producer, connect
from logboom.wire.errors import ClientClosed, StartError, Unauthenticated

LOG: Final = logging.getLogger("logboom.pipeline")
T = TypeVar("T")

Stamp = tuple[int, int, int]
"""Change time, size and inode of a file: they tell whether it is as it was."""


@dataclass(slots=True)
class _KnownClient:
    """A client, and the credentials file as it was when it was read for it."""

    boom: Client
    stamp: Stamp | None


_LOCK: Final = threading.Lock()
_CLIENTS: Final[dict[tuple[int, str, float], _KnownClient]] = {}
_PRODUCERS: Final[WeakKeyDictionary[Client, Producer]] = WeakKeyDictionary()


def client(servers: str, timeout_s: float) -> Client:
    """Return this process's client for some nodes, and connect if there is none yet, or if the
    credentials file has changed.

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
        stamp = _stamp(servers)
        if known is not None and not _lives(known.boom):
            _close(known.boom)
            known = None
        if known is None:
            known = _CLIENTS[key] = _KnownClient(_connected(servers, timeout_s), stamp)
        elif stamp is not None and stamp != known.stamp:
            _replace(known, servers, timeout_s, stamp)
        return known.boom


def _replace(known: _KnownClient, servers: str, timeout_s: float, stamp: Stamp) -> None:
    """Connect with the credentials file as it is now. If that fails, the older client stays."""
    try:
        fresh = _connected(servers, timeout_s)
    except (StartError, Unauthenticated) as error:
        # Half of it is written, or the name servers do not know its key yet: the next call tries again.
        LOG.warning("the changed credentials of %s are not used yet: %s", servers, error)
        return
    _close(known.boom)
    known.boom, known.stamp = fresh, stamp


def again(servers: str, timeout_s: float, work: Callable[[Client], T]) -> T:
    """Do some work with a client, and once more from its start if the credentials are refused and
    those in the file are accepted now.

    Raises:
        As `client`, and what `work` raises.
    """
    boom = client(servers, timeout_s)
    try:
        return work(boom)
    except Unauthenticated:
        return work(renewed(servers, timeout_s, boom))


def renewed(servers: str, timeout_s: float, refused: Client) -> Client:
    """Return a client with the credentials that are in the file now, instead of one that was refused.

    Raises:
        As `client`.
    """
    key = (os.getpid(), servers, timeout_s)
    with _LOCK:
        known = _CLIENTS.get(key)
        if known is None or known.boom is refused:
            stamp = _stamp(servers)
            fresh = _connected(servers, timeout_s)
            _close(refused)
            known = _CLIENTS[key] = _KnownClient(fresh, stamp)
        return known.boom


def producer(boom: Client, timeout_s: float) -> Producer:
    """Return this process's producer for a client, for batches that are already encoded."""
    with _LOCK:
        known = _PRODUCERS.get(boom)
        if known is None:
            known = _PRODUCERS[boom] = boom.producer(delivery_timeout_s=timeout_s)
        return known


def _connected(servers: str, timeout_s: float) -> Client:
    nodes, _, file = servers.partition("@")
    return connect(nodes, credentials=file or None, timeout_s=timeout_s, client_id="spark")


def _close(older: Client) -> None:
    """Close a client that nobody uses any more, or whose key is refused: there is nothing to wait for."""
    _PRODUCERS.pop(older, None)
    older.close(0.0)


def _stamp(servers: str) -> Stamp | None:
    """Return what tells whether a cluster's credentials file has changed; None if there is none now."""
    _, _, file = servers.partition("@")
    try:
        found = Path(file).stat() if file else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _lives(known: Client) -> bool:
    try:
        known.wait_connected()
    except (ClientClosed, Unauthenticated):
        return False
    return True
