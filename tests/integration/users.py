"""Users of a secure node, for tests."""

from __future__ import annotations

from logboom.deploy import Embedded
from logboom.wire.credentials import Credentials
from logboom.wire.credentials_file import read_credentials
from logboom.wire.sockets import make_key_pair


def new_credentials(node: Embedded, user: str) -> Credentials:
    """Return credentials with a new key for a user that the cluster does not know yet."""
    assert node.credentials is not None
    known = read_credentials(node.credentials)
    return Credentials(user, known.cluster_id, make_key_pair(), known.servers)
