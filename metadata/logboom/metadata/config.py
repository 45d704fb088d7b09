"""Settings of one name server, as read from its configuration file or passed by `logboom.deploy`."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from logboom.wire.errors import StartError

LEASE_MS: Final = 2_000
"""Duration of the lease that a heartbeat grants. The broker counts it from sending the heartbeat,
so that it never believes in a lease for longer than the name server does (see docs/SAFETY.md, Q11).
"""
SESSION_TIMEOUT_S: Final = 3.0
"""Seconds without a heartbeat after which the Raft leader fences a broker. A lease plus the Raft
leader's fallback is never longer (Q11)."""


class NameServerMember(Struct, frozen=True, forbid_unknown_fields=True):
    """One name server of the group and its endpoints."""

    id: str
    """Raft id. It is never reused after a removal, because votes and entries under it would mix
    (R9)."""
    endpoint: str
    """host:port for clients and brokers."""
    raft_endpoint: str
    """host:port for the other name servers."""


class NameServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that a name server needs before it starts."""

    id: str
    """Its own id, e.g. "name-1"."""
    data: str = ""
    """Folder of the raft journal and snapshot. (Only the skin reads it.)"""
    listen: str = "127.0.0.1:7701"
    """host:port to bind for clients and brokers; port 0 takes a free one."""
    raft_listen: str = "127.0.0.1:7721"
    """host:port to bind for the other name servers; port 0 takes a free one."""
    name_servers: list[NameServerMember] = msgspec.field(default_factory=list)
    """The founding members, this one included; for a server that joins: the members it joins.
    Empty: a group of one."""
    cluster_key_file: str = ""
    """File with the key that all nodes share. (Only the skin reads it.)"""
    create: bool = False
    """Found the cluster. A founding member starts with an empty data folder only if this is set, so
    that a lost folder is noticed (R9). A server that is not in `name_servers` joins and does not
    need it."""
    rebalance_after_s: float = 5.0
    """Seconds that a queue's preferred replica must have been in sync before it becomes leader
    again; 0 turns this off."""

    def members(self) -> dict[str, NameServerMember]:
        """Return the members of `name_servers` by id; a group of one if it is empty."""
        if not self.name_servers:
            return {self.id: NameServerMember(self.id, self.listen, self.raft_listen)}
        return {member.id: member for member in self.name_servers}


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
    members = config.members()
    if config.create and config.id not in members:
        raise StartError(
            f"create = true, but {config.id!r} is not in name_servers: "
            "a founding member lists itself"
        )
