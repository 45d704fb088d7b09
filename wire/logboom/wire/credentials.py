"""The text of a credentials file: who one is, by which key, and by which keys one knows the nodes.

    user = "alice"
    cluster_id = "5f0c…"
    public_key = "…"
    secret_key = "…"

    [[servers]]
    node = "name-1"
    endpoint = "10.0.0.1:7701"
    public_key = "…"

A node that is about to have another key is listed once with each.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from logboom.wire.access.access_rules import public_key_fault, user_name_fault
from logboom.wire.endpoints import endpoint_fault
from logboom.wire.errors import StartError
from logboom.wire.key_pair import KeyPair, Secret
from logboom.wire.server_keys import ServerKeys

CREDENTIALS_REMEDY: Final = "name a file that `logboom user create` or `logboom cluster init` wrote"


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """A node as the file names it: to be dialled first, and known by its key."""

    node: str
    endpoint: str
    """host:port."""
    public_key: str
    """Z85."""


class Credentials(Struct, frozen=True):
    """The content of a credentials file."""

    user: str
    cluster_id: str
    """Empty: any cluster whose nodes have the keys below."""
    key_pair: KeyPair
    servers: tuple[Server, ...] = ()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of the servers, each once."""
        return tuple(dict.fromkeys(server.endpoint for server in self.servers))

    @property
    def server_keys(self) -> dict[str, tuple[str, ...]]:
        """Endpoint → the public keys of the node there."""
        found: dict[str, list[str]] = {}
        for server in self.servers:
            found.setdefault(server.endpoint, []).append(server.public_key)
        return {endpoint: tuple(dict.fromkeys(keys)) for endpoint, keys in found.items()}


def known_keys(published: ServerKeys, credentials: Credentials | None) -> ServerKeys:
    """Return what a node takes for another one's keys: those published, and those of its file.

    The file counts even where the metadata says otherwise, since it was written for this node, and a
    name server that starts from an old disk knows old keys only. Nodes prove to each other that they
    hold the cluster key, too.
    """
    named = {} if credentials is None else credentials.server_keys
    return lambda endpoint: (*published(endpoint), *named.get(endpoint, ()))


class _FileText(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys and values of the file."""

    user: str
    public_key: str
    secret_key: str
    cluster_id: str = ""
    servers: list[Server] = []

    def __repr__(self) -> str:
        return f"_FileText({self.user!r})"


def parse_credentials(text: str, where: str) -> Credentials:
    """Return the credentials in a text; `where` names it in errors, which never quote it.

    Raises:
        StartError: BAD_CONFIG, with what is wrong and the remedy.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _fault(where, f"it is not TOML ({_place(error)}): {CREDENTIALS_REMEDY}") from None
    return _credentials(table, where)


def _credentials(table: Mapping[str, Any], where: str) -> Credentials:
    try:
        found = msgspec.convert(table, _FileText)
    except msgspec.ValidationError as error:
        raise _fault(where, f"it is no credentials file ({error}): {CREDENTIALS_REMEDY}") from None
    fault = user_name_fault(found.user)
    if fault is not None:
        raise _fault(where, fault)
    for name, key in (("public_key", found.public_key), ("secret_key", found.secret_key)):
        if public_key_fault(key) is not None:
            # The text of that fault is about public keys; no more is said of a secret one.
            raise _fault(where, f"{name} is not 40 characters of Z85: copy the whole key")
    for server in found.servers:
        if public_key_fault(server.public_key) is not None:
            raise _fault(where, f"the public_key of {server.node!r} is not 40 characters of Z85")
        fault = endpoint_fault(server.endpoint)
        if fault is not None:
            raise _fault(where, f"{server.node!r}: {fault}")
    pair = KeyPair(found.public_key, Secret(found.secret_key))
    return Credentials(found.user, found.cluster_id, pair, tuple(found.servers))


def format_credentials(credentials: Credentials) -> str:
    """Return the text of a credentials file. It contains the secret key."""
    pair = credentials.key_pair
    lines = [
        f"# The secret key of {credentials.user}: keep it to yourself (mode 0600).",
        f"user = {_quoted(credentials.user)}",
    ]
    if credentials.cluster_id:
        lines.append(f"cluster_id = {_quoted(credentials.cluster_id)}")
    lines += [
        f"public_key = {_quoted(pair.public)}",
        f"secret_key = {_quoted(pair.secret.reveal())}",
    ]
    return "\n".join(lines) + "\n" + format_servers(credentials.servers)


def format_servers(servers: Iterable[Server]) -> str:
    """Return the part of a credentials file that names the nodes; it holds no secret."""
    return "".join(
        f"\n[[servers]]\nnode = {_quoted(each.node)}\nendpoint = {_quoted(each.endpoint)}\n"
        f"public_key = {_quoted(each.public_key)}\n"
        for each in servers
    )


def _quoted(text: str) -> str:
    """Return a basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _place(error: tomllib.TOMLDecodeError) -> str:
    """Return where a text is wrong, without the wrong character, which may be of a key."""
    _, found, place = str(error).rpartition("(at ")
    return f"at {place.rstrip(')')}" if found else "not readable"


def _fault(where: str, text: str) -> StartError:
    return StartError(f"{where}: {text}")
