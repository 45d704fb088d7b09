"""Settings of one name server, as read from its configuration file or passed by `logboom.deploy`."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from logboom.wire.access.access_rules import (
    is_node_user,
    node_user,
    public_key_fault,
    user_name_fault,
)
from logboom.wire.connection_limits import MAX_PER_ADDRESS
from logboom.wire.endpoints import endpoint_fault
from logboom.wire.errors import InvalidRequest, StartError
from logboom.wire.listeners import (
    ListenerConfig,
    ListenerView,
    check_dialled,
    check_listeners,
    check_metrics_listen,
    listener_views,
)
from logboom.wire.log_format import LogForm
from logboom.wire.settings import find_setting

LEASE_MS: Final = 2_000
"""Duration of the lease that a heartbeat grants. The broker counts it from sending the heartbeat,
so that it never believes in a lease for longer than the name server does (see docs/SAFETY.md, Q11).
"""
SESSION_TIMEOUT_S: Final = 3.0
"""Seconds without a heartbeat after which the Raft leader fences a broker. A lease plus the Raft
leader's fallback is never longer (Q11)."""


_LISTEN: Final = "127.0.0.1:7701"
_RAFT_LISTEN: Final = "127.0.0.1:7721"


class NameServerMember(Struct, frozen=True, forbid_unknown_fields=True):
    """One name server of the group and its endpoints."""

    id: str
    """Raft id. It is never reused after a removal, because votes and entries under it would mix
    (R9)."""
    endpoint: str
    """host:port for clients and brokers."""
    raft_endpoint: str
    """host:port for the other name servers."""


class NameServerListener(ListenerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `listeners` in a name server's config file."""

    for_raft: bool = False
    """True if it is for the other name servers, false if it is for clients and brokers."""


class NameServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that a name server needs before it starts."""

    id: str
    """Its own id, e.g. "name-1"."""
    data: str = ""
    """Folder of the raft journal and snapshot. (Only the skin reads it.)"""
    listen: str = _LISTEN
    """host:port to bind for clients and brokers; port 0 takes a free one."""
    raft_listen: str = _RAFT_LISTEN
    """host:port to bind for the other name servers; port 0 takes a free one."""
    listeners: list[NameServerListener] = []
    """Addresses to bind, each with its own security, in place of `listen` and `raft_listen`: at
    least one for clients and brokers and one for the other name servers."""
    credentials_file: str = ""
    """File with the key pair of this node and the public keys of the other name servers. (Only the
    skin reads it.)"""
    insecure: bool = False
    """True if a listener without encryption may bind an address that other machines reach."""
    metrics_listen: str = "auto"
    """host:port for metrics and health, which are HTTP and open to whoever reaches them; port 0
    takes a free one. "auto": loopback, 1000 ports above the first listener, unless that takes a
    free port or the port is in use. "off": none. (Only the skin reads it.)"""
    metrics_tls_cert: str = ""
    """Certificate with its chain (PEM) for that port, which then speaks HTTPS. (Only the skin reads it.)"""
    metrics_tls_key: str = ""
    """Its key (PEM). Both files are read again when they change. (Only the skin reads it.)"""
    name_servers: list[NameServerMember] = msgspec.field(default_factory=list)
    """The founding members, this one included; for a server that joins: the members it joins.
    Empty: a group of one."""
    cluster_key_file: str = ""
    """File with the key that all nodes share, followed as it changes. (Only the skin reads it.)"""
    create: bool = False
    """Found the cluster. A founding member starts with an empty data folder only if this is set, so
    that a lost folder is noticed (R9). A server that is not in `name_servers` joins and does not
    need it."""
    administrators: dict[str, str] = {}
    """User → public key (Z85) of the first administrators. Each key is admitted once: one that was
    removed later stays out. A new key here, on all name servers, lets in an administrator again
    after the last one was lost."""
    initial_nodes: dict[str, str] = {}
    """Node id → public key (Z85) of the nodes that encrypt, name servers included; admitted in the
    same way, and accepted before that. A node that was disabled stays so."""
    rebalance_after_s: float = 5.0
    """Seconds that a queue's preferred replica must have been in sync before it becomes leader
    again; 0 turns this off."""
    replace_after_s: float = 0.0
    """Seconds that a broker must be dead before its replicas are made anew on others; 0: never."""
    balance_mode: str = "new-broker"
    """When replicas move so that brokers hold even shares: off, new-broker, continuous."""
    log: LogForm = "text"
    """Form of the log on standard error: text, or json. (Only `logboom.deploy` reads it.)"""
    audit: bool = True
    """If true, refusals and management are written to the audit log. (Only the skin reads it.)"""
    audit_folder: str = ""
    """Folder of the audit log. Empty: `data`. (Only the skin reads it.)"""
    audit_files: int = 4
    """Files of 8 MiB that are kept of the audit log, and of that of administrators. (Only the skin reads
    it.)"""
    max_connections_per_address: int = MAX_PER_ADDRESS
    """Connections that one address may have; more are reset. Loopback has no limit. 0: no limit.
    (Only the skin reads it.)"""

    def members(self) -> dict[str, NameServerMember]:
        """Return the members of `name_servers` by id; a group of one if it is empty."""
        if not self.name_servers:
            return {self.id: NameServerMember(self.id, self.listen, self.raft_listen)}
        return {member.id: member for member in self.name_servers}


def listeners_of(config: NameServerConfig) -> list[NameServerListener]:
    """Return the listeners of a name server.

    `listen` and `raft_listen` alone are two open ones, "main" and "raft".
    """
    main = NameServerListener(name="main", listen=config.listen, security="none")
    raft = NameServerListener(
        name="raft", listen=config.raft_listen, security="none", for_raft=True
    )
    return config.listeners or [main, raft]


def announced_listeners(config: NameServerConfig) -> tuple[list[ListenerView], list[ListenerView]]:
    """Return the listeners for clients and brokers, and for name servers, as others see them.

    Nothing, if there is one open one of each, at the endpoints that `name_servers` has. Each
    `advertise` of `config` is set.
    """
    main, raft = (
        listener_views([each for each in config.listeners if each.for_raft is for_raft], {})
        for for_raft in (False, True)
    )
    me = config.members().get(config.id)
    known = [] if me is None else [(me.endpoint, "none"), (me.raft_endpoint, "none")]
    if [(each.endpoint, each.security) for each in (*main, *raft)] == known:
        return [], []
    return main, raft


def check_lease(
    leader_fallback_s: float, lease_ms: int = LEASE_MS, session_s: float = SESSION_TIMEOUT_S
) -> None:
    """Check that a broker's lease always ends before its session does (see docs/SAFETY.md, Q11).

    A Raft leader that is cut off grants leases until it steps down `leader_fallback_s` later. Its
    successor may fence a broker one session after the broker's last heartbeat.

    Raises:
        StartError: BAD_CONFIG, in one line.
    """
    if not 0 < lease_ms / 1000 + leader_fallback_s <= session_s:
        raise StartError(
            f"a lease of {lease_ms} ms and the raft leader's fallback of {leader_fallback_s} s "
            f"are longer than the session of {session_s} s: two brokers could lead one queue; "
            "shorten the lease or the fallback"
        )


def check_config(config: NameServerConfig) -> None:
    """Check what the types alone do not guarantee.

    Raises:
        StartError: BAD_CONFIG, in one line.
    """
    if not config.id:
        raise StartError("id is empty: name the name server, e.g. name-1")
    ids = [member.id for member in config.name_servers]
    if len(set(ids)) < len(ids):
        raise StartError("name_servers names one id twice: give every name server its own")
    for member in config.name_servers:
        fault = endpoint_fault(member.endpoint) or endpoint_fault(member.raft_endpoint)
        if fault is not None:
            raise StartError(f"name_servers: {member.id}: {fault}")
    if config.max_connections_per_address < 0:
        raise StartError("max_connections_per_address must not be below 0 (0: no limit)")
    members = config.members()
    if config.create and config.id not in members:
        raise StartError(
            f"create = true, but {config.id!r} is not in name_servers: "
            "a founding member lists itself"
        )
    _check_listeners(config)
    check_metrics_listen(config.metrics_listen, config.metrics_tls_cert, config.metrics_tls_key)
    _check_keys(config)
    for name in ("rebalance_after_s", "replace_after_s", "balance_mode"):
        try:
            find_setting(name).parse(str(getattr(config, name)))
        except InvalidRequest as error:
            raise StartError(error.text) from None


def _check_keys(config: NameServerConfig) -> None:
    owners: dict[str, str] = {}
    nodes = {node_user(node): key for node, key in config.initial_nodes.items()}
    for name, key in [*config.administrators.items(), *nodes.items()]:
        fault = user_name_fault(name) or public_key_fault(key)
        if fault is None and name in config.administrators and is_node_user(name):
            fault = f"{name} is a node and cannot be an administrator: list it in initial_nodes"
        if fault is None and owners.setdefault(key, name) != name:
            fault = f"{owners[key]} and {name} have one public key: give each its own"
        if fault is not None:
            raise StartError(f"administrators or initial_nodes: {fault}")


def _check_listeners(config: NameServerConfig) -> None:
    if config.listeners:
        if config.listen != _LISTEN or config.raft_listen != _RAFT_LISTEN:
            text = "`listeners` stands in place of `listen` and `raft_listen`: remove these"
            raise StartError(text)
        if all(each.for_raft for each in config.listeners):
            raise StartError("every listener is for_raft: add one for clients and brokers")
        if not any(each.for_raft for each in config.listeners):
            raise StartError(
                "no listener has for_raft = true: add one for the other name servers, e.g. "
                '{ name = "raft", listen = "127.0.0.1:7721", security = "none", for_raft = true }'
            )
        check_dialled(config.listeners)
    check_listeners(
        listeners_of(config), credentials_file=config.credentials_file, insecure=config.insecure
    )
