"""`logboom exporter`: metrics of topics, groups and subscriptions for Prometheus."""

from __future__ import annotations

import importlib.util
import logging
from typing import Annotated, Final

from cyclopts import Parameter

from logboom.cli.cluster_address import destination_of
from logboom.cli.output import note
from logboom.cli.parameters import Servers
from logboom.wire.endpoints import listen_fault
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.listeners import is_loopback

EXPORTER_PORT: Final = 9712
DEFAULT_MAX_SERIES: Final = 50_000


def exporter(
    *,
    listen: Annotated[
        str, Parameter(name=["--listen", "-l"], help="host:port to serve /metrics at.")
    ] = f"127.0.0.1:{EXPORTER_PORT}",
    queues: Annotated[
        bool, Parameter(negative="", help="Show the first and the end offset of every queue too.")
    ] = False,
    max_series: Annotated[
        int,
        Parameter(help="Limit of series. Families beyond it are left out, those of queues first."),
    ] = DEFAULT_MAX_SERIES,
    servers: Servers = None,
) -> None:
    """Serve the metrics of a cluster to Prometheus, until Ctrl-C.

    Each node tells of itself (`metrics_listen`); the exporter tells once for all what belongs to
    topics, groups, subscriptions, dead letters, transactions and moves: lag in messages and in
    seconds, sizes, members. It asks the cluster when it is scraped, at most every 10 s.

    With credentials, its user needs `describe` on the cluster, topics, groups and transactions:
    docs/OPERATING.md has the commands. `logboom generate prometheus` writes the scrape job.

    For example:

        logboom exporter
        logboom exporter --listen 10.0.0.5:9712 --queues -s 10.0.0.1:7711
    """
    if importlib.util.find_spec("uvicorn") is None:
        raise StartError("the exporter needs more packages: pip install 'logboom[console]'")
    from logboom.console.exporter.exporter_server import ExporterServer

    host, port = _address(listen)
    destination = destination_of(servers)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    server = ExporterServer(
        host,
        port,
        destination.endpoints,
        destination.credentials,
        queues=queues,
        max_series=max_series,
    )
    note(f"metrics at {server.url}; Ctrl-C ends it")
    if not is_loopback(listen):
        note(f"whoever reaches {listen} can read the names of topics and groups")
    server.run()


def _address(text: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        InvalidRequest: the text is not host:port.
    """
    if listen_fault(text) is not None:
        raise InvalidRequest(f"--listen {text!r}: write host:port, as in 127.0.0.1:{EXPORTER_PORT}")
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
