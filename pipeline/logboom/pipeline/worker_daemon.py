"""A daemon for Spark's Python workers, like `pyspark.daemon`, that acknowledges data at once.

The JVM sends a task in small pieces, and each waits until the previous one is acknowledged (it does
not set TCP_NODELAY). Linux delays this by up to 40 ms if it expects an answer to send along. A
micro-batch that reads and writes in Python would pay for that delay.
"""

from __future__ import annotations

import socket
from typing import Final

from pyspark import daemon

MODULE: Final = "logboom.pipeline.worker_daemon"
"""The value of Spark's setting `spark.python.daemon.module`."""

_run_task = daemon.worker


def acknowledge_at_once(connection: socket.socket) -> None:
    """Acknowledge at once until an answer was sent over the connection, so before each task."""
    over_tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
    if over_tcp and hasattr(socket, "TCP_QUICKACK"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def run_task(sock: socket.socket, authenticated: bool) -> int:
    """Run a task in a worker, called by `pyspark.daemon`."""
    acknowledge_at_once(sock)
    code: int = _run_task(sock, authenticated)
    return code


if __name__ == "__main__":
    daemon.worker = run_task
    daemon.manager()
