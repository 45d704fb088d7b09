"""The keys that a name server's configuration lists: to be admitted, and let in before that.

A group of name servers whose links need keys cannot elect a leader before it knows its nodes, and
without a leader nothing is admitted. A name server with an older disk cannot hear a leader whose key
is newer than that disk. Nodes may therefore connect with the keys of the configuration, too, as long
as the replicated state knows nothing of these keys; as soon as it does, it alone counts.
"""

from __future__ import annotations

from logboom.metadata.access.admission_commands import INITIAL_LABEL
from logboom.metadata.config import NameServerConfig
from logboom.metadata.tables.cluster_state import ClusterState
from logboom.wire.access.access_commands import InitialUser
from logboom.wire.access.access_rules import UserKey, node_user, principal_of, user_of


class InitialKeys:
    """The users that one name server's configuration lists."""

    def __init__(self, config: NameServerConfig) -> None:
        self.users = [
            *(
                InitialUser(name, public, administrator=True)
                for name, public in config.administrators.items()
            ),
            *(InitialUser(node_user(node), key) for node, key in config.initial_nodes.items()),
        ]
        self._of_node = dict(config.initial_nodes)
        self._nodes = {key: node for node, key in config.initial_nodes.items()}
        self._keys = {self._principal(key): key for key in self._nodes}

    def fresh(self, cluster: ClusterState) -> list[InitialUser]:
        """Return the users whose listed key was never admitted, without nodes that are shut out.

        An administrator is enabled by a new key, because all may be lost. A node that was disabled
        is not: an administrator has done that, and can enable it again.
        """
        return [
            each
            for each in self.users
            if each.public not in cluster.access.admitted
            and (each.administrator or not _is_shut_out(self._nodes[each.public], cluster))
        ]

    def principal_of(self, public_key: str, cluster: ClusterState) -> str | None:
        """Return the principal of a key that may connect, or None."""
        if self._counts(public_key, cluster):
            return self._principal(public_key)
        return cluster.access.book.principal_of(public_key)

    def is_current(self, principal: str, cluster: ClusterState) -> bool:
        """Return True if the key that a connection was opened with still may connect."""
        if cluster.access.book.is_current(principal):
            return True
        key = self._keys.get(principal)
        if key is None:
            return False
        # The state may have learned the key since, under another label: the connection goes on, or
        # the peer, which knows nothing of labels, would be refused on it for ever.
        known = self.principal_of(key, cluster)
        return known is not None and user_of(known) == user_of(principal)

    def public_keys_of(self, node: str, cluster: ClusterState) -> list[str]:
        """Return the keys that a node may have: those of the replicated state, then the listed one."""
        known = cluster.access.book.public_keys_of(node_user(node))
        key = self._of_node.get(node)
        return [*known, key] if key is not None and self._counts(key, cluster) else known

    def _principal(self, public_key: str) -> str:
        # The label that the key gets when it is admitted.
        user = node_user(self._nodes[public_key])
        return principal_of(user, UserKey(INITIAL_LABEL, public_key, 0))

    def _counts(self, public_key: str, cluster: ClusterState) -> bool:
        """Return True if a key is that of a listed node and the state knows nothing against it.

        A key that the state has, or ever admitted, is decided on by the state: it may have been
        removed or have ended since, or belong to somebody else.
        """
        node, table = self._nodes.get(public_key), cluster.access
        return (
            node is not None
            and public_key not in table.admitted
            and public_key not in table.owners
            and not _is_shut_out(node, cluster)
        )


def _is_shut_out(node: str, cluster: ClusterState) -> bool:
    """Return True if a node was disabled, or is a name server that was removed."""
    user = cluster.access.users.get(node_user(node))
    return node in cluster.former_name_servers or (user is not None and user.disabled)
