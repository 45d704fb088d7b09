"""New key pairs: made on this machine, and written to a credentials file before they count."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from logboom.cli.output import note
from logboom.client import Client
from logboom.wire.access.access_rules import label_fault, public_key_fault, user_name_fault
from logboom.wire.credentials import Credentials, Server
from logboom.wire.credentials_file import write_credentials
from logboom.wire.errors import InvalidRequest, LogboomError, RetryableError
from logboom.wire.sockets import make_key_pair

FIRST: Final = "first"
"""Label of the first key of a user or node."""


class NewCredentials:
    """A key pair and its file, which is there before the cluster knows the key.

    If the cluster refuses the key, the file is removed. If it does not answer, the file stays,
    because the key may count.
    """

    def __init__(self, boom: Client | None, user: str, file: Path | None) -> None:
        """Make the key pair and write the file.

        Args:
            boom: names the cluster and its nodes in the file; None: neither is known yet.
            file: None: the user's name with .toml, in the working directory.

        Raises:
            StartError: there is such a file, or it cannot be written.
        """
        self.path = Path(f"{user.replace(':', '-')}.toml") if file is None else file
        self._servers = () if boom is None else known_servers(boom)
        cluster_id = "" if boom is None else boom.admin.cluster_id()
        pair = make_key_pair()
        self.public = pair.public
        write_credentials(self.path, Credentials(user, cluster_id, pair, self._servers))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RetryableError):
            note(f"{self.path} stays: the key in it counts if the cluster took it all the same")
        elif isinstance(error, LogboomError):
            self.path.unlink(missing_ok=True)

    def warn_of_no_servers(self) -> None:
        """Tell if the file names no node, because none has published a key."""
        if not self._servers:
            note(
                f"no node of this cluster has published a key yet, so {self.path} names none: "
                "docs/SECURITY.md, Turning it on and off, says what to add"
            )


def known_servers(boom: Client) -> tuple[Server, ...]:
    """Return the nodes with the public keys that they have published, one entry per key."""
    nodes = [(node.id, node.endpoint, node.keys) for node in boom.admin.name_servers()]
    nodes += [(node.id, node.endpoint, node.keys) for node in boom.admin.brokers()]
    return tuple(Server(node, endpoint, key) for node, endpoint, keys in nodes for key in keys)


def check_names(user: str, label: str, public_key: str) -> None:
    """Check what names a key, before anything is made.

    Raises:
        InvalidRequest: one of them is not valid; the text states the rule.
    """
    fault = user_name_fault(user) or label_fault(label)
    if public_key:
        fault = fault or public_key_fault(public_key)
    if fault is not None:
        raise InvalidRequest(fault)
