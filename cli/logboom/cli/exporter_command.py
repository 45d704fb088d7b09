"""`logboom exporter`: metrics of topics, groups and subscriptions for Prometheus."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from logboom.cli.cluster_address import destination_of
from logboom.cli.output import note
from logboom.cli.parameters import Servers
from logboom.wire.endpoints import listen_fault
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.listeners import is_loopback
from logboom.wire.tls_files import TlsFiles

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
    tls_cert: Annotated[
        Path | None, Parameter(help="A certificate with its chain, PEM: it then speaks HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, Parameter(help="Its key, PEM.")] = None,
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
    tls = tls_files(tls_cert, tls_key)
    destination = destination_of(servers)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    server = ExporterServer(
        host,
        port,
        destination.endpoints,
        destination.credentials,
        queues=queues,
        max_series=max_series,
        tls=tls,
    )
    note(f"metrics at {server.url}; Ctrl-C ends it")
    if not is_loopback(listen):
        note(f"whoever reaches {listen} can read the names of topics and groups")
    server.run()


def tls_files(cert: Path | None, key: Path | None) -> TlsFiles | None:
    """Return the certificate of --tls-cert and --tls-key, or None without them.

    Raises:
        InvalidRequest: only one is given.
        StartError: they cannot be used.
    """
    if (cert is None) != (key is None):
        raise InvalidRequest("--tls-cert and --tls-key belong together: give both")
    return None if cert is None or key is None else TlsFiles(cert, key)


def _address(text: str) -> tuple[str, int]:
    """Return host and port.

    Raises:
        InvalidRequest: the text is not host:port.
    """
    if listen_fault(text) is not None:
        raise InvalidRequest(f"--listen {text!r}: write host:port, as in 127.0.0.1:{EXPORTER_PORT}")
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
