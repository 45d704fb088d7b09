"""The public keys by which a client knows the nodes that it dials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from logboom.wire.view import BrokerView, NameServerView


class NodeKeys:
    """Keys from the credentials file, and then from the metadata.

    A node in the metadata is known by its keys there alone: a key that it no longer has may be in
    other hands. The file counts for nodes that the metadata does not have, which is all of them at
    first. A name or address that neither knows may be that of any node in the file.
    """

    def __init__(self, named: Mapping[str, Sequence[str]]) -> None:
        self._named = named
        """Endpoint → keys, from the file."""
        self._all = list(dict.fromkeys(key for keys in named.values() for key in keys))
        self._learnt: dict[str, list[str]] = {}
        """Endpoint → keys, from the metadata."""

    def learn(self, nodes: Iterable[BrokerView | NameServerView]) -> None:
        """Take over the keys of all nodes in the metadata."""
        self._learnt = {
            endpoint: node.keys
            for node in nodes
            if node.keys
            for endpoint in (node.endpoint, *(each.endpoint for each in node.listeners))
        }

    def of(self, endpoint: str) -> Sequence[str]:
        """Return the keys of the node at an endpoint, the most likely first."""
        return self._learnt.get(endpoint) or self._named.get(endpoint) or self._all
