"""The cluster that a command is about, and the user as whom it connects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from logboom.cli.local_cluster import local_credentials, local_endpoints
from logboom.cli.parameters import ClusterAddress
from logboom.client.cluster_search import find_cluster
from logboom.wire.credentials import Credentials
from logboom.wire.secret_files import source_below


@dataclass(frozen=True, slots=True)
class Destination:
    """Nodes to connect to, and as whom."""

    endpoints: tuple[str, ...]
    file: Path | None = None
    """The credentials file; None: the nodes are open."""
    credentials: Credentials | None = None
    """Its content."""

    @property
    def text(self) -> str:
        """The nodes and the file in one text, as Spark's option `servers` takes them."""
        nodes = ",".join(self.endpoints)
        return nodes if self.file is None else f"{nodes}@{self.file}"


def destination_of(address: ClusterAddress | None) -> Destination:
    """Return the nodes of a command: the given ones, or those of its credentials file, or those of
    the cluster on this machine.

    Raises:
        InvalidRequest: an endpoint is not valid, there are no nodes, or several clusters run on
            this machine.
        StartError: the credentials file cannot be used.
        Unavailable: the cluster on this machine does not run.
    """
    servers = address.servers if address is not None else None
    file = address.credentials if address is not None else None
    if servers is None and file is None:
        servers, file = local_endpoints(), local_credentials()
    ends, credentials = find_cluster(servers or "", file)
    if file is not None:
        file = Path(source_below(str(file), Path.cwd()))
    return Destination(ends, file, credentials)
